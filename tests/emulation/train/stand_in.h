/* SPDX-License-Identifier: Apache-2.0 */
/* Libraries that the tests put in the place of cuDNN and cuBLASLt, and what tests may ask of them. */
#ifndef COMET_EMULATION_STAND_IN_H
#define COMET_EMULATION_STAND_IN_H

#include <stddef.h>
#include <stdint.h>

#include "train/backend/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens the stand-ins by the names of the files they stand in for; nothing else is there. */
const comet_library_loader *comet_stand_in_loader(void);

/* Everything that is set below, as it was when the program began. */
void comet_stand_in_reset(void);

/* From now on there is no file of this name, or it has no function of this name; NULL: all is there. */
void comet_stand_in_hide(const char *name);

/* How many libraries are open. */
int comet_stand_in_open_libraries(void);

/* ---- cuDNN: engines are those of cudnn_engines.cc ---- */

void comet_stand_in_cudnn_set_version(size_t version);
/* An engine's runs take so many milliseconds longer; -1: all engines'. */
void comet_stand_in_cudnn_slow(int64_t engine, double milliseconds);
/* An engine refuses, or its runs fail; -1: none. */
void comet_stand_in_cudnn_refuse(int64_t engine);
void comet_stand_in_cudnn_break(int64_t engine);
uint64_t comet_stand_in_cudnn_runs(void);     /* since the program began */
int64_t comet_stand_in_cudnn_last(void);      /* the engine that ran last */
int64_t comet_stand_in_cudnn_last_knob(void); /* and the value of its knob; -1: none */
int comet_stand_in_cudnn_descriptors(void);   /* that live */
int comet_stand_in_cudnn_handles(void);

/* ---- cuBLASLt: of 12 and 13 there is the same one ---- */

void comet_stand_in_cublaslt_set_version(size_t version);
void comet_stand_in_cublaslt_refuse(int on); /* 1: there is no algorithm for any product */
void comet_stand_in_cublaslt_break(int on);  /* 1: products fail */
uint64_t comet_stand_in_cublaslt_runs(void); /* since the program began */
int comet_stand_in_cublaslt_objects(void);   /* handles and descriptors that live */

/* ---- how a library is registered: a line in stand_in.c ---- */

typedef struct comet_stand_in_function {
    const char *name;
    void (*function)(void);
} comet_stand_in_function;

typedef struct comet_stand_in_library {
    const char *file;
    const comet_stand_in_function *functions;
    size_t count;
    void (*reset)(void); /* NULL: it has no settings */
} comet_stand_in_library;

extern const comet_stand_in_library comet_stand_in_cudnn, comet_stand_in_cublaslt_12, comet_stand_in_cublaslt_13;

#ifdef __cplusplus
}
#endif

#endif
