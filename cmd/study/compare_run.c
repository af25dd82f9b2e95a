/* SPDX-License-Identifier: Apache-2.0 */
/* Runs in processes of their own: each has its own peak of memory, and takes no other with it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/stop.h"
#include "cmd/study/compare.h"
#include "cmd/train/train_options.h"
#include "cmd/train/train_progress.h"

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
    int done, all; /* of those that were not finished before */
    double start;  /* of the first of these */
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
    w.progress.runs_before = at->done;
    w.progress.runs = at->all;
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

static void run_apart(const compare_plan *plan, comet_run_options *run, const place *at, compare_state *state,
                      record *r) {
    int ends[2];
    fflush(NULL); /* what is buffered would come twice */
    if (pipe(ends) != 0) {
        fail_record(r, variant_of(plan, at), run->trainer.seed, strerror(errno));
        return;
    }
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        compare_state_leave(state);
        stop_with_parent();
        run_here(plan, run, at, ends[1]);
    }
    close(ends[1]);
    stop_child = child > 0 ? (sig_atomic_t)child : 0;
    if (child > 0 && stop_asked)
        kill(child, SIGTERM); /* asked before the handler knew of it */
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

static int run_one(const compare_plan *plan, const place *at, compare_results *results) {
    comet_run_options run = plan->run;
    record *r = &results->records[at->index];
    if (plan->apply(plan, variant_of(plan, at), &run) != DONE)
        return MISUSED;
    run.trainer.seed += (uint64_t)(at->index % plan->seeds);
    run_apart(plan, &run, at, &results->state, r);
    if (r->figures.status == COMET_OK)
        compare_state_add(&results->state, at->index, r);
    return DONE;
}

/* Behind the last run that there is, nothing is shown; before it, what is missing. */
static void close_gaps(const compare_plan *plan, compare_results *results, int count) {
    for (place at = {.index = count}; at.index-- > 0;) {
        record *r = &results->records[at.index];
        if (r->figures.name[0] && results->count == 0)
            results->count = at.index + 1;
        else if (!r->figures.name[0] && results->count > 0)
            fail_record(r, variant_of(plan, &at), plan->run.trainer.seed + (uint64_t)(at.index % plan->seeds),
                        "not run");
    }
}

int compare_finished(const compare_results *results) {
    return results->count - compare_failures(results);
}

static int run_all(const compare_plan *plan, compare_results *results, int count) {
    int answer = DONE;
    stop_on_signals();
    place at = {.count = count, .all = count - results->state.kept, .start = clock_seconds()};
    for (; at.index < count && !stop_asked && answer == DONE; at.index++)
        if (!results->records[at.index].figures.name[0]) {
            answer = run_one(plan, &at, results);
            at.done++;
        }
    close_gaps(plan, results, count);
    if (answer != DONE || !stop_asked || compare_finished(results) == count)
        return answer;
    note("stopped: %d of %d runs are finished%s", compare_finished(results), count,
         results->state.kept ? "; the same command with --resume goes on with the others" : "");
    return stop_code();
}

int compare_run(const compare_plan *plan, compare_results *results) {
    int count = plan->variant_count * plan->seeds;
    compare_state_plan state = plan->state;
    state.runs = count;
    *results = (compare_results){.records = calloc((size_t)count, sizeof(record)), .per_variant = plan->seeds};
    results->state.file = -1;
    if (!results->records)
        return fail_memory();
    int answer = compare_state_open(&results->state, &state, results->records);
    if (answer == DONE)
        return run_all(plan, results, count);
    close_gaps(plan, results, count); /* what was read is freed */
    return answer;
}

void compare_results_free(compare_results *results) {
    for (int i = 0; i < results->count; i++)
        record_free(&results->records[i]);
    free(results->records);
    if (results->records)
        compare_state_close(&results->state, 0);
    *results = (compare_results){0};
}
