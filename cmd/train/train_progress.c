/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/common/measure.h"
#include "cmd/common/message.h"
#include "cmd/common/text.h"

enum { BAR_WIDTH = 20, LINE_BYTES = 400 };
static const double line_every = 5.0, bar_every = 0.1; /* seconds */
static const double slow_loader = 0.1;                 /* part of the time that is waited: worth a word */

void train_progress_begin(train_progress *p, const char *label, const memory_mark *mark, int quiet) {
    double now = clock_seconds();
    *p = (train_progress){.silent = quiet,
                          .terminal = isatty(STDERR_FILENO),
                          .label = label,
                          .mark = mark,
                          .runs = 1,
                          .first_start = now,
                          .start = now,
                          .last = now,
                          .now = now,
                          .loss = {.keep = 0.98},
                          .accuracy = {.keep = 0.98},
                          .rate = {.keep = 0.9},
                          .wait = {.keep = 0.9}};
}

void train_progress_clear(train_progress *p) {
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = 0;
}

/* ---- how long it will take ---- */

/* An evaluated image in those that are trained on. Until one was, a third: forward without backward. */
static double cost_of_evaluation(const train_progress *p, const comet_run_event *event) {
    if (event->evaluated == 0 || p->trained == 0 || p->train_seconds <= 0)
        return 1.0 / 3;
    return p->evaluate_seconds / (double)event->evaluated / (p->train_seconds / (double)p->trained);
}

/* As this run goes so will the others. */
static double seconds_left(const train_progress *p, const comet_run_event *event) {
    const int64_t steps = event->step - p->first_step;
    const double cost = cost_of_evaluation(p, event), images = steps > 0 ? (double)p->trained / (double)steps : 1;
    const double done = (double)p->trained + cost * (double)event->evaluated,
                 left = images * (double)(event->steps - event->step) + cost * (double)event->to_evaluate;
    const double runs = p->runs_before + (done + left > 0 ? done / (done + left) : 0);
    return runs > 0 ? (p->now - p->first_start) * (p->runs - runs) / runs : 0;
}

/* ---- lines ---- */

static int put_place(const train_progress *p, const comet_run_event *event, char *text) {
    if (event->kind == COMET_RUN_EVALUATING)
        return snprintf(text, LINE_BYTES, "%sevaluating %lld", p->label, (long long)event->samples);
    return snprintf(text, LINE_BYTES, "%s%lld/%lld", p->label, (long long)event->step, (long long)event->steps);
}

/* Where the loader is too slow that is worth more than what is saved, which changes little: "waits 45%". */
static void put_saved_short(const train_progress *p, const comet_run_event *event, char *text, size_t room) {
    char raw[16], stored[16];
    const double wait = comet_running_mean_value(&p->wait);
    if (wait >= slow_loader && event->kind == COMET_RUN_STEP)
        snprintf(text, room, "waits %.0f%%", 100 * wait);
    else
        snprintf(text, room, "%s>%s", text_size_short(p->raw, raw, sizeof raw),
                 text_size_short(p->stored, stored, sizeof stored));
}

/* For a terminal: no more than 79 characters behind the label, up to a million steps. */
static void format_short(const train_progress *p, const comet_run_event *event, char *text) {
    char left[24], saved[32], peak[16];
    const int used = put_place(p, event, text), evaluates = event->kind == COMET_RUN_EVALUATING;
    put_saved_short(p, event, saved, sizeof saved);
    const size_t resident = memory_peak(p->mark);
    if (resident)
        text_size_short(resident, peak, sizeof peak);
    else
        snprintf(peak, sizeof peak, "?");
    snprintf(text + used, (size_t)(LINE_BYTES - used), " loss %.3f acc %.1f%% %.0f img/s %s peak %s left %s",
             evaluates ? event->loss : comet_running_mean_value(&p->loss),
             evaluates ? event->top1 : comet_running_mean_value(&p->accuracy), comet_running_mean_value(&p->rate),
             saved, peak, text_clock(seconds_left(p, event), left, sizeof left));
}

