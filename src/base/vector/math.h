/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the compiler can turn into vector code, the same on every instruction set, and in kernels. */
#ifndef COMET_BASE_VECTOR_MATH_H
#define COMET_BASE_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/bits.h"
#include "base/vector/loop.h"

/*
 * e^x, within 2 units in the last place for -87 <= x <= 88; beyond, as at these ends; NaN stays. (Cephes'
 * polynomial.)
 */
COMET_HOST_DEVICE COMET_INLINE float comet_expf(float x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: the sum's low bits are the nearest integer */
    x = x > 88.0f ? 88.0f : x;
    x = x < -87.0f ? -87.0f : x;
    float t = fmaf(x, 1.44269504f, magic), k = t - magic;
    float r = fmaf(k, -0.693145751953125f, x);
    r = fmaf(k, -1.42860677e-6f, r);
    float p = fmaf(r, 1.98756915e-4f, 1.39819995e-3f);
    p = fmaf(p, r, 8.33345191e-3f);
    p = fmaf(p, r, 4.16657959e-2f);
    p = fmaf(p, r, 1.66666655e-1f);
    p = fmaf(p, r, 5.00000012e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    bits = (bits + 127u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

COMET_HOST_DEVICE COMET_INLINE float comet_sigmoidf(float x) {
    return 1.0f / (1.0f + comet_expf(-x));
}

#endif
