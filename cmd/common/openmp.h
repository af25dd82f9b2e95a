/* SPDX-License-Identifier: Apache-2.0 */
/* How OpenMP's threads wait. */
#ifndef COMET_CMD_OPENMP_H
#define COMET_CMD_OPENMP_H

/*
 * Idle threads of OpenMP spin, and take the cores from the loader's threads and from other programs; that they shall not
 * must be in the environment before the program starts. So it starts itself once more, unless the user has decided.
 * `argv`: that of main.
 */
void openmp_wait_passively(char **argv);

#endif
