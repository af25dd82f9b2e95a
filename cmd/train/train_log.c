/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_log.h"

#include "cmd/common/command.h"
#include "cmd/common/json.h"
#include "comet/version.h"

static json begin(log_file *log, const char *event) {
    json j = {.file = log->file};
    json_open(&j, NULL, '{', 1);
    json_string(&j, "event", event);
    return j;
}

static void end(log_file *log, json *j) {
    json_close(j, '}');
    log_file_end_line(log);
}

static void put_plan(json *j, comet_trainer *trainer) {
    comet_trainer_bytes b = comet_trainer_get_bytes(trainer);
    json_open(j, "plan", '{', 1);
    json_integer(j, "peak_bytes", (int64_t)b.planned_peak_bytes);
    json_integer(j, "static_bytes", (int64_t)b.static_bytes);
    json_integer(j, "saved_raw_bytes", (int64_t)b.saved_raw_bytes);
    json_integer(j, "saved_stored_bytes", (int64_t)b.saved_stored_bytes);
    json_close(j, '}');
}

static void put_start(log_file *log, const comet_run_options *run, const comet_run_event *event) {
    const comet_trainer_options *t = &run->trainer;
    comet_shape shape = comet_graph_shape(comet_trainer_graph(event->trainer), 0);
    json j = begin(log, "start");
    json_string(&j, "version", comet_version_string());
    json_string(&j, "model", t->model);
    json_string(&j, "data", comet_dataset_get_info(run->data)->name);
    json_integers(&j, "image", 3, (const int64_t[]){shape.height, shape.width, shape.channels});
    json_integer(&j, "classes", comet_dataset_get_info(run->data)->classes);
    json_string(&j, "codec", t->codec);
    if (t->control)
        json_string(&j, "control", t->control);
    else
        json_null(&j, "control");
    json_number(&j, "calibration", t->calibration);
    json_number(&j, "error_rel", t->error_rel);
    json_string(&j, "forms", t->forms ? t->forms : "");
    json_string(&j, "inject_error", t->hooks.text ? t->hooks.text : "");
    json_integer(&j, "batch", t->batch);
    json_integer(&j, "accumulate", t->accumulate > 1 ? t->accumulate : 1);
    json_integer(&j, "memory_bytes", (int64_t)t->memory_bytes);
    json_string(&j, "optimiser", t->optimiser.kind == COMET_SGD ? "sgd" : "adamw");
    json_number(&j, "learning_rate", run->rate);
    json_number(&j, "momentum", t->optimiser.momentum);
    json_number(&j, "weight_decay", t->optimiser.weight_decay);
    json_number(&j, "label_smoothing", (double)t->smoothing);
    json_integer(&j, "seed", (int64_t)t->seed);
    json_integer(&j, "step", event->step);
    json_integer(&j, "steps", event->steps);
    put_plan(&j, event->trainer);
    end(log, &j);
}

static void put_step(log_file *log, const comet_run_event *event) {
    const comet_trainer_result *r = &event->result;
    json j = begin(log, "step");
    json_integer(&j, "step", event->step);
    json_integer(&j, "epoch", event->epoch);
    json_number(&j, "loss", r->loss);
    json_number(&j, "accuracy", 100.0 * r->top1 / (double)event->images);
    json_number(&j, "learning_rate", event->learning_rate);
    json_number(&j, "mean_momentum", r->mean_momentum);
    json_integer(&j, "saved_raw_bytes", (int64_t)r->saved_raw_bytes);
    json_integer(&j, "saved_stored_bytes", (int64_t)r->saved_stored_bytes);
    json_integer(&j, "spilled_bytes", (int64_t)r->spilled_bytes);
    json_bool(&j, "skipped", r->skipped);
    json_number(&j, "ms", event->step_ms);
    json_number(&j, "wait_ms", event->wait_ms);
    json_number(&j, "images_per_s", event->images_per_second);
    end(log, &j);
}

/* The step before whose update it was measured is this one. */
static void put_joint(log_file *log, const comet_run_event *event) {
    const comet_trainer_joint *joint = comet_trainer_get_joint(event->trainer);
    if (joint->count == 0 || joint->iteration + 1 != event->step)
        return;
    log_file_begin_line(log);
    json j = begin(log, "joint");
    json_integer(&j, "step", event->step);
    json_integer(&j, "images", joint->images);
    json_number(&j, "error", joint->error);
    json_number(&j, "predicted", joint->predicted);
    json_open(&j, "layers", '[', 1);
    for (int i = 0; i < joint->count; i++) {
        json_open(&j, NULL, '{', 1);
        json_string(&j, "gradient", joint->layers[i].gradient);
        json_number(&j, "error", joint->layers[i].error);
        json_number(&j, "predicted", joint->layers[i].predicted);
        json_close(&j, '}');
    }
    json_close(&j, ']');
    end(log, &j);
}

static void put_evaluation(log_file *log, const comet_run_event *event) {
    json j = begin(log, "evaluation");
    json_integer(&j, "step", event->step);
    json_integer(&j, "epoch", event->epoch);
    json_number(&j, "loss", event->loss);
    json_number(&j, "accuracy", event->top1);
    json_number(&j, "top5", event->top5);
    json_integer(&j, "samples", event->samples);
    end(log, &j);
}

