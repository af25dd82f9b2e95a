/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that --threads asks for. */
#ifndef COMET_CMD_WORKERS_H
#define COMET_CMD_WORKERS_H

#include "comet/threads.h"

/* `text` is the option's value; NULL or 0: one thread for each usable core. */
int workers_new(const char *text, comet_threads **threads);

#endif
