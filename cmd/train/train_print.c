/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_print.h"

#include <stdio.h>

#include "cmd/common/text.h"

/* ---- at the beginning ---- */

static void print_data(const comet_run_options *run, const comet_run_event *event) {
    const comet_dataset_info *info = comet_dataset_get_info(run->data);
    const comet_shape shape = comet_graph_shape(comet_trainer_graph(event->trainer), 0);
    const char *name = run->data_name ? run->data_name : info->name;
    const int64_t all = info->count[COMET_SPLIT_EVALUATE];
    printf("data      %s: %d classes, %lld images to train with, %lld to evaluate with", name, info->classes,
           (long long)info->count[COMET_SPLIT_TRAIN], (long long)all);
    if (run->evaluate_most && run->evaluate_most < all)
        printf(" (%lld of them)", (long long)run->evaluate_most);
    printf("\nmodel     %s, images of %dx%d%s, batch %d", run->trainer.model, shape.width, shape.height,
           shape.channels == 1 ? " (grey)" : "", run->trainer.batch);
    if (run->trainer.accumulate > 1)
        printf(" x %d", run->trainer.accumulate);
    putchar('\n');
}

static void print_plan(const comet_run_options *run, const comet_run_event *event) {
    const comet_trainer_options *t = &run->trainer;
    const comet_trainer_bytes bytes = comet_trainer_get_bytes(event->trainer);
    char peak[32], raw[32], stored[32];
    printf("training  %lld steps%s, %s, learning rate %g (%s), %s%s%s\n", (long long)(event->steps - event->step),
           event->step ? " more" : "", t->optimiser.kind == COMET_SGD ? "sgd" : "adamw", run->rate,
           comet_schedule_name(run->schedule), t->codec, t->control ? " under " : "", t->control ? t->control : "");
    printf("memory    peak %s planned, saved %s -> %s a step", text_size(event->planned_peak_bytes, peak, sizeof peak),
           text_size(bytes.saved_raw_bytes, raw, sizeof raw),
           text_size(bytes.saved_stored_bytes, stored, sizeof stored));
    if (t->memory_bytes)
        printf(", %s allowed", text_size(t->memory_bytes, raw, sizeof raw));
    putchar('\n');
}

void train_print_start(const comet_run_options *run, const comet_run_event *event) {
    print_data(run, event);
    print_plan(run, event);
    if (run->folder)
        printf("keeps     checkpoints in '%s'", run->folder);
    else
        printf("keeps     no checkpoints");
    if (event->step > 0)
        printf("; goes on after step %lld of %lld", (long long)event->step, (long long)event->steps);
    printf("\n\n");
    fflush(stdout);
}

/* ---- on the way ---- */

void train_print_evaluation(const comet_run_event *event) {
    printf("epoch %u, step %lld: loss %.4f, accuracy %.2f %%, top-5 %.2f %%\n", event->epoch + 1,
           (long long)event->step, event->loss, event->top1, event->top5);
    fflush(stdout);
}

/* ---- at the end ---- */

/* Who waits for whom: a network that waits for its images is as fast as their loader. */
static void print_waits(const comet_run_options *run, const comet_run_result *r) {
    const char *trainer = run->trainer.place.device.kind == COMET_CUDA ? "the GPU" : "the network";
    printf("waiting   %s %.0f %% of the time for images (without: %.0f images/s), the loader %.0f %% for %s\n", trainer,
           100 * r->data_wait, r->network_images_per_second, 100 * r->loader_wait, trainer);
}

/* As its driver has it: what other programs take is in both, and the process's context in the first. */
static void print_gpu(const record_figures *f) {
    char a[32], b[32], c[32];
    if (!f->gpu_bytes)
        return;
    printf("GPU       %s of %s taken at most, as its driver counts; %s before the run\n",
           text_size(f->gpu_most_bytes, a, sizeof a), text_size(f->gpu_bytes, b, sizeof b),
           text_size(f->gpu_first_bytes, c, sizeof c));
}

void train_print_summary(const comet_run_options *run, const record *kept) {
    const record_figures *f = &kept->figures;
    const comet_run_result *r = &f->result;
    char a[32], b[32], c[32];
    if (!r->stopped)
        printf("accuracy  %.2f %% (top-5 %.2f %%), loss %.4f, after %lld steps of %d\n", r->top1, r->top5, r->loss,
               (long long)r->step, f->batch);
    printf("saved     %s -> %s a step (%.1f x)\n", text_size(r->saved_raw_bytes, a, sizeof a),
           text_size(r->saved_stored_bytes, b, sizeof b),
           r->saved_stored_bytes ? (double)r->saved_raw_bytes / (double)r->saved_stored_bytes : 1.0);
    if (f->at_ceiling >= 0)
        printf("bounds    %.0f %% of them at the ceiling, over tensors and steps since the first decision\n",
               100 * f->at_ceiling);
    const record_joint joint = record_last_joint(kept);
    if (joint.error > 0)
        printf("errors    of gradients, all tensors together: %.2f of their rms, %.2f predicted (step %.0f, %d "
               "images)\n",
               joint.error, joint.predicted, joint.step, joint.images);
    printf("peak      %s planned, %s%s", text_size(record_planned_peak(kept), a, sizeof a),
           text_measured(f->measured_peak_bytes, b, sizeof b), f->measured_peak_bytes ? " measured" : "");
    printf(" (weights, gradients, optimiser %s; prefetch %s)\n", text_size(r->bytes.static_bytes, a, sizeof a),
           text_size(r->loader_bytes[COMET_SPLIT_TRAIN], b, sizeof b));
    print_gpu(f);
    if (run->trainer.memory_bytes && f->measured_peak_bytes) {
        const int on_gpu = run->trainer.place.device.kind == COMET_CUDA;
        const size_t data = on_gpu ? 0 : comet_dataset_get_info(run->data)->memory_bytes;
        printf("memory    %s of %s allowed", text_size(f->measured_peak_bytes + data, a, sizeof a),
               text_size(run->trainer.memory_bytes, b, sizeof b));
        if (on_gpu)
            printf(" on the GPU\n");
        else
            printf(", the data set's %s included\n", text_size(data, c, sizeof c));
    }
    printf("speed     %.1f ms a step, %.0f images/s\n", r->ms_per_step, r->images_per_second);
    print_waits(run, r);
    if (r->skipped)
        printf("skipped   %lld steps that were not finite\n", (long long)r->skipped);
    if (r->ended_early)
        printf("ended     early: none of the last %d evaluations was better than that after step %lld (%.2f %%)\n",
               run->patience, (long long)r->best_step, r->best_accuracy);
    if (r->stopped)
        printf("stopped after step %lld%s%s%s\n", (long long)r->step, run->folder ? "; --resume goes on from '" : "",
               run->folder ? run->folder : "", run->folder ? "'" : "");
    else if (run->folder)
        printf("checkpoint '%s': weights in last.safetensors, the best ones (%.2f %%, step %lld) in best.safetensors\n",
               run->folder, r->best_accuracy, (long long)r->best_step);
}