static void format(const train_progress *p, const comet_run_event *event, char *text) {
    char left[32], raw[32], stored[32], peak[32];
    const int evaluates = event->kind == COMET_RUN_EVALUATING;
    int used = snprintf(text, LINE_BYTES, "%sepoch %u, step %lld/%lld, ", p->label, event->epoch + 1,
                        (long long)event->step, (long long)event->steps);
    if (evaluates)
        used +=
            snprintf(text + used, (size_t)(LINE_BYTES - used), "evaluating image %lld, ", (long long)event->samples);
    snprintf(text + used, (size_t)(LINE_BYTES - used),
             "%s left, loss %.4f, accuracy %.1f %%, %.0f images/s, %.0f %% of it waiting for data, saved %s -> %s, "
             "peak %s",
             text_duration(seconds_left(p, event), left, sizeof left),
             evaluates ? event->loss : comet_running_mean_value(&p->loss),
             evaluates ? event->top1 : comet_running_mean_value(&p->accuracy), comet_running_mean_value(&p->rate),
             100 * comet_running_mean_value(&p->wait), text_size(p->raw, raw, sizeof raw),
             text_size(p->stored, stored, sizeof stored), text_measured(memory_peak(p->mark), peak, sizeof peak));
}

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* A line as long as the terminal is wide would scroll it at every step. */
static void draw_line(train_progress *p, const comet_run_event *event, const char *text) {
    const int room = terminal_columns() - 1, width = room - (int)strlen(text) - 3;
    char bar[BAR_WIDTH + 4] = "";
    if (width >= BAR_WIDTH / 2 && event->steps > 0) {
        const int length = width < BAR_WIDTH ? width : BAR_WIDTH, full = (int)(event->step * length / event->steps);
        memset(bar + 1, '.', (size_t)length);
        memset(bar + 1, '#', (size_t)full);
        bar[0] = '[';
        memcpy(bar + 1 + length, "] ", 3);
    }
    fprintf(stderr, "\r\033[K%s%.*s", bar, room > 0 ? room : 0, text);
    p->drawn = 1;
}

static void tell(train_progress *p, const comet_run_event *event) {
    char text[LINE_BYTES];
    const int changes = p->terminal && event->kind != p->told;
    p->told = event->kind;
    if (p->silent || (!changes && p->now - p->last < (p->terminal ? bar_every : line_every)))
        return;
    p->last = p->now;
    if (!p->terminal) {
        format(p, event, text);
        note("%s", text);
        return;
    }
    format_short(p, event, text);
    draw_line(p, event, text);
}

/* ---- what is told ---- */

static void add_step(train_progress *p, const comet_run_event *event) {
    if (!event->result.skipped) {
        comet_running_mean_add(&p->loss, event->result.loss);
        comet_running_mean_add(&p->accuracy, 100.0 * event->result.top1 / (double)event->images);
    }
    comet_running_mean_add(&p->rate, event->images_per_second);
    comet_running_mean_add(&p->wait, event->step_ms > 0 ? event->wait_ms / event->step_ms : 0);
    p->raw = event->result.saved_raw_bytes;
    p->stored = event->result.saved_stored_bytes;
    p->trained += event->images;
    p->train_seconds += event->step_ms / 1e3;
}

void train_progress_event(train_progress *p, const comet_run_event *event) {
    const double before = p->now;
    p->now = clock_seconds();
    if (event->kind == COMET_RUN_STARTED) {
        p->first_step = event->step;
        if (p->runs_before == 0)
            p->first_start = p->now;
    } else if (event->kind == COMET_RUN_STEP) {
        add_step(p, event);
        tell(p, event);
    } else if (event->kind == COMET_RUN_EVALUATING || event->kind == COMET_RUN_EVALUATED) {
        p->evaluate_seconds += p->now - before;
        if (event->kind == COMET_RUN_EVALUATING)
            tell(p, event);
    } else if (event->kind == COMET_RUN_NOTE) {
        train_progress_clear(p);
        note("%s%s", p->label, event->text);
    }
}
