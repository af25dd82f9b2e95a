/* SPDX-License-Identifier: Apache-2.0 */
/* Progress with the time left. */
#include "cmd/common/progress.h"

#include <stdio.h>
#include <unistd.h>

#include "cmd/common/measure.h"
#include "cmd/common/text.h"

enum { BAR_WIDTH = 30 };
static const double line_every = 5.0, bar_every = 0.1; /* seconds */

void progress_start(progress *p, size_t total, int quiet) {
    double now = clock_seconds();
    *p = (progress){.silent = quiet, .terminal = isatty(STDERR_FILENO), .total = total, .start = now, .last = now};
}

static void draw(progress *p, const char *what, double now) {
    char left[32] = "?", name[48];
    if (p->done)
        text_duration((now - p->start) / (double)p->done * (double)(p->total - p->done), left, sizeof left);
    text_printable(what, name, sizeof name);
    if (!p->terminal) {
        fprintf(stderr, "comet: %zu of %zu done, %s left\n", p->done, p->total, left);
        return;
    }
    int full = p->total ? (int)(p->done * BAR_WIDTH / p->total) : 0;
    fprintf(stderr, "\r\033[K[");
    for (int i = 0; i < BAR_WIDTH; i++)
        fputc(i < full ? '#' : '.', stderr);
    fprintf(stderr, "] %zu/%zu, %s left, %s", p->done, p->total, left, name);
    p->drawn = 1;
}

void progress_step(progress *p, const char *what) {
    double now = clock_seconds();
    p->done++;
    if (p->silent || p->done == p->total || now - p->last < (p->terminal ? bar_every : line_every))
        return;
    draw(p, what, now);
    p->last = now;
}

void progress_clear(progress *p) {
    if (p->drawn)
        fprintf(stderr, "\r\033[K");
    p->drawn = 0;
}
