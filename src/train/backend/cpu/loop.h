/* SPDX-License-Identifier: Apache-2.0 */
/* The library's loops, by the name that the kernels use. */
#ifndef COMET_TRAIN_CPU_LOOP_H
#define COMET_TRAIN_CPU_LOOP_H

#include "base/loop.h"

#endif
