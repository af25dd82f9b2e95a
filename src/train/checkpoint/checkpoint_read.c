/* SPDX-License-Identifier: Apache-2.0 */
/* Reading checkpoints, straight to where the values belong. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/checkpoint/checkpoint_impl.h"
#include "train/checkpoint/state_dict.h"
#include "train/checkpoint/weights.h"

typedef struct reader {
    const char *path;
    comet_safetensors *file;
    comet_checkpoint *checkpoint;
    const comet_allocator *allocator;
    comet_message *message;
    uint32_t sum;
} reader;

static comet_status damaged(const reader *r, const char *what) {
    return comet_message_set(r->message, COMET_ERROR_CORRUPT, "checkpoint '%s' is damaged: %s", r->path, what);
}

/* ---- texts ---- */

static const char *text_of(const reader *r, int index) {
    return comet_safetensors_metadata(r->file, comet_checkpoint_text_keys[index]);
}

static comet_status check_texts(reader *r) {
    const char *version = text_of(r, COMET_TEXT_VERSION);
    if (!version)
        return comet_message_set(r->message, COMET_ERROR_MISMATCH, "'%s' is not a checkpoint", r->path);
    if (strcmp(version, COMET_CHECKPOINT_VERSION) != 0)
        return comet_message_set(r->message, COMET_ERROR_VERSION,
                                 "checkpoint '%s' has version %.20s of the format; this program reads version %s",
                                 r->path, version, COMET_CHECKPOINT_VERSION);
    for (int i = 0; i < COMET_TEXTS; i++)
        if (!text_of(r, i))
            return damaged(r, "an entry is missing");
    for (int i = 0; i < COMET_TEXT_CHECKSUM; i++)
        r->sum += comet_checkpoint_sum_text(comet_checkpoint_text_keys[i], text_of(r, i));
    return COMET_OK;
}

static comet_status check_identity(const reader *r) {
    const comet_checkpoint *c = r->checkpoint;
    comet_checkpoint_name optimiser = comet_checkpoint_optimiser_text(c->optimiser);
    const comet_checkpoint_texts its = {text_of(r, COMET_TEXT_MODEL), text_of(r, COMET_TEXT_OPTIMISER),
                                        text_of(r, COMET_TEXT_OPTIONS)},
                                 ours = {c->model, optimiser.text, c->options};
    comet_message list;
    if (!comet_checkpoint_differences(&its, &ours, &list))
        return COMET_OK;
    return comet_message_set(r->message, COMET_ERROR_MISMATCH, "checkpoint '%.200s' is of another training: %.420s",
                             r->path, list.text);
}

/* 0 if the text is not a whole number, 0 to `most`. */
static int take_number(const char *text, int64_t most, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    *value = number;
    return *text && !*end && errno == 0 && number >= 0 && number <= most;
}

static int take_keys(const char *text, uint64_t keys[COMET_CHECKPOINT_KEYS]) {
    for (int i = 0; i < COMET_CHECKPOINT_KEYS; i++) {
        char *end;
        keys[i] = strtoull(text, &end, 16);
        if (end - text != 16 + (i > 0) || *end != (i + 1 < COMET_CHECKPOINT_KEYS ? ' ' : '\0'))
            return 0;
        text = end;
    }
    return 1;
}

static comet_status take_texts(const reader *r) {
    comet_checkpoint *c = r->checkpoint;
    int64_t epoch;
    const char *loader = text_of(r, COMET_TEXT_LOADER);
    if (!take_number(text_of(r, COMET_TEXT_STEP), INT64_MAX, &c->step) ||
        !take_number(text_of(r, COMET_TEXT_EPOCH), UINT32_MAX, &epoch) ||
        !take_keys(text_of(r, COMET_TEXT_KEYS), c->keys) || strlen(loader) >= sizeof c->loader)
        return damaged(r, "an entry is not what it should be");
    c->epoch = (uint32_t)epoch;
    snprintf(c->loader, sizeof c->loader, "%s", loader);
    return COMET_OK;
}

/* ---- tensors ---- */

enum { PIECE = 1 << 12 }; /* values */

static comet_status read_weights(reader *r) {
    comet_checkpoint *c = r->checkpoint;
    comet_weights_report report;
    char name[COMET_STATE_NAME_BYTES];
    comet_status status = comet_weights_read_from(r->file, r->path, c->parameters, c->parameter_count,
                                                  COMET_WEIGHTS_EXACT, &report, r->message);
    if (status == COMET_ERROR_MISMATCH) /* by its own words it is of this network: then it is damaged */
        status = COMET_ERROR_CORRUPT;
    if (status != COMET_OK)
        return status;
    c->batches = report.batches;
    for (int i = 0; i < c->parameter_count; i++) {
        const comet_parameter *p = &c->parameters[i];
        status = comet_checkpoint_sum_values(p->name, p->space, p->value, p->count, &r->sum);
        if (status != COMET_OK)
            return comet_message_set(r->message, status, "'%.100s': %s", p->name, comet_status_string(status));
        if (comet_batch_count_name(p, name))
            r->sum += comet_checkpoint_sum_data(name, &c->batches, sizeof c->batches);
    }
    return COMET_OK;
}

/* The optimiser's state is in the parameters' space. */
static comet_status read_array(reader *r, const comet_safetensors_entry *entry, float *values, int64_t count) {
    comet_space *space = r->checkpoint->parameters[0].space;
    float piece[PIECE];
    int first = -1;
    for (int64_t at = 0; at < count; at += PIECE) {
        const uint64_t bytes = (uint64_t)(count - at < PIECE ? count - at : PIECE) * sizeof *piece;
        comet_status status =
            comet_safetensors_read(r->file, entry, (uint64_t)at * sizeof *piece, bytes, piece, r->message);
        if (status == COMET_OK)
            status = space->write(space, values + at, piece, (size_t)bytes);
        if (status != COMET_OK)
            return status;
    }
    comet_status status = space->find_nonfinite(space, &(comet_span){values, count}, 1, &first);
    if (first >= 0)
        return damaged(r, "the optimiser's state has values that are not finite");
    return status == COMET_OK ? comet_checkpoint_sum_values(entry->name, space, values, count, &r->sum) : status;
}

