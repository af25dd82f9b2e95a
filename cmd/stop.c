/* SPDX-License-Identifier: Apache-2.0 */
#include "stop.h"

#include <stddef.h>

volatile sig_atomic_t stop_asked;

static void ask(int number) {
    (void)number;
    stop_asked = 1;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
}

void stop_on_signals(void) {
    signal(SIGXFSZ, SIG_IGN); /* a file that must not grow any more is an error of write, and has a line */
    static const int numbers[] = {SIGINT, SIGTERM};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {0};
        sigaction(numbers[i], NULL, &action);
        if (action.sa_handler == SIG_IGN)
            continue; /* nohup */
        action.sa_handler = ask;
        action.sa_flags = SA_RESTART;
        sigaction(numbers[i], &action, NULL);
    }
}
