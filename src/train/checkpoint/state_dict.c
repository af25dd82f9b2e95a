/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/state_dict.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

int comet_batch_count_name(const comet_parameter *p, char name[COMET_STATE_NAME_BYTES]) {
    static const char tail[] = ".running_var";
    size_t length = strlen(p->name);
    if (p->kind != COMET_RUNNING_VAR || length < sizeof tail || strcmp(p->name + length - (sizeof tail - 1), tail) != 0)
        return 0;
    int layer = (int)(length - (sizeof tail - 1));
    return snprintf(name, COMET_STATE_NAME_BYTES, "%.*s.num_batches_tracked", layer, p->name) < COMET_STATE_NAME_BYTES;
}

/* ---- sources ---- */

static comet_status read_array(void *context, const comet_safetensors_entry *entry, uint64_t first, uint64_t bytes,
                               void *data) {
    const comet_state_array *a = context;
    (void)entry;
    return a->space->read(a->space, data, (const char *)a->values + first, (size_t)bytes);
}

void comet_state_dict_add(comet_state_dict *dict, const comet_safetensors_entry *entry, const void *data) {
    dict->sources[dict->count++] = (comet_safetensors_source){.entry = *entry, .data = data};
}

void comet_state_dict_add_array(comet_state_dict *dict, const comet_safetensors_entry *entry, comet_space *space,
                                const float *values) {
    comet_state_array *array = &dict->arrays[dict->count];
    *array = (comet_state_array){space, values};
    dict->sources[dict->count++] = (comet_safetensors_source){.entry = *entry, .produce = read_array, .context = array};
}

static void add_parameter(comet_state_dict *dict, const comet_parameter *p) {
    comet_safetensors_entry entry = {p->name, COMET_SAFETENSORS_F32, p->ndim, {0}, 0, 0};
    memcpy(entry.shape, p->shape, (size_t)p->ndim * sizeof *p->shape);
    comet_state_dict_add_array(dict, &entry, p->space, p->value);
}

static void add_batch_count(comet_state_dict *dict, const char *name) {
    comet_state_dict_add(dict, &(comet_safetensors_entry){name, COMET_SAFETENSORS_I64, 0, {0}, 0, 0}, &dict->batches);
}

static size_t count_norms(const comet_parameter *parameters, int count) {
    size_t norms = 0;
    for (int i = 0; i < count; i++)
        norms += parameters[i].kind == COMET_RUNNING_VAR;
    return norms;
}

/* The sources point into the structure (batches): it must not be copied. */
comet_status comet_state_dict_init(comet_state_dict *dict, const comet_parameter *parameters, int count,
                                   int64_t batches, size_t spare, const comet_allocator *allocator,
                                   comet_message *message) {
    size_t norms = count_norms(parameters, count);
    *dict = (comet_state_dict){.allocator = allocator,
                               .room = (size_t)count + norms + spare,
                               .names_bytes = norms * COMET_STATE_NAME_BYTES,
                               .batches = batches};
    dict->sources = comet_memory_take(allocator, dict->room * sizeof *dict->sources);
    dict->arrays = comet_memory_take(allocator, dict->room * sizeof *dict->arrays);
    dict->names = comet_memory_take(allocator, dict->names_bytes);
    if (!dict->sources || !dict->arrays || !dict->names) {
        comet_state_dict_destroy(dict);
        return comet_message_memory(message);
    }
    memset(dict->sources, 0, dict->room * sizeof *dict->sources);
    char *name = dict->names;
    for (int i = 0; i < count; i++) {
        add_parameter(dict, &parameters[i]);
        if (!comet_batch_count_name(&parameters[i], name))
            continue;
        add_batch_count(dict, name);
        name += COMET_STATE_NAME_BYTES;
    }
    return COMET_OK;
}

size_t comet_source_count(const comet_safetensors_source *source) {
    size_t count = 1;
    for (int d = 0; d < source->entry.ndim; d++)
        count *= (size_t)source->entry.shape[d];
    return count;
}

comet_status comet_state_dict_check(const comet_state_dict *dict, const char *path, comet_message *message) {
    for (size_t i = 0; i < dict->count; i++) {
        const comet_safetensors_source *s = &dict->sources[i];
        const comet_state_array *a = &dict->arrays[i];
        const comet_span span = {a->values, (int64_t)comet_source_count(s)};
        int first = -1;
        if (!s->produce)
            continue;
        comet_status status = a->space->find_nonfinite(a->space, &span, 1, &first);
        if (status != COMET_OK)
            return comet_message_set(message, status, "'%.100s': %s", s->entry.name, comet_status_string(status));
        if (first >= 0)
            return comet_message_set(message, COMET_ERROR_DIVERGED,
                                     "'%.100s' has values that are not finite: '%.200s' was not written", s->entry.name,
                                     path);
    }
    return COMET_OK;
}

void comet_state_dict_destroy(comet_state_dict *dict) {
    comet_memory_give(dict->allocator, dict->names, dict->names_bytes);
    comet_memory_give(dict->allocator, dict->arrays, dict->room * sizeof *dict->arrays);
    comet_memory_give(dict->allocator, dict->sources, dict->room * sizeof *dict->sources);
    dict->names = NULL;
    dict->arrays = NULL;
    dict->sources = NULL;
}
