/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for CUDA's header of this name: all that is emulated is in cuda_runtime.h. */
#include "cuda_runtime.h"
