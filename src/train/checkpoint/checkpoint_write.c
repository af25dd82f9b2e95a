/* SPDX-License-Identifier: Apache-2.0 */
/* Writing checkpoints, straight from where the values are. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "train/checkpoint/checkpoint_impl.h"
#include "train/checkpoint/state_dict.h"

/* The texts of a file. */
typedef struct texts {
    char step[24], epoch[24], keys[20 * COMET_CHECKPOINT_KEYS], checksum[16];
    comet_checkpoint_name optimiser;
    comet_safetensors_text all[COMET_TEXTS];
} texts;

static void set_text(texts *t, int index, const char *value) {
    t->all[index] = (comet_safetensors_text){comet_checkpoint_text_keys[index], value ? value : ""};
}

static void make_texts(texts *t, const comet_checkpoint *c) {
    size_t used = 0;
    snprintf(t->step, sizeof t->step, "%" PRId64, c->step);
    snprintf(t->epoch, sizeof t->epoch, "%" PRIu32, c->epoch);
    for (int i = 0; i < COMET_CHECKPOINT_KEYS; i++)
        used += (size_t)snprintf(t->keys + used, sizeof t->keys - used, "%s%016" PRIx64, i ? " " : "", c->keys[i]);
    t->optimiser = comet_checkpoint_optimiser_text(c->optimiser);
    set_text(t, COMET_TEXT_FORMAT, "pt");
    set_text(t, COMET_TEXT_VERSION, COMET_CHECKPOINT_VERSION);
    set_text(t, COMET_TEXT_MODEL, c->model);
    set_text(t, COMET_TEXT_OPTIONS, c->options);
    set_text(t, COMET_TEXT_OPTIMISER, t->optimiser.text);
    set_text(t, COMET_TEXT_STEP, t->step);
    set_text(t, COMET_TEXT_EPOCH, t->epoch);
    set_text(t, COMET_TEXT_LOADER, c->loader);
    set_text(t, COMET_TEXT_KEYS, t->keys);
}

static comet_status add_source(const comet_state_dict *dict, size_t i, uint32_t *sum) {
    const comet_safetensors_source *s = &dict->sources[i];
    const size_t count = comet_source_count(s);
    if (s->produce)
        return comet_checkpoint_sum_values(s->entry.name, dict->arrays[i].space, dict->arrays[i].values, (int64_t)count,
                                           sum);
    *sum += comet_checkpoint_sum_data(s->entry.name, s->data, count * comet_safetensors_type_bytes(s->entry.type));
    return COMET_OK;
}

static comet_status make_checksum(texts *t, const comet_state_dict *dict) {
    uint32_t sum = 0;
    comet_status status = COMET_OK;
    for (int i = 0; i < COMET_TEXT_CHECKSUM; i++)
        sum += comet_checkpoint_sum_text(t->all[i].key, t->all[i].value);
    for (size_t i = 0; i < dict->count && status == COMET_OK; i++)
        status = add_source(dict, i, &sum);
    snprintf(t->checksum, sizeof t->checksum, "%08" PRIx32, sum);
    set_text(t, COMET_TEXT_CHECKSUM, t->checksum);
    return status;
}

static comet_safetensors_entry vector_of(const char *name, comet_safetensors_type type, int64_t count) {
    return (comet_safetensors_entry){name, type, 1, {count}, 0, 0};
}

/* Names must outlive the sources: they are the caller's. */
static void add_own(comet_state_dict *dict, const comet_checkpoint *c, comet_checkpoint_name *names) {
    int64_t count = comet_optimiser_count(c->parameters, c->parameter_count);
    for (int a = 0; a < comet_optimiser_arrays(c->optimiser); a++, names++) {
        *names = comet_checkpoint_array_name(c->optimiser, a);
        const comet_safetensors_entry entry = vector_of(names->text, COMET_SAFETENSORS_F32, count);
        comet_state_dict_add_array(dict, &entry, c->parameters[0].space, c->state + a * count);
    }
    for (int i = 0; i < c->blob_count; i++, names++) {
        *names = comet_checkpoint_blob_tensor(c->blobs[i].name);
        const comet_safetensors_entry entry = vector_of(names->text, COMET_SAFETENSORS_U8, (int64_t)c->blobs[i].bytes);
        comet_state_dict_add(dict, &entry, c->blobs[i].data);
    }
}

static comet_status write_new(const char *path, const comet_checkpoint *c, const comet_allocator *allocator,
                              comet_message *message) {
    enum { OWN = COMET_OPTIMISER_MOST_ARRAYS + COMET_CHECKPOINT_MOST_BLOBS };
    comet_checkpoint_name names[OWN];
    comet_state_dict dict;
    texts t;
    comet_status status =
        comet_state_dict_init(&dict, c->parameters, c->parameter_count, c->batches, OWN, allocator, message);
    if (status != COMET_OK)
        return status;
    add_own(&dict, c, names);
    status = comet_state_dict_check(&dict, path, message);
    if (status == COMET_OK) {
        make_texts(&t, c);
        status = make_checksum(&t, &dict);
    }
    if (status == COMET_OK)
        status = comet_safetensors_write(path, dict.sources, dict.count, t.all, COMET_TEXTS, allocator, message);
    comet_state_dict_destroy(&dict);
    return status;
}

/* Between any two of these steps the newest file that is there is whole: reading looks in the same order. */
static comet_status rotate(const comet_checkpoint_path path[COMET_CHECKPOINT_FILES], int keep_previous,
                           comet_message *message) {
    if (!keep_previous && rename(path[COMET_CHECKPOINT_LAST].text, path[COMET_CHECKPOINT_PREVIOUS].text) != 0 &&
        errno != ENOENT)
        return comet_message_set(message, COMET_ERROR_IO, "cannot rename '%s': %s", path[COMET_CHECKPOINT_LAST].text,
                                 strerror(errno));
    if (rename(path[COMET_CHECKPOINT_NEW].text, path[COMET_CHECKPOINT_LAST].text) != 0)
        return comet_message_set(message, COMET_ERROR_IO, "cannot rename '%s': %s", path[COMET_CHECKPOINT_NEW].text,
                                 strerror(errno));
    return COMET_OK;
}

static comet_status make_folder(const char *folder, comet_message *message) {
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return comet_message_set(message, COMET_ERROR_IO, "cannot make the folder '%s': %s", folder, strerror(errno));
    return COMET_OK;
}

comet_status comet_checkpoint_write(const char *folder, const comet_checkpoint *c, const comet_allocator *allocator,
                                    comet_message *message) {
    comet_checkpoint_path path[COMET_CHECKPOINT_FILES];
    if (c->blob_count < 0 || c->blob_count > COMET_CHECKPOINT_MOST_BLOBS)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a checkpoint holds at most %d blobs",
                                 COMET_CHECKPOINT_MOST_BLOBS);
    comet_status status = COMET_OK;
    for (int file = 0; file < COMET_CHECKPOINT_FILES && status == COMET_OK; file++)
        status = comet_checkpoint_path_of(folder, file, &path[file], message);
    if (status == COMET_OK)
        status = make_folder(folder, message);
    if (status == COMET_OK)
        status = write_new(path[COMET_CHECKPOINT_NEW].text, c, allocator, message);
    return status == COMET_OK ? rotate(path, c->keep_previous, message) : status;
}
