// SPDX-License-Identifier: Apache-2.0
// codec/simple/maps.h for C++, where a compiler may warn of initialisers that leave the rest 0.
#ifndef COMET_CODEC_CUDA_MAPS_CUH
#define COMET_CODEC_CUDA_MAPS_CUH

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"
#include "codec/simple/maps.h"
#pragma GCC diagnostic pop

#endif
