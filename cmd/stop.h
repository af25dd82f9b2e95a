/* SPDX-License-Identifier: Apache-2.0 */
/* Signals of programs that run for long. Ctrl-C: the first asks to stop, the second ends the process. */
#ifndef COMET_CMD_STOP_H
#define COMET_CMD_STOP_H

#include <signal.h>

/* Not 0 once SIGINT or SIGTERM came. */
extern volatile sig_atomic_t stop_asked;

void stop_on_signals(void);

#endif
