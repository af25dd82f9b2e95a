/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parameters to and from .safetensors files with torchvision's names: what its state_dict holds, batch norms' batch
 * counts included. A checkpoint (train/checkpoint/checkpoint.h) is such a file with more in it, and can be read as one.
 */
#ifndef COMET_TRAIN_WEIGHTS_H
#define COMET_TRAIN_WEIGHTS_H

#include "data/files/safetensors.h"
#include "train/graph/graph.h"

/* Tensors whose names begin with this are Comet's own, not parameters. */
#define COMET_OWN_TENSOR "comet."

/*
 * Writes all parameters of a graph (comet_graph_parameter(g, 0)), values that are trained and running ones, as fp32.
 * `batches`: how many batches the running ones have seen. The file appears whole or not at all. COMET_ERROR_DIVERGED: a
 * value is infinite or NaN.
 */
comet_status comet_weights_write(const char *path, const comet_parameter *parameters, int count, int64_t batches,
                                 const comet_allocator *allocator, comet_message *message);

/* The same with texts about the weights in the file's metadata; their keys begin with "comet.". */
comet_status comet_weights_write_about(const char *path, const comet_parameter *parameters, int count, int64_t batches,
                                       const comet_safetensors_text *texts, size_t text_count,
                                       const comet_allocator *allocator, comet_message *message);

typedef enum comet_weights_fit {
    COMET_WEIGHTS_EXACT,   /* every parameter must be in the file, in its shape */
    COMET_WEIGHTS_FINETUNE /* but the last linear layer: missing or of another class count, it keeps its values */
} comet_weights_fit;

typedef struct comet_weights_report {
    int read;             /* parameters that came from the file */
    int converted;        /* of them, how many were not fp32 */
    int classifier_kept;  /* 1: the last layer kept its values; then a line about it is in `note` */
    int64_t file_classes; /* of the file's classifier; 0: it has none */
    int64_t batches;      /* the largest batch count of the file's batch norms; 0 if it has none */
    comet_message note;   /* empty unless there is something to tell */
} comet_weights_report;

/*
 * Fills the values of the parameters. The whole file is compared with them first: a file that does not fit changes
 * nothing. fp16, bf16 and fp64 are converted. COMET_ERROR_MISMATCH, with a line that names the first tensor that is
 * missing, has another shape or does not belong to the network; COMET_ERROR_UNSUPPORTED for integers; COMET_ERROR_IO;
 * COMET_ERROR_CORRUPT, also for a tensor with a value that is not finite, or is not in fp32, which is named; values are
 * undefined then. report may be NULL.
 */
comet_status comet_weights_read(const char *path, comet_parameter *parameters, int count, comet_weights_fit fit,
                                comet_weights_report *report, const comet_allocator *allocator, comet_message *message);

/* The same for a file that is open; `path` is for messages. */
comet_status comet_weights_read_from(comet_safetensors *file, const char *path, comet_parameter *parameters, int count,
                                     comet_weights_fit fit, comet_weights_report *report, comet_message *message);

#endif
