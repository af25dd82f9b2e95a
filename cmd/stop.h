/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of programs that run for long. Ctrl-C: the first asks to stop, the second ends the process. */
#ifndef COMET_CMD_STOP_H
#define COMET_CMD_STOP_H

#include <signal.h>

/* Not 0 once SIGINT or SIGTERM came. */
extern volatile sig_atomic_t stop_asked;

/* A process that is asked, too; 0: none. */
extern volatile sig_atomic_t stop_child;

void stop_on_signals(void);

/* In that process, instead: it leaves Ctrl-C to its parent, and ends with it. */
void stop_with_parent(void);

#endif
