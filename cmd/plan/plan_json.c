/* SPDX-License-Identifier: Apache-2.0 */
/* A plan for programs. */
#include <stdio.h>

#include "cmd/common/json.h"
#include "cmd/plan/plan.h"

static void put_request(json *j, const plan_request *r) {
    const comet_trainer_options *o = &r->trainer;
    json_string(j, "model", o->model);
    json_integer(j, "batch", o->batch);
    json_integer(j, "image", o->height);
    json_integer(j, "channels", o->channels);
    json_integer(j, "classes", o->classes);
    json_string(j, "codec", o->codec);
    json_string(j, "optimiser", o->optimiser.kind == COMET_SGD ? "sgd" : "adamw");
    if (o->freeze)
        json_string(j, "freeze", o->freeze);
    else
        json_null(j, "freeze");
    if (r->data_name)
        json_string(j, "data", r->data_name);
    else
        json_null(j, "data");
}

static void put_totals(json *j, const plan_request *r, const plan_totals *t) {
    json_integer(j, "peak_bytes", (int64_t)t->peak_bytes);
    json_integer(j, "static_bytes", (int64_t)t->static_bytes);
    json_integer(j, "arena_bytes", (int64_t)t->buffer_bytes);
    json_integer(j, "stream_bytes", (int64_t)t->stream_bytes);
    json_integer(j, "library_bytes", (int64_t)t->library_bytes);
    if (r->data)
        json_integer(j, "data_bytes", (int64_t)t->data_bytes);
    else
        json_null(j, "data_bytes");
    json_integer(j, "saved_raw_bytes", (int64_t)t->raw_bytes);
    json_integer(j, "saved_stored_bytes", (int64_t)t->stored_bytes);
    json_integer(j, "spilled_bytes", (int64_t)t->spilled_bytes);
    json_integer(j, "recomputed_bytes", (int64_t)t->recomputed_bytes);
}

static void put_budget(json *j, const plan_request *r, const plan_answer *answer) {
    if (r->trainer.memory_bytes) {
        json_integer(j, "memory_bytes", (int64_t)r->trainer.memory_bytes);
        json_bool(j, "fits", answer->fits);
        json_integer(j, "largest_batch", answer->largest_batch);
    } else {
        json_null(j, "memory_bytes");
        json_null(j, "fits");
        json_null(j, "largest_batch");
    }
    json_integer(j, "least_bytes", (int64_t)answer->shown.fit.least_bytes);
}

static void put_layer(json *j, const comet_plan_entry *e) {
    const int64_t shape[] = {e->shape.height, e->shape.width, e->shape.channels};
    char form[COMET_FORM_TEXT];
    comet_form_format(e, form);
    json_open(j, NULL, '{', 1);
    json_string(j, "name", e->name);
    json_string(j, "kind", plan_kind_name(e->kind));
    json_integers(j, "shape", 3, shape);
    json_string(j, "form", form);
    json_integer(j, "raw_bytes", (int64_t)e->raw_bytes);
    json_integer(j, "stored_bytes", (int64_t)e->stored_bytes);
    json_bool(j, "estimate", e->is_estimate != 0);
    json_close(j, '}');
}

void plan_print_json(const plan_request *r, const plan_answer *answer) {
    const plan_totals totals = plan_sum(r, &answer->shown);
    json j = {.file = stdout};
    json_open(&j, NULL, '{', 0);
    put_request(&j, r);
    put_totals(&j, r, &totals);
    put_budget(&j, r, answer);
    json_open(&j, "layers", '[', 0);
    for (int i = 0; i < answer->shown.entry_count; i++)
        put_layer(&j, answer->shown.entries[i]);
    json_close(&j, ']');
    json_close(&j, '}');
}
