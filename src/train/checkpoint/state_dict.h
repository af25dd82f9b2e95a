/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a state_dict: a graph's parameters, and a batch count behind each running variance. */
#ifndef COMET_TRAIN_STATE_DICT_H
#define COMET_TRAIN_STATE_DICT_H

#include "data/files/safetensors.h"
#include "train/graph/graph.h"

enum { COMET_STATE_NAME_BYTES = 128 };

/* "layer.num_batches_tracked" for "layer.running_var"; answers 0 for any other parameter. */
int comet_batch_count_name(const comet_parameter *p, char name[COMET_STATE_NAME_BYTES]);

/* Values of a tensor. */
size_t comet_source_count(const comet_safetensors_source *source);

/* An array of fp32 values that is to be written. */
typedef struct comet_state_array {
    comet_space *space;
    const float *values;
} comet_state_array;

/* What to write, in memory of its own; values are read from the parameters' space. `spare`: room for more sources. */
typedef struct comet_state_dict {
    const comet_allocator *allocator;
    comet_safetensors_source *sources;
    comet_state_array *arrays; /* of these, where they have no data */
    size_t count, room;
    char *names;
    size_t names_bytes;
    int64_t batches;
} comet_state_dict;

comet_status comet_state_dict_init(comet_state_dict *dict, const comet_parameter *parameters, int count,
                                   int64_t batches, size_t spare, const comet_allocator *allocator,
                                   comet_message *message);

/* One more tensor: of the host's bytes, or of fp32 values in a space. The name must stay. */
void comet_state_dict_add(comet_state_dict *dict, const comet_safetensors_entry *entry, const void *data);
void comet_state_dict_add_array(comet_state_dict *dict, const comet_safetensors_entry *entry, comet_space *space,
                                const float *values);

/* COMET_ERROR_DIVERGED, with a line that names the tensor, if a value is not finite: it is not to be written. */
comet_status comet_state_dict_check(const comet_state_dict *dict, const char *path, comet_message *message);
void comet_state_dict_destroy(comet_state_dict *dict);

#endif
