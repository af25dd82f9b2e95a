/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in processes of their own: each has its own peak of memory, and takes no other with it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "command.h"
#include "compare.h"
#include "message.h"
#include "stop.h"
#include "train_control.h"
#include "train_progress.h"

/* ---- in the child ---- */

typedef struct watch {
    record record;
    train_progress progress;
} watch;

static void observe(void *context, const comet_run_event *event) {
    watch *w = context;
    record_event(&w->record, event);
    train_progress_event(&w->progress, event);
}

/* Where each run is, of all. */
typedef struct place {
    int index, count;
    double start; /* of the first */
} place;

static const char *variant_of(const compare_plan *plan, const place *at) {
    return plan->variants[at->index / plan->seeds];
}

static comet_status find_batch(const compare_plan *plan, comet_run_options *run, comet_message *message) {
    if (!plan->largest)
        return COMET_OK;
    return comet_run_largest_batch(run, run->trainer.batch, NULL, &run->trainer.batch, message);
}

/* The whole life of the child. */
static void run_here(const compare_plan *plan, comet_run_options *run, const place *at, int file) {
    const char *variant = variant_of(plan, at);
    watch w = {0};
    char label[RECORD_NAME + 48];
    comet_run_result result = {0};
    comet_message message = {.text = ""};
    snprintf(label, sizeof label, "%.60s, seed %llu (%d of %d): ", variant, (unsigned long long)run->trainer.seed,
             at->index + 1, at->count);
    record_begin(&w.record, variant, run);
    comet_status status = find_batch(plan, run, &message);
    w.record.figures.batch = run->trainer.batch;
    train_progress_begin(&w.progress, label, &w.record.mark, plan->quiet);
    w.progress.runs_before = at->index;
    w.progress.runs = at->count;
    w.progress.first_start = at->start;
    run->observe = observe;
    run->context = &w;
    run->stop = &stop_asked;
    if (status == COMET_OK)
        status = comet_run(run, NULL, &result, &message);
    if (status == COMET_OK && result.stopped)
        status = comet_message_set(&message, COMET_ERROR_IO, "stopped");
    record_end(&w.record, status, &result, &message);
    train_progress_clear(&w.progress);
    _exit(record_write(&w.record, file) ? DONE : FAILED);
}

/* ---- in the parent ---- */

static void fail_record(record *r, const char *variant, uint64_t seed, const char *why) {
    record_free(r);
    snprintf(r->figures.name, sizeof r->figures.name, "%s", variant);
    r->figures.seed = seed;
    r->figures.status = COMET_ERROR_IO;
    snprintf(r->figures.why.text, sizeof r->figures.why.text, "%s", why);
}

static void collect(record *r, const char *variant, uint64_t seed, pid_t child, int file) {
    int whole = record_read(r, file), how = 0;
    char why[96];
    while (waitpid(child, &how, 0) < 0 && errno == EINTR)
        continue;
    if (whole)
        return;
    if (WIFSIGNALED(how))
        snprintf(why, sizeof why, "ended by signal %d (%s)", WTERMSIG(how), strsignal(WTERMSIG(how)));
    else
        snprintf(why, sizeof why, "ended with code %d before it had a result", WEXITSTATUS(how));
    fail_record(r, variant, seed, why);
}

static void run_apart(const compare_plan *plan, comet_run_options *run, const place *at, record *r) {
    int ends[2];
    fflush(NULL); /* what is buffered would come twice */
    if (pipe(ends) != 0) {
        fail_record(r, variant_of(plan, at), run->trainer.seed, strerror(errno));
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        stop_with_parent();
        run_here(plan, run, at, ends[1]);
    }
    close(ends[1]);
    stop_child = child > 0 ? (sig_atomic_t)child : 0;
    if (child > 0)
        collect(r, variant_of(plan, at), run->trainer.seed, child, ends[0]);
    else
        fail_record(r, variant_of(plan, at), run->trainer.seed, strerror(errno));
    stop_child = 0;
    close(ends[0]);
    if (r->figures.status != COMET_OK)
        note("%s, seed %llu: %s", r->figures.name, (unsigned long long)r->figures.seed, r->figures.why.text);
}

int compare_form(const compare_plan *plan, const char *variant, comet_run_options *run) {
    return train_control_read(&plan->texts, variant, 1, &run->trainer);
}

int compare_run(const compare_plan *plan, compare_results *results) {
    int count = plan->variant_count * plan->seeds;
    *results = (compare_results){.records = calloc((size_t)count, sizeof(record)), .per_variant = plan->seeds};
    if (!results->records)
        return fail_memory();
    stop_on_signals();
    place at = {.count = count, .start = clock_seconds()};
    for (; at.index < count && !stop_asked; at.index++) {
        comet_run_options run = plan->run;
        if (plan->apply(plan, variant_of(plan, &at), &run) != DONE)
            return MISUSED;
        run.trainer.seed += (uint64_t)(at.index % plan->seeds);
        run_apart(plan, &run, &at, &results->records[at.index]);
        results->count++;
    }
    return stop_asked ? fail("stopped after %d of %d runs", results->count, count) : DONE;
}

void compare_results_free(compare_results *results) {
    for (int i = 0; i < results->count; i++)
        record_free(&results->records[i]);
    free(results->records);
    *results = (compare_results){0};
}
