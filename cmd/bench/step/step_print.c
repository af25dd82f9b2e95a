/* SPDX-License-Identifier: Apache-2.0 */
/* Tables for people and one JSON object. */
#include <stdio.h>

#include "cmd/bench/step/step.h"
#include "cmd/common/json.h"
#include "cmd/common/machine.h"
#include "comet/version.h"

static double mib(uint64_t bytes) {
    return (double)bytes / 0x1p20;
}

/* Without weights, gradients and the optimiser's state. */
static size_t beside_static(const step_result *r, size_t bytes) {
    return bytes > r->bytes.static_bytes ? bytes - r->bytes.static_bytes : 0;
}

static const char *data_name(const step_plan *p) {
    return p->texts.data;
}

void step_print_head(const step_plan *p) {
    printf("%s, batch %d, %s, %d updates before; ms of a step, MiB\n\n", p->run.trainer.model, p->run.trainer.batch,
           data_name(p), p->settle);
    printf("%-5s %-16s %8s %8s %8s %8s %9s %8s %8s %8s %9s %8s\n", "", "", "median", "in a row", "issued", "images/s",
           "peak", "first", "static", "planned", "saved raw", "stored");
}

void step_print(const step_result *r) {
    if (r->status != COMET_OK) {
        printf("%-5s %-16s failed: %s\n", r->numbers, r->variant, r->why.text);
        fflush(stdout);
        return;
    }
    printf("%-5s %-16.16s %8.2f %8.2f %8.2f %8.0f %9.1f %8.1f %8.1f %8.1f %9.1f %8.1f\n", r->numbers, r->variant, r->ms,
           r->row_ms, r->issue_ms, r->images_per_second, mib(beside_static(r, r->peak_bytes)),
           mib(beside_static(r, r->first_peak_bytes)), mib(r->bytes.static_bytes),
           mib(beside_static(r, r->bytes.planned_peak_bytes)), mib(r->saved_raw_bytes), mib(r->saved_stored_bytes));
    fflush(stdout);
}

void step_print_parts(const step_result *r) {
    double sum = 0;
    if (r->status != COMET_OK || !r->part_count)
        return;
    printf("\n%s %s: ms, where the time goes\n", r->numbers, r->variant);
    for (int i = 0; i < r->part_count; i++) {
        const step_part *p = &r->parts[i];
        if (p->forward_ms + p->backward_ms == 0)
            continue;
        sum += p->forward_ms + p->backward_ms;
        printf("  %-16s %4d  forward %8.3f  backward %8.3f\n", p->name, p->nodes, p->forward_ms, p->backward_ms);
    }
    printf("  %-16s       %.3f; the rest of a step, its update, %.3f\n", "together", sum, r->ms - sum);
}

/* ---- JSON ---- */

static void put_parts(json *j, const step_result *r) {
    json_open(j, "parts", '[', 0);
    for (int i = 0; i < r->part_count; i++) {
        const step_part *p = &r->parts[i];
        if (p->forward_ms + p->backward_ms == 0)
            continue;
        json_open(j, NULL, '{', 1);
        json_string(j, "op", p->name);
        json_integer(j, "nodes", p->nodes);
        json_number(j, "forward_ms", p->forward_ms);
        json_number(j, "backward_ms", p->backward_ms);
        json_close(j, '}');
    }
    json_close(j, ']');
}

static void put_figures(json *j, const step_result *r) {
    json_number(j, "ms", r->ms);
    json_number(j, "least_ms", r->least_ms);
    json_number(j, "most_ms", r->most_ms);
    json_number(j, "row_ms", r->row_ms);
    json_number(j, "issue_ms", r->issue_ms);
    json_number(j, "images_per_second", r->images_per_second);
    json_number(j, "loss", r->loss);
    json_integer(j, "updates_before", r->settled);
    json_number(j, "start_ms", r->start_ms);
    json_numbers(j, "first_steps_ms", (size_t)r->first_count, r->first_ms);
    json_integer(j, "peak_bytes", (int64_t)r->peak_bytes);
    json_integer(j, "first_peak_bytes", (int64_t)r->first_peak_bytes);
    json_integer(j, "static_bytes", (int64_t)r->bytes.static_bytes);
    json_integer(j, "buffer_bytes", (int64_t)r->bytes.buffer_bytes);
    json_integer(j, "planned_peak_bytes", (int64_t)r->bytes.planned_peak_bytes);
    json_integer(j, "library_bytes", (int64_t)r->bytes.library_bytes);
    json_integer(j, "saved_raw_bytes", (int64_t)r->saved_raw_bytes);
    json_integer(j, "saved_stored_bytes", (int64_t)r->saved_stored_bytes);
    json_integer(j, "offloaded_bytes", (int64_t)r->offloaded_bytes);
    json_integer(j, "recomputed_bytes", (int64_t)r->recomputed_bytes);
    put_parts(j, r);
}

static void put_result(json *j, const step_result *r) {
    json_open(j, NULL, '{', 0);
    json_string(j, "variant", r->variant);
    json_string(j, "dtype", r->numbers);
    if (r->status != COMET_OK)
        json_string(j, "failed", r->why.text);
    else
        put_figures(j, r);
    json_close(j, '}');
}

void step_print_json(const step_plan *p, const step_result *results, int count) {
    json j = {.file = stdout};
    char text[512];
    json_open(&j, NULL, '{', 0);
    json_string(&j, "comet", comet_version_string());
    json_string(&j, "machine", machine_text(text, sizeof text));
    json_string(&j, "device", p->run.trainer.place.device.kind == COMET_CUDA ? "cuda" : "cpu");
    json_string(&j, "model", p->run.trainer.model);
    json_string(&j, "data", data_name(p));
    json_integer(&j, "batch", p->run.trainer.batch);
    json_integer(&j, "image", p->run.trainer.height);
    if (p->texts.forms)
        json_string(&j, "forms", p->texts.forms);
    if (p->run.trainer.memory_bytes)
        json_integer(&j, "memory_bytes", (int64_t)p->run.trainer.memory_bytes);
    json_open(&j, "results", '[', 0);
    for (int i = 0; i < count; i++)
        put_result(&j, &results[i]);
    json_close(&j, ']');
    json_close(&j, '}');
}
