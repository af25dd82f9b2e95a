/* SPDX-License-Identifier: Apache-2.0 */
/* All of libcomet. */
#ifndef COMET_COMET_H
#define COMET_COMET_H

#include "comet/allocator.h"
#include "comet/arena.h"
#include "comet/codec.h"
#include "comet/control.h"
#include "comet/control_methods.h"
#include "comet/cuda.h"
#include "comet/cuda_norm.h"
#include "comet/cuda_use_stats.h"
#include "comet/device_store.h"
#include "comet/error_model.h"
#include "comet/export.h"
#include "comet/indices.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/store.h"
#include "comet/tensor.h"
#include "comet/threads.h"
#include "comet/use_stats.h"
#include "comet/version.h"

#endif
