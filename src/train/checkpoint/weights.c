/* SPDX-License-Identifier: Apache-2.0 */
#include "train/checkpoint/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "train/checkpoint/state_dict.h"

enum { MOST_TEXTS = 8 };

comet_status comet_weights_write(const char *path, const comet_parameter *parameters, int count, int64_t batches,
                                 const comet_allocator *allocator, comet_message *message) {
    return comet_weights_write_about(path, parameters, count, batches, NULL, 0, allocator, message);
}

comet_status comet_weights_write_about(const char *path, const comet_parameter *parameters, int count, int64_t batches,
                                       const comet_safetensors_text *about, size_t about_count,
                                       const comet_allocator *allocator, comet_message *message) {
    comet_safetensors_text texts[1 + MOST_TEXTS] = {{"format", "pt"}}; /* readers of the format's own library want it */
    comet_state_dict dict;
    if (about_count > MOST_TEXTS)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "a weight file has at most %d texts", MOST_TEXTS);
    for (size_t i = 0; i < about_count; i++)
        texts[1 + i] = about[i];
    COMET_TRY(comet_state_dict_init(&dict, parameters, count, batches, 0, allocator, message));
    comet_status status = comet_state_dict_check(&dict, path, message);
    if (status == COMET_OK)
        status = comet_safetensors_write(path, dict.sources, dict.count, texts, 1 + about_count, allocator, message);
    comet_state_dict_destroy(&dict);
    return status;
}

/* ---- reading ---- */

enum { PIECE = 1 << 12 }; /* values */

typedef struct reader {
    const char *path;
    comet_safetensors *file;
    comet_parameter *parameters;
    int count;
    int classifier; /* index of the last linear weight, its bias behind it; `count`: there is none */
    int classifier_end;
    comet_weights_report report;
    comet_message *message;
} reader;

static void shape_text(int ndim, const int64_t *shape, char text[96]) {
    int used = 0;
    text[0] = '\0';
    for (int d = 0; d < ndim && used < 80; d++)
        used += snprintf(text + used, (size_t)(96 - used), "%s%lld", d ? "x" : "", (long long)shape[d]);
}

static int same_shape(const comet_safetensors_entry *entry, const comet_parameter *p) {
    return entry->ndim == p->ndim && memcmp(entry->shape, p->shape, (size_t)p->ndim * sizeof *p->shape) == 0;
}

static void find_classifier(reader *r) {
    r->classifier = r->classifier_end = r->count;
    for (int i = 0; i < r->count; i++)
        if (r->parameters[i].kind == COMET_LINEAR_WEIGHT)
            r->classifier = i;
    if (r->classifier < r->count)
        r->classifier_end = r->classifier + 1;
    if (r->classifier_end < r->count && r->parameters[r->classifier_end].kind == COMET_BIAS)
        r->classifier_end++;
}

static int is_classifier(const reader *r, int i) {
    return i >= r->classifier && i < r->classifier_end;
}

/* The file's classifier differs in its first extent at most, or is not there: what fine-tuning allows. */
static int may_be_kept(const reader *r, int i, const comet_safetensors_entry *entry) {
    const comet_parameter *p = &r->parameters[i];
    if (!is_classifier(r, i))
        return 0;
    return !entry || (entry->ndim == p->ndim &&
                      memcmp(entry->shape + 1, p->shape + 1, (size_t)(p->ndim - 1) * sizeof *p->shape) == 0);
}

static comet_status check_parameter(reader *r, int i, comet_weights_fit fit) {
    const comet_parameter *p = &r->parameters[i];
    const comet_safetensors_entry *entry = comet_safetensors_find(r->file, p->name);
    char have[96], want[96];
    if (entry && same_shape(entry, p)) {
        if (entry->type == COMET_SAFETENSORS_I64 || entry->type == COMET_SAFETENSORS_I32 ||
            entry->type == COMET_SAFETENSORS_U8)
            return comet_message_set(r->message, COMET_ERROR_UNSUPPORTED,
                                     "'%s' in '%s' is of type %s; weights must be F32, F16, BF16 or F64", p->name,
                                     r->path, comet_safetensors_type_name(entry->type));
        return COMET_OK;
    }
    if (fit == COMET_WEIGHTS_FINETUNE && may_be_kept(r, i, entry)) {
        r->report.classifier_kept = 1;
        return COMET_OK;
    }
    if (!entry)
        return comet_message_set(r->message, COMET_ERROR_MISMATCH, "'%s' has no '%s': it is of another network",
                                 r->path, p->name);
    shape_text(entry->ndim, entry->shape, have);
    shape_text(p->ndim, p->shape, want);
    return comet_message_set(r->message, COMET_ERROR_MISMATCH,
                             "'%s' in '%s' is %s, the network's is %s: it is of another network%s", p->name, r->path,
                             have, want, may_be_kept(r, i, entry) ? " or has other classes" : "");
}

