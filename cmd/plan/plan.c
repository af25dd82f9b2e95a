/* SPDX-License-Identifier: Apache-2.0 */
/* comet plan: what is asked of the trainer, sums over its answer, and the command. */
#include "cmd/plan/plan.h"

#include <stdio.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/train/forms_idle.h"

/* No larger batch is looked for. */
enum { LARGEST_BATCH = 1 << 16 };

static int said(comet_status status, const comet_message *message) {
    return status == COMET_ERROR_ARGUMENT ? misuse("%s", message->text) : fail("%s", message->text);
}

static int by_layer(const void *a, const void *b) {
    const comet_plan_entry *first = *(const comet_plan_entry *const *)a, *second = *(const comet_plan_entry *const *)b;
    if (first->node != second->node)
        return first->node < second->node ? -1 : 1;
    return (first->kind > second->kind) - (first->kind < second->kind);
}

static comet_status sort_entries(plan_case *c, comet_message *message) {
    const int count = comet_plan_entries(c->plan);
    c->entries = malloc(((size_t)count + 1) * sizeof *c->entries);
    if (!c->entries)
        return comet_message_memory(message);
    for (int i = 0; i < count; i++)
        c->entries[i] = comet_plan_get_entry(c->plan, i);
    qsort(c->entries, (size_t)count, sizeof *c->entries, by_layer);
    c->entry_count = count;
    return COMET_OK;
}

static comet_status ask(const comet_trainer_options *options, plan_case *c, comet_message *message) {
    comet_status status = comet_trainer_fit(options, NULL, &c->fit, &c->plan, &c->graph, &c->backend, message);
    return status == COMET_OK ? sort_entries(c, message) : status;
}

static void case_free(plan_case *c) {
    free(c->entries);
    comet_plan_free(c->plan);
    comet_backend_free(c->backend);
    comet_graph_free(c->graph);
    *c = (plan_case){0};
}

void plan_answer_free(plan_answer *answer) {
    case_free(&answer->shown);
    case_free(&answer->baseline);
}

static int ask_shown(const plan_request *r, plan_answer *answer) {
    comet_trainer_options options = r->trainer;
    comet_message message;
    comet_status status = ask(&options, &answer->shown, &message);
    answer->fits = status == COMET_OK;
    if (status == COMET_ERROR_CAPACITY) { /* then what it would be without the limit, and the least that would do */
        const size_t least = answer->shown.fit.least_bytes;
        options.memory_bytes = 0;
        status = ask(&options, &answer->shown, &message);
        answer->shown.fit.least_bytes = least;
    }
    return status == COMET_OK ? DONE : said(status, &message);
}

static int ask_largest(const plan_request *r, plan_answer *answer) {
    comet_message message;
    const comet_run_options run = {.trainer = r->trainer, .data = r->data};
    comet_status status =
        r->data ? comet_run_largest_within(&run, LARGEST_BATCH, NULL, &answer->largest_batch, &message)
                : comet_trainer_largest_batch(&r->trainer, LARGEST_BATCH, NULL, &answer->largest_batch, &message);
    return status == COMET_OK || status == COMET_ERROR_CAPACITY ? DONE : said(status, &message);
}

static int ask_baseline(const plan_request *r, plan_answer *answer) {
    comet_trainer_options options = r->trainer;
    comet_message message;
    options.codec = "none";
    options.forms = NULL;
    options.memory_bytes = 0;
    comet_status status = ask(&options, &answer->baseline, &message);
    return status == COMET_OK ? DONE : said(status, &message);
}

int plan_ask(const plan_request *r, plan_answer *answer) {
    forms_tell_idle(&r->trainer, forms_find_idle(&r->trainer));
    int result = ask_shown(r, answer);
    if (result == DONE && r->trainer.memory_bytes)
        result = ask_largest(r, answer);
    if (result == DONE && r->report)
        result = ask_baseline(r, answer);
    return result;
}

static void add_entry(plan_totals *t, const comet_plan_entry *e) {
    t->entries++;
    t->estimates += e->is_estimate != 0;
    if (e->form.form == COMET_FORM_RECOMPUTE)
        t->recomputed_bytes += e->raw_bytes;
    else if (e->form.offload)
        t->spilled_bytes += e->stored_bytes;
}

plan_totals plan_sum(const plan_request *r, const plan_case *c) {
    const comet_plan_bytes plan = comet_plan_get_bytes(c->plan, NULL);
    plan_totals t = {.static_bytes = c->fit.bytes.static_bytes,
                     .buffer_bytes = c->fit.bytes.buffer_bytes,
                     .library_bytes = c->fit.bytes.library_bytes,
                     .data_bytes = r->trainer.reserved_bytes,
                     .raw_bytes = plan.saved_raw_bytes,
                     .stored_bytes = plan.saved_stored_bytes};
    t.stream_bytes = c->fit.bytes.planned_peak_bytes - t.static_bytes - t.buffer_bytes;
    t.peak_bytes = c->fit.bytes.planned_peak_bytes + t.library_bytes + t.data_bytes;
    t.spilled_bytes = plan.store_bytes - t.stream_bytes; /* what the store has no room for under the limit */
    for (int i = 0; i < c->entry_count; i++)
        add_entry(&t, c->entries[i]);
    return t;
}

/* ---- the command ---- */

static int show(const plan_request *r, const plan_answer *answer) {
    if (r->json)
        plan_print_json(r, answer);
    else
        plan_print(r, answer);
    return r->report ? plan_write_report(r, answer) : DONE;
}

int command_plan(int argc, char **argv) {
    plan_request request = {0};
    plan_answer answer = {0};
    int result = plan_options_read(&request, argc, argv);
    if (result == DONE && request.help)
        fputs(plan_help, stdout);
    else if (result == DONE)
        result = plan_ask(&request, &answer);
    if (result == DONE && !request.help)
        result = show(&request, &answer);
    plan_answer_free(&answer);
    plan_request_free(&request);
    return result;
}