static void put_text(log_file *log, const char *name, const comet_run_event *event) {
    json j = begin(log, name);
    json_integer(&j, "step", event->step);
    json_string(&j, "text", event->text);
    end(log, &j);
}

static void put_bound(json *j, const char *key, comet_control_bound_value bound) {
    json_open(j, key, '{', 1);
    json_string(j, "kind", bound.kind == COMET_BOUND_RELATIVE ? "relative" : "absolute");
    json_number(j, "value", bound.value);
    json_close(j, '}');
}

static void put_control(log_file *log, const comet_run_event *event) {
    const comet_control_event *c = event->control;
    json j = begin(log, "control");
    json_integer(&j, "step", c->iteration + 1); /* as steps are counted in this file */
    json_string(&j, "layer", c->name);
    json_string(&j, "reason", c->text);
    json_string(&j, "limit", comet_control_limit_text(c->limit));
    json_string(&j, "use", comet_trainer_use_name(event->trainer, c->tensor, c->use));
    put_bound(&j, "before", c->before);
    put_bound(&j, "after", c->after);
    json_number(&j, "rms", c->rms);
    json_number(&j, "sensitivity", c->sensitivity);
    json_number(&j, "momentum", c->momentum);
    json_number(&j, "factor", c->factor);
    json_number(&j, "joint_factor", c->joint);
    json_number(&j, "tightness", c->tightness);
    json_number(&j, "loss", c->loss);
    end(log, &j);
}

void train_log_event(log_file *log, const comet_run_options *run, const comet_run_event *event) {
    if (!log->file)
        return;
    log_file_begin_line(log);
    if (event->kind == COMET_RUN_STARTED)
        put_start(log, run, event);
    else if (event->kind == COMET_RUN_STEP)
        put_step(log, event), put_joint(log, event);
    else if (event->kind == COMET_RUN_EVALUATED)
        put_evaluation(log, event);
    else if (event->kind == COMET_RUN_CONTROL)
        put_control(log, event);
    else if (event->kind != COMET_RUN_EVALUATING)
        put_text(log, event->kind == COMET_RUN_NOTE ? "note" : "checkpoint", event);
}

static void put_gpu(json *j, const record_figures *f) {
    if (!f->gpu_bytes) {
        json_null(j, "gpu");
        return;
    }
    json_open(j, "gpu", '{', 1);
    json_integer(j, "bytes", (int64_t)f->gpu_bytes);
    json_integer(j, "first_bytes", (int64_t)f->gpu_first_bytes);
    json_integer(j, "most_bytes", (int64_t)f->gpu_most_bytes);
    json_close(j, '}');
}

static void put_end(log_file *log, const record *r) {
    const record_figures *f = &r->figures;
    json j = begin(log, "end");
    json_string(&j, "state", f->status != COMET_OK ? "failed" : f->result.stopped ? "stopped" : "done");
    json_string(&j, "message", f->why.text);
    json_integer(&j, "step", f->result.step);
    json_integer(&j, "skipped", f->result.skipped);
    json_bool(&j, "ended_early", f->result.ended_early);
    if (f->result.best_step >= 0) {
        json_integer(&j, "best_step", f->result.best_step);
        json_number(&j, "best_accuracy", f->result.best_accuracy);
    }
    json_number(&j, "accuracy", f->result.top1);
    json_number(&j, "top5", f->result.top5);
    json_number(&j, "loss", f->result.loss);
    json_number(&j, "train_loss", f->result.train_loss);
    json_integer(&j, "saved_raw_bytes", (int64_t)f->result.saved_raw_bytes);
    json_integer(&j, "saved_stored_bytes", (int64_t)f->result.saved_stored_bytes);
    if (f->at_ceiling < 0)
        json_null(&j, "at_ceiling");
    else
        json_number(&j, "at_ceiling", f->at_ceiling);
    if (f->joint_count)
        json_number(&j, "joint_error", record_last_joint(r).error);
    else
        json_null(&j, "joint_error");
    json_integer(&j, "planned_peak_bytes", (int64_t)record_planned_peak(r));
    json_integer(&j, "allocated_peak_bytes", (int64_t)f->result.bytes.allocated_peak_bytes);
    if (f->measured_peak_bytes)
        json_integer(&j, "measured_peak_bytes", (int64_t)f->measured_peak_bytes);
    else
        json_null(&j, "measured_peak_bytes");
    json_integer(&j, "static_bytes", (int64_t)f->result.bytes.static_bytes);
    json_number(&j, "ms_per_step", f->result.ms_per_step);
    json_number(&j, "images_per_s", f->result.images_per_second);
    json_number(&j, "network_images_per_s", f->result.network_images_per_second);
    json_number(&j, "data_wait", f->result.data_wait);
    json_number(&j, "loader_wait", f->result.loader_wait);
    put_gpu(&j, f);
    end(log, &j);
}

/* The log of an earlier run does not end with the failure of one that never began. */
int train_log_close(log_file *log, const record *r) {
    if (log->file && !log_file_is_foreign(log))
        put_end(log, r);
    return log_file_close(log);
}
