/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of programs that run for long. Ctrl-C: the first asks to stop, the second ends the process. */
#ifndef COMET_CMD_STOP_H
#define COMET_CMD_STOP_H

#include <signal.h>

/* Not 0 once SIGINT, SIGTERM or SIGHUP came: its number. */
extern volatile sig_atomic_t stop_asked;

/* The exit code of what was stopped, as shells count: 128 and the signal's number. */
int stop_code(void);

/* A process that is asked, too; 0: none. */
extern volatile sig_atomic_t stop_child;

void stop_on_signals(void);

/* In that process, instead: it leaves Ctrl-C and a terminal that went away to its parent, and ends with it. */
void stop_with_parent(void);

#endif
