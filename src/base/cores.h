/* SPDX-License-Identifier: Apache-2.0 */
#ifndef COMET_BASE_CORES_H
#define COMET_BASE_CORES_H

/* The cores that this thread may run on (taskset, cpusets and schedulers of clusters restrict them); at least 1. */
unsigned comet_usable_cores(void);

#endif
