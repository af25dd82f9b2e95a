/* SPDX-License-Identifier: Apache-2.0 */
/* The library's functions for vector code, by the name that the kernels use. */
#ifndef COMET_TRAIN_CPU_MATH_H
#define COMET_TRAIN_CPU_MATH_H

#include "base/vector_math.h"

#endif
