/* SPDX-License-Identifier: Apache-2.0 */
/* Little-endian fields of file formats. */
#ifndef COMET_CMD_BYTES_H
#define COMET_CMD_BYTES_H

#include <stdint.h>

static inline uint16_t get_u16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}

static inline uint32_t get_u32(const uint8_t *p) {
    return (uint32_t)get_u16(p) | (uint32_t)get_u16(p + 2) << 16;
}

static inline uint64_t get_u64(const uint8_t *p) {
    return (uint64_t)get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

/* Write `value` and return the place behind it. */
static inline uint8_t *put_u16(uint8_t *p, uint64_t value) {
    p[0] = (uint8_t)value;
    p[1] = (uint8_t)(value >> 8);
    return p + 2;
}

static inline uint8_t *put_u32(uint8_t *p, uint64_t value) {
    return put_u16(put_u16(p, value), value >> 16);
}

static inline uint8_t *put_u64(uint8_t *p, uint64_t value) {
    return put_u32(put_u32(p, value), value >> 32);
}

#endif