static comet_status read_state(reader *r) {
    comet_checkpoint *c = r->checkpoint;
    int64_t count = comet_optimiser_count(c->parameters, c->parameter_count);
    for (int a = 0; a < comet_optimiser_arrays(c->optimiser); a++) {
        comet_checkpoint_name name = comet_checkpoint_array_name(c->optimiser, a);
        const comet_safetensors_entry *entry = comet_safetensors_find(r->file, name.text);
        float *values = c->state + a * count;
        if (!entry || entry->type != COMET_SAFETENSORS_F32 || entry->ndim != 1 || entry->shape[0] != count)
            return damaged(r, "the optimiser's state is missing or of another size");
        COMET_TRY(read_array(r, entry, values, count));
    }
    return COMET_OK;
}

static comet_status read_blob(reader *r, const comet_safetensors_entry *entry) {
    comet_checkpoint *c = r->checkpoint;
    const char *name = entry->name + strlen(COMET_BLOB_TENSOR);
    if (c->blob_count == COMET_CHECKPOINT_MOST_BLOBS || strlen(name) >= COMET_CHECKPOINT_BLOB_NAME ||
        entry->type != COMET_SAFETENSORS_U8)
        return damaged(r, "a blob is not what it should be");
    comet_checkpoint_blob *blob = &c->blobs[c->blob_count];
    blob->bytes = (size_t)entry->bytes;
    blob->data = comet_memory_take(r->allocator, blob->bytes);
    if (!blob->data)
        return comet_message_memory(r->message);
    snprintf(blob->name, sizeof blob->name, "%s", name);
    c->blob_count++;
    comet_status status = comet_safetensors_read(r->file, entry, 0, entry->bytes, blob->data, r->message);
    r->sum += comet_checkpoint_sum_data(entry->name, blob->data, blob->bytes);
    return status;
}

static comet_status read_blobs(reader *r) {
    comet_status status = COMET_OK;
    for (size_t i = 0; i < comet_safetensors_count(r->file) && status == COMET_OK; i++) {
        const comet_safetensors_entry *entry = comet_safetensors_at(r->file, i);
        if (strncmp(entry->name, COMET_BLOB_TENSOR, strlen(COMET_BLOB_TENSOR)) == 0)
            status = read_blob(r, entry);
    }
    return status;
}

static comet_status check_sum(const reader *r) {
    char sum[16];
    snprintf(sum, sizeof sum, "%08" PRIx32, r->sum);
    if (strcmp(sum, text_of(r, COMET_TEXT_CHECKSUM)) != 0)
        return comet_message_set(r->message, COMET_ERROR_CHECKSUM,
                                 "checkpoint '%s' is damaged: its checksum does not match", r->path);
    return COMET_OK;
}

static comet_status read_open(reader *r) {
    comet_status (*const parts[])(reader *) = {read_weights, read_state, read_blobs};
    comet_status status = check_texts(r);
    if (status == COMET_OK)
        status = check_identity(r);
    if (status == COMET_OK)
        status = take_texts(r);
    for (int i = 0; i < 3 && status == COMET_OK; i++)
        status = parts[i](r);
    return status == COMET_OK ? check_sum(r) : status;
}

static comet_status read_file(const char *path, comet_checkpoint *c, const comet_allocator *allocator,
                              comet_message *message) {
    reader r = {.path = path, .checkpoint = c, .allocator = allocator, .message = message};
    COMET_TRY(comet_safetensors_open(path, allocator, &r.file, message));
    comet_status status = read_open(&r);
    if (status != COMET_OK)
        comet_checkpoint_release(c, allocator);
    comet_safetensors_close(r.file);
    return status;
}

/* ---- the newest ---- */

/* What another file may make good. */
static int is_damage(comet_status status) {
    return status == COMET_ERROR_CORRUPT || status == COMET_ERROR_CHECKSUM || status == COMET_ERROR_IO ||
           status == COMET_ERROR_UNSUPPORTED;
}

comet_status comet_checkpoint_read(const char *folder, comet_checkpoint *c, const comet_allocator *allocator,
                                   comet_message *note, comet_message *message) {
    comet_message first = {""};
    comet_status first_status = COMET_OK;
    c->blob_count = c->keep_previous = 0;
    if (note)
        note->text[0] = '\0';
    for (int file = 0; file < COMET_CHECKPOINT_FILES; file++) {
        comet_checkpoint_path path;
        comet_message why = {""};
        COMET_TRY(comet_checkpoint_path_of(folder, file, &path, message));
        if (access(path.text, F_OK) != 0)
            continue;
        comet_status status = read_file(path.text, c, allocator, &why);
        if (status == COMET_OK && first_status != COMET_OK)
            comet_message_set(note, COMET_OK, "%.480s; went on from '%.100s'", first.text, path.text);
        if (!is_damage(status))
            return status == COMET_OK ? COMET_OK : comet_message_set(message, status, "%s", why.text);
        c->keep_previous |= file == COMET_CHECKPOINT_LAST;
        first = first_status == COMET_OK ? why : first;
        first_status = first_status == COMET_OK ? status : first_status;
    }
    if (first_status != COMET_OK)
        return comet_message_set(message, first_status, "%s", first.text);
    return comet_message_set(message, COMET_ERROR_IO, "there is no checkpoint in '%s'", folder);
}
