/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the *_INIT macros are written, so that one text with the names of the fields serves C and C++17:
 *
 *     #define COMET_X_INIT COMET_INIT(comet_x, COMET_FIELD(level) = 3, COMET_FIELD(rate) = 0.5)
 *     comet_x x = COMET_X_INIT;
 *
 * `size` is that of the struct, fields that are not named are zero. In C the macros are initializers (constant ones),
 * which a cast makes values: x = (comet_x)COMET_X_INIT. In C++ they are values.
 */
#ifndef COMET_INIT_H
#define COMET_INIT_H

/* COMET_INIT_ZERO has the size alone: for structs that the library fills, and for options that are zero. */
#ifdef __cplusplus
#define COMET_FIELD(name) comet_made.name
#define COMET_INIT(type, ...)                                                                                          \
    ([]() -> type {                                                                                                    \
        type comet_made = {};                                                                                          \
        comet_made.size = sizeof(type);                                                                                \
        __VA_ARGS__;                                                                                                   \
        return comet_made;                                                                                             \
    }())
#define COMET_INIT_ZERO(type) COMET_INIT(type, (void)0)
#else
#define COMET_FIELD(name) .name
#define COMET_INIT(type, ...)                                                                                          \
    { .size = sizeof(type), __VA_ARGS__ }
#define COMET_INIT_ZERO(type)                                                                                          \
    { .size = sizeof(type) }
#endif

#endif
