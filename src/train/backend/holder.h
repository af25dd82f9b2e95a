/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A holder keeps what backward needs of forward. The step tells it what to hold, and later how it is used; it computes,
 * compresses, moves and restores as its backend does best. On a CPU that is the activation store with kernels before
 * and behind it, on a GPU fused kernels over an arena.
 *
 *     forward    hold            a value that is there
 *                hold_output     an op's output: the op is computed
 *                hold_norm       a batch norm's input, normalised: the norm is computed, and its output made
 *     backward   load            the value, as an operand
 *                load_rebuilt    what a norm and the ReLU or SiLU behind it made, as an operand
 *                norm_backward   the norm's backward, from its normalised input: whole, or part by part
 *                release
 *
 * What is held has a slot, a number below comet_holder_options.slots. Sizes are reported when they are known: at once
 * on the CPU, later on a GPU.
 */
#ifndef COMET_TRAIN_HOLDER_H
#define COMET_TRAIN_HOLDER_H

#include <stddef.h>
#include <stdint.h>

#include "comet/codec.h"
#include "comet/store.h"
#include "train/graph/graph.h"

typedef struct comet_backend comet_backend;
typedef struct comet_holder comet_holder;
typedef struct comet_op_call comet_op_call;

/* What is held, and how. */
typedef struct comet_held {
    int slot;
    const char *name;  /* of the layer: its account */
    comet_shape shape; /* of a sample */
    int samples;
    int parts; /* of the samples, each a stream of its own: what is loaded part by part need not be there as a whole */
    comet_store_form form; /* KEEP or CODEC */
    int offload;           /* to the file, or the host's memory, at once */
    comet_codec_params codec;
    /*
     * Of a backend with fused streams: where the stream lies in the plan's buffers, from its save to its release, and
     * how much room it has there. What does not fit is found out by the end of the step (comet_holder.settle).
     */
    void *memory;
    size_t capacity;
} comet_held;

/* What an operand is rebuilt into from a batch norm's normalised input. */
typedef enum comet_rebuild {
    COMET_REBUILD_NOTHING,
    COMET_REBUILD_NORM,
    COMET_REBUILD_RELU,
    COMET_REBUILD_SILU
} comet_rebuild;

/* A part that was just compressed, while the values that it was made of are still there. */
typedef struct comet_held_part {
    comet_holder *holder;
    const comet_held *held;
    int part;
    const comet_tensor *values;   /* in the backend's space, before compressing */
    const comet_codec_grid *grid; /* of a batch norm's input, of which u is held; else NULL */
    const comet_codec_record *result;
} comet_held_part;

/* Is told of each part that is compressed, and of each that is loaded, whose values it may change. */
typedef struct comet_holder_watch {
    comet_status (*held)(void *context, const comet_held_part *part);
    comet_status (*loaded)(void *context, int slot, int part, void *values);
    void *context;
} comet_holder_watch;

typedef struct comet_holder_options {
    int slots;
    size_t limit_bytes;          /* the most that it takes; 0: no limit */
    const char *spill_directory; /* NULL: none */
    uint64_t spill_limit_bytes;  /* 0: no limit */
    const comet_allocator *allocator;
} comet_holder_options;

typedef struct comet_held_report {
    size_t bytes; /* of all parts */
    double rms;   /* of the non-zeros, by a codec that says; 0: not known */
} comet_held_report;

typedef struct comet_holder_stats {
    size_t peak_bytes;      /* the most that it took so far */
    uint64_t spilled_bytes; /* in the file now */
    int64_t entries;        /* streams and arrays held now */
} comet_holder_stats;

/* COMET_ERROR_CAPACITY, COMET_ERROR_DISK_FULL: there was no room. A slot that could not be filled is empty. */
struct comet_holder {
    comet_backend *backend;
    const comet_holder_watch *watch; /* NULL: nobody looks. Set by the step before each run */

    /*
     * NULL, or: before each run the bounds of all slots, which hold where comet_held.codec has one and it is not 0.
     * They are read when the run's work is carried out.
     */
    comet_status (*bounds)(comet_holder *holder, const double *bounds);

    comet_status (*hold)(comet_holder *holder, const comet_held *held, const void *values);
    comet_status (*hold_output)(comet_holder *holder, const comet_held *held, const comet_op_call *call);
    /*
     * On the grid of its ReLU's threshold, if it has one. `output`, of a norm with a sum: its output is held, too; else
     * NULL. COMET_ERROR_DIVERGED: its statistics are not finite.
     */
    comet_status (*hold_norm)(comet_holder *holder, const comet_held *held, const comet_held *output,
                              const comet_op_call *call);

    comet_status (*load)(comet_holder *holder, const comet_held *held, void *values);
    /* `call`: the norm's, of which node, batch and side count. */
    comet_status (*load_rebuilt)(comet_holder *holder, const comet_held *held, const comet_op_call *call,
                                 comet_rebuild what, void *values);
    /*
     * call->x[0]: room for the whole, or for one part if by_parts; of fused streams dx's, used if somebody watches.
     * `held` NULL: the input is in call->x[0]. `output`: where the signs of a norm's output with a sum are held; NULL:
     * call->y, or a mask. Who is told of what was loaded finds the gradient behind the sum's ReLU in call->dadd.
     */
    comet_status (*norm_backward)(comet_holder *holder, const comet_held *held, const comet_held *output,
                                  const comet_op_call *call, int by_parts);
    /* Not during a run: for who watches. */
    comet_status (*load_part)(comet_holder *holder, const comet_held *held, int part, void *values);

    void (*release)(comet_holder *holder, int slot); /* an empty slot is allowed */
    /*
     * Of fused streams, what is offloaded: it must have left the place where it was held; it begins to come back into
     * `memory`, where `load` and the others find it.
     */
    comet_status (*gone)(comet_holder *holder, int slot);
    comet_status (*come_back)(comet_holder *holder, const comet_held *held, void *memory);
    /* Of fused streams: work that was recorded and is carried out again fills the slot as it did when it was issued. */
    void (*again)(comet_holder *holder, int slot);
    /*
     * NULL, or: the step's work is issued. Waits for it. COMET_ERROR_CAPACITY: a stream had no room, *refused is its
     * slot (and report() says how much it needs); COMET_ERROR_DIVERGED: a norm's input was not finite; else what went
     * wrong with a stream on the device. What the step made is not to be used then.
     */
    comet_status (*settle)(comet_holder *holder, int *refused);
    /* 1: the sizes of what was last held in the slot are known. */
    int (*report)(comet_holder *holder, int slot, comet_held_report *report);
    comet_holder_stats (*stats)(comet_holder *holder);
    void (*free)(comet_holder *holder);
};

/* NULL is allowed. */
void comet_holder_free(comet_holder *holder);

#endif
