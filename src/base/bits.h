/* SPDX-License-Identifier: Apache-2.0 */
/* Bit patterns, unaligned little-endian access and small integer helpers. */
#ifndef COMET_BASE_BITS_H
#define COMET_BASE_BITS_H

#include <stdint.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Comet needs a little-endian machine"
#endif

#ifdef __CUDACC__
#define COMET_HOST_DEVICE __host__ __device__
#else
#define COMET_HOST_DEVICE
#endif

COMET_HOST_DEVICE static inline uint32_t comet_bits_of(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

COMET_HOST_DEVICE static inline float comet_float_of(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline uint16_t comet_read_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t comet_read_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t comet_read_u64(const void *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void comet_write_u16(void *p, uint16_t v) {
    memcpy(p, &v, sizeof v);
}

static inline void comet_write_u32(void *p, uint32_t v) {
    memcpy(p, &v, sizeof v);
}

static inline void comet_write_u64(void *p, uint64_t v) {
    memcpy(p, &v, sizeof v);
}

/* The least n with v < 2^n. */
static inline unsigned comet_bit_width(uint32_t v) {
    return v ? 32u - (unsigned)__builtin_clz(v) : 0u;
}

static inline int64_t comet_div_up(int64_t a, int64_t b) {
    return a / b + (a % b != 0);
}

static inline int64_t comet_min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline size_t comet_align_up(size_t bytes, size_t alignment) {
    return (bytes + alignment - 1) & ~(alignment - 1);
}

#endif
