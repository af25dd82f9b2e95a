/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much memory a training takes, measured where it trains: of a CPU what is resident, as the system says; of a GPU
 * what its driver says is taken, by whoever, so that nobody else should use it meanwhile. What was taken before is not
 * counted, nor is a GPU's context.
 */
#ifndef COMET_CMD_MEMORY_MARK_H
#define COMET_CMD_MEMORY_MARK_H

#include "cmd/common/measure.h"
#include "train/backend/backend.h"

typedef struct memory_mark {
    comet_place place;
    resident_mark resident;
    size_t used, most, total; /* of a GPU, in all: when it began, since then, and what it has */
} memory_mark;

/* Begins. On a GPU each one of a process begins with what was taken when the first did. */
void memory_begin(memory_mark *mark, const comet_place *place);

/* A GPU's driver keeps no high-water mark: to be called when the most may be taken. */
void memory_look(memory_mark *mark);

/* The most so far, as far as somebody has looked. 0: not known. */
size_t memory_peak(const memory_mark *mark);

/* A peak of its own from here on; what is taken now is not taken off. */
void memory_again(memory_mark *mark);

#endif
