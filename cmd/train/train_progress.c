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

void train_progress_begin(train_progress *p, const char *label, const resident_mark *mark, int quiet) {
    double now = clock_seconds();
    *p = (train_progress){.silent = quiet,
                          .terminal = isatty(STDERR_FILENO),
                          .label = label,
                          .mark = mark,
                          .runs = 1,
                          .first_start = now,
                          .start = now,
                          .last = now,
                          .loss = {.keep = 0.98},
                          .accuracy = {.keep = 0.98},
                          .rate = {.keep = 0.9}};
}

void train_progress_clear(train_progress *p) {
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = 0;
}

/* As this run goes so will the others. */
static double seconds_left(const train_progress *p, const comet_run_event *event, double now) {
    double part = (double)(event->step - p->first_step) / (double)(event->steps - p->first_step);
    double done = p->runs_before + part;
    return (now - p->first_start) * (p->runs - done) / done;
}

static void format(const train_progress *p, const comet_run_event *event, double now, char *text) {
    char left[32], raw[32], stored[32], peak[32];
    const comet_trainer_result *r = &event->result;
    snprintf(text, LINE_BYTES,
             "%sepoch %u, step %lld/%lld, %s left, loss %.4f, accuracy %.1f %%, %.0f images/s, saved %s -> %s, peak %s",
             p->label, event->epoch + 1, (long long)event->step, (long long)event->steps,
             text_duration(seconds_left(p, event, now), left, sizeof left), comet_running_mean_value(&p->loss),
             comet_running_mean_value(&p->accuracy), comet_running_mean_value(&p->rate),
             text_size(r->saved_raw_bytes, raw, sizeof raw), text_size(r->saved_stored_bytes, stored, sizeof stored),
             text_size(resident_peak(p->mark), peak, sizeof peak));
}

static int terminal_columns(void) {
    struct winsize size;
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

/* A line longer than the terminal is wide would scroll it at every step. */
static void draw_bar(train_progress *p, const comet_run_event *event, const char *text) {
    char bar[BAR_WIDTH + 1];
    int full = (int)(event->step * BAR_WIDTH / event->steps), room = terminal_columns() - BAR_WIDTH - 4;
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', (size_t)full);
    bar[BAR_WIDTH] = '\0';
    fprintf(stderr, "\r\033[K[%s] %.*s", bar, room > 0 ? room : 0, text);
    p->drawn = 1;
}

static void add_step(train_progress *p, const comet_run_event *event) {
    if (!event->result.skipped) {
        comet_running_mean_add(&p->loss, event->result.loss);
        comet_running_mean_add(&p->accuracy, 100.0 * event->result.top1 / (double)event->images);
    }
    comet_running_mean_add(&p->rate, event->images_per_second);
    double now = clock_seconds();
    if (p->silent || now - p->last < (p->terminal ? bar_every : line_every))
        return;
    char text[LINE_BYTES];
    format(p, event, now, text);
    if (p->terminal)
        draw_bar(p, event, text);
    else
        note("%s", text);
    p->last = now;
}

void train_progress_event(train_progress *p, const comet_run_event *event) {
    if (event->kind == COMET_RUN_STARTED) {
        p->first_step = event->step;
        if (p->runs_before == 0)
            p->first_start = clock_seconds();
    } else if (event->kind == COMET_RUN_STEP) {
        add_step(p, event);
    } else if (event->kind == COMET_RUN_NOTE) {
        train_progress_clear(p);
        note("%s%s", p->label, event->text);
    }
}