static int belongs(const reader *r, const char *name) {
    char batch_count[COMET_STATE_NAME_BYTES];
    if (strncmp(name, COMET_OWN_TENSOR, strlen(COMET_OWN_TENSOR)) == 0)
        return 1;
    for (int i = 0; i < r->count; i++)
        if (strcmp(name, r->parameters[i].name) == 0 ||
            (comet_batch_count_name(&r->parameters[i], batch_count) && strcmp(name, batch_count) == 0))
            return 1;
    return 0;
}

static comet_status check_file(reader *r, comet_weights_fit fit) {
    for (int i = 0; i < r->count; i++) {
        COMET_TRY(check_parameter(r, i, fit));
    }
    for (size_t i = 0; i < comet_safetensors_count(r->file); i++) {
        const char *name = comet_safetensors_at(r->file, i)->name;
        if (!belongs(r, name))
            return comet_message_set(r->message, COMET_ERROR_MISMATCH,
                                     "'%s' has '%s', which the network does not: it is of another network", r->path,
                                     name);
    }
    return COMET_OK;
}

/* Old files have no batch counts; others have had them as other types: those are ignored. */
static comet_status read_batch_count(reader *r, const comet_parameter *p) {
    char name[COMET_STATE_NAME_BYTES];
    int64_t batches = 0;
    const comet_safetensors_entry *entry =
        comet_batch_count_name(p, name) ? comet_safetensors_find(r->file, name) : NULL;
    if (!entry || entry->type != COMET_SAFETENSORS_I64 || entry->bytes != sizeof batches)
        return COMET_OK;
    comet_status status = comet_safetensors_read(r->file, entry, 0, sizeof batches, &batches, r->message);
    if (status == COMET_OK && batches > r->report.batches)
        r->report.batches = batches;
    return status;
}

/* Piece by piece through the host's memory. */
static comet_status read_values(reader *r, const comet_safetensors_entry *entry, const comet_parameter *p) {
    float piece[PIECE];
    for (int64_t at = 0; at < p->count; at += PIECE) {
        const int64_t count = p->count - at < PIECE ? p->count - at : PIECE;
        comet_status status =
            comet_safetensors_read_f32_part(r->file, entry, (uint64_t)at, (uint64_t)count, piece, r->message);
        if (status != COMET_OK)
            return status;
        status = p->space->write(p->space, p->value + at, piece, (size_t)count * sizeof *piece);
        if (status != COMET_OK)
            return comet_message_set(r->message, status, "'%.100s': %s", p->name, comet_status_string(status));
    }
    return COMET_OK;
}

static comet_status read_parameter(reader *r, int i) {
    comet_parameter *p = &r->parameters[i];
    const comet_safetensors_entry *entry = comet_safetensors_find(r->file, p->name);
    if (r->report.classifier_kept && is_classifier(r, i)) /* all of it: weight and bias belong together */
        return COMET_OK;
    int first = -1;
    comet_status status = read_values(r, entry, p);
    if (status == COMET_OK)
        status = p->space->find_nonfinite(p->space, &(comet_span){p->value, p->count}, 1, &first);
    if (first >= 0)
        return comet_message_set(r->message, COMET_ERROR_CORRUPT, "'%.100s' in '%.300s' has values that are not finite",
                                 p->name, r->path);
    r->report.read += status == COMET_OK;
    r->report.converted += status == COMET_OK && entry->type != COMET_SAFETENSORS_F32;
    return status == COMET_OK ? read_batch_count(r, p) : status;
}

static void note_classifier(reader *r) {
    const comet_parameter *p = r->classifier < r->count ? &r->parameters[r->classifier] : NULL;
    const comet_safetensors_entry *entry = p ? comet_safetensors_find(r->file, p->name) : NULL;
    r->report.file_classes = entry && entry->ndim == 2 ? entry->shape[0] : 0;
    if (!r->report.classifier_kept)
        return;
    char had[64] = "which the file does not have";
    if (r->report.file_classes)
        snprintf(had, sizeof had, "of which the file has %lld", (long long)r->report.file_classes);
    comet_message_set(&r->report.note, COMET_OK, "'%s' (%lld classes, %s) keeps its initial values", p->name,
                      (long long)p->shape[0], had);
}

static comet_status read_file(reader *r, comet_weights_fit fit) {
    find_classifier(r);
    comet_status status = check_file(r, fit);
    if (status == COMET_OK)
        note_classifier(r);
    for (int i = 0; i < r->count && status == COMET_OK; i++)
        status = read_parameter(r, i);
    return status;
}

comet_status comet_weights_read_from(comet_safetensors *file, const char *path, comet_parameter *parameters, int count,
                                     comet_weights_fit fit, comet_weights_report *report, comet_message *message) {
    reader r = {.path = path, .file = file, .parameters = parameters, .count = count, .message = message};
    comet_status status = read_file(&r, fit);
    if (report)
        *report = r.report;
    return status;
}

comet_status comet_weights_read(const char *path, comet_parameter *parameters, int count, comet_weights_fit fit,
                                comet_weights_report *report, const comet_allocator *allocator,
                                comet_message *message) {
    comet_safetensors *file;
    COMET_TRY(comet_safetensors_open(path, allocator, &file, message));
    comet_status status = comet_weights_read_from(file, path, parameters, count, fit, report, message);
    comet_safetensors_close(file);
    return status;
}
