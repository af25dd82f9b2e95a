/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that --threads asks for, and how those of OpenMP wait. */
#ifndef COMET_CMD_WORKERS_H
#define COMET_CMD_WORKERS_H

#include "comet/threads.h"

/* `text` is the option's value; NULL or 0: one thread for each usable core. */
int workers_new(const char *text, comet_threads **threads);

/*
 * Idle threads of OpenMP spin, and take the cores from the loader's threads and from other programs; that they shall
 * not must be in the environment before the program starts. So it starts itself once more, unless the user has decided.
 * `argv`: that of main.
 */
void openmp_wait_passively(char **argv);

#endif
