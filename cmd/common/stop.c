/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* sys/prctl.h */
#include "cmd/common/stop.h"

#include <stddef.h>
#include <sys/prctl.h>
#include <unistd.h>

volatile sig_atomic_t stop_asked, stop_child;

static const char asked_line[] = "\ncomet: stopping after this step; once more to end at once\n";

/* A terminal that goes away, and a shell that ends, say so more than once: no reason to end before all is saved. */
static void ask(int number) {
    stop_asked = number;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN); /* who read our output may have ended first */
    if (stop_child)
        kill((pid_t)stop_child, SIGTERM);
    if (write(STDERR_FILENO, asked_line, sizeof asked_line - 1) < 0)
        return; /* nobody listens */
}

static void ask_silently(int number) {
    stop_asked = number;
}

static void on_signal(int number, void (*handler)(int)) {
    struct sigaction action = {0};
    sigaction(number, NULL, &action);
    if (action.sa_handler == SIG_IGN)
        return; /* nohup */
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, NULL);
}

void stop_on_signals(void) {
    signal(SIGXFSZ, SIG_IGN); /* a file that must not grow any more is an error of write, and has a line */
    on_signal(SIGINT, ask);
    on_signal(SIGTERM, ask);
    on_signal(SIGHUP, ask);
}

int stop_code(void) {
    return 128 + (int)stop_asked;
}

void stop_with_parent(void) {
    stop_child = 0;
    signal(SIGINT, SIG_IGN); /* a terminal sends it to both, */
    signal(SIGHUP, SIG_IGN); /* and this, too */
    on_signal(SIGTERM, ask_silently);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}
