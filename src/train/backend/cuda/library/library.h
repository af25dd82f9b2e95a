/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared libraries that are opened at run time: a program that does not train on a GPU needs none of them.
 *
 *     typedef struct functions {
 *         size_t (*version)(void);
 *         ...
 *     } functions;
 *     static const char *const files[] = {"libx.so.9", NULL};
 *     static const comet_library_symbol symbols[] = {COMET_LIBRARY_SYMBOL(functions, version, "xGetVersion"), ...};
 *     static const comet_library_wanted wanted = {.product = "X 9", .files = files, .symbols = symbols, .count = ...};
 *     status = comet_library_open(loader, &wanted, &table, &library, message);
 */
#ifndef COMET_TRAIN_CUDA_LIBRARY_H
#define COMET_TRAIN_CUDA_LIBRARY_H

#include <stddef.h>

#include "train/backend/cuda.h"

/* A function, and where its address goes in a struct of pointers to functions. */
typedef struct comet_library_symbol {
    const char *name;
    size_t offset;
} comet_library_symbol;

#define COMET_LIBRARY_SYMBOL(table, member, name)                                                                      \
    { name, offsetof(table, member) }

typedef struct comet_library_wanted {
    const char *product;                 /* "cuDNN 9": for messages */
    const char *const *files;            /* the first that is there is taken; NULL ends the list */
    const comet_library_symbol *symbols; /* `count` of them, all needed */
    size_t count;
} comet_library_wanted;

typedef struct comet_library {
    const comet_library_loader *loader;
    void *handle;     /* NULL: not open */
    const char *file; /* of `wanted->files` */
} comet_library;

/* The system's: dlopen. */
extern const comet_library_loader comet_library_system;

/*
 * Opens the library and fills `functions`, the struct that the symbols' offsets are in. loader NULL: the system's.
 * COMET_ERROR_UNSUPPORTED: it is missing, or a function is; the message (may be NULL) says what, and what to do, and so
 * does comet_last_error. `library` is closed then.
 */
comet_status comet_library_open(const comet_library_loader *loader, const comet_library_wanted *wanted, void *functions,
                                comet_library *library, comet_message *message);

/* Also of one that is not open. */
void comet_library_close(comet_library *library);

/* COMET_ERROR_UNSUPPORTED with a line: in the message, which may be NULL, and for comet_last_error. */
comet_status comet_library_refuse(comet_message *message, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
