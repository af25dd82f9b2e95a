/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's vector types, with CUDA's alignment. For C too. */
#ifndef COMET_EMULATION_TYPES_H
#define COMET_EMULATION_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define EMULATION_MAKE(type, parameters, ...)                                                                          \
    static inline type make_##type parameters {                                                                        \
        return type{__VA_ARGS__};                                                                                      \
    }
#else
#define EMULATION_MAKE(type, parameters, ...)
#endif

#define EMULATION_VECTORS(base, name, align2, align4)                                                                  \
    typedef struct name##1 {                                                                                           \
        base x;                                                                                                        \
    }                                                                                                                  \
    name##1;                                                                                                           \
    typedef struct __attribute__((aligned(align2))) name##2 {                                                          \
        base x, y;                                                                                                     \
    }                                                                                                                  \
    name##2;                                                                                                           \
    typedef struct name##3 {                                                                                           \
        base x, y, z;                                                                                                  \
    }                                                                                                                  \
    name##3;                                                                                                           \
    typedef struct __attribute__((aligned(align4))) name##4 {                                                          \
        base x, y, z, w;                                                                                               \
    }                                                                                                                  \
    name##4;                                                                                                           \
    EMULATION_MAKE(name##1, (base x), x)                                                                               \
    EMULATION_MAKE(name##2, (base x, base y), x, y)                                                                    \
    EMULATION_MAKE(name##3, (base x, base y, base z), x, y, z)                                                         \
    EMULATION_MAKE(name##4, (base x, base y, base z, base w), x, y, z, w)

EMULATION_VECTORS(signed char, char, 2, 4)
EMULATION_VECTORS(unsigned char, uchar, 2, 4)
EMULATION_VECTORS(short, short, 4, 8)
EMULATION_VECTORS(unsigned short, ushort, 4, 8)
EMULATION_VECTORS(int, int, 8, 16)
EMULATION_VECTORS(unsigned int, uint, 8, 16)
EMULATION_VECTORS(long long, longlong, 16, 16)
EMULATION_VECTORS(unsigned long long, ulonglong, 16, 16)
EMULATION_VECTORS(float, float, 8, 16)
EMULATION_VECTORS(double, double, 16, 16)

typedef struct dim3 {
    unsigned int x, y, z;
#ifdef __cplusplus
    constexpr dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
#endif
} dim3;

#endif
