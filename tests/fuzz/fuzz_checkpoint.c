/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checkpoints and weight files. The input is the file; of one time in two (its last bit) the checksums of the
 * checkpoint and of the controller's state in it are put right first, as no fuzzer would find them. It is read as a
 * checkpoint of either optimiser and as weights. What is accepted is finite, and is the same after it was written and
 * read again; a weight file that does not fit changes no value.
 */
#include "common/small_run.h"

#include <inttypes.h>
#include <math.h>
#include <zlib.h>

#include "base/bits.h"
#include "train/checkpoint/checkpoint_impl.h"
#include "train/checkpoint/weights.h"

/* ---- checksums ---- */

static const char control_tensor[] = COMET_BLOB_TENSOR "control";

/* The CRC over the state, its own field as 0 (src/control/state.c). */
static void mend_control(uint8_t *state, size_t bytes) {
    if (bytes < 24)
        return;
    comet_write_u32(state + 16, 0);
    comet_write_u32(state + 16, (uint32_t)crc32_z(0, state, bytes));
}

static uint32_t sum_of(const comet_safetensors *file, const uint8_t *data) {
    uint32_t sum = 0;
    for (int i = 0; i < COMET_TEXT_CHECKSUM; i++) {
        const char *text = comet_safetensors_metadata(file, comet_checkpoint_text_keys[i]);
        sum += text ? comet_checkpoint_sum_text(comet_checkpoint_text_keys[i], text) : 0;
    }
    for (size_t i = 0; i < comet_safetensors_count(file); i++) {
        const comet_safetensors_entry *entry = comet_safetensors_at(file, i);
        sum += comet_checkpoint_sum_data(entry->name, data + entry->offset, (size_t)entry->bytes);
    }
    return sum;
}

/* Writes the sum where the header has its text of 8 digits. */
static void put_sum(uint8_t *data, size_t size, uint32_t sum) {
    static const char key[] = "\"comet.checksum\":\"";
    char digits[16];
    snprintf(digits, sizeof digits, "%08" PRIx32, sum);
    for (size_t at = 0; at + sizeof key - 1 + 8 <= size; at++)
        if (memcmp(data + at, key, sizeof key - 1) == 0) {
            memcpy(data + at + sizeof key - 1, digits, 8);
            return;
        }
}

static void mend(uint8_t *data, size_t size, const char *path) {
    comet_safetensors *file;
    if (comet_safetensors_open(path, NULL, &file, NULL) != COMET_OK)
        return;
    const comet_safetensors_entry *control = comet_safetensors_find(file, control_tensor);
    if (control)
        mend_control(data + control->offset, (size_t)control->bytes);
    put_sum(data, size, sum_of(file, data));
    comet_safetensors_close(file);
}

/* ---- what is read ---- */

static int are_finite(const float *values, int count) {
    int finite = 1;
    for (int i = 0; i < count; i++)
        finite &= isfinite(values[i]) != 0;
    return finite;
}

static void check_control(const comet_checkpoint *c, int64_t step) {
    const comet_checkpoint_blob *blob = comet_checkpoint_find(c, "control");
    for (int i = 0; blob && comet_control_name(i); i++) {
        comet_control *control = small_control(comet_control_name(i));
        if (blob->bytes && comet_control_load(control, blob->data, blob->bytes) == COMET_OK) {
            for (int64_t k = 0; k < 2; k++)
                small_control_go_on(control, k ? step : 0);
            for (int t = 0; t < SMALL_TENSORS; t++)
                EXPECT(isfinite(comet_control_bound(control, t).value) && comet_control_bound(control, t).value >= 0);
        }
        comet_control_free(control);
    }
}

static void check_again(small_run *r, comet_optimiser_kind kind) {
    small_run again;
    const comet_checkpoint *a = &r->checkpoint, *b = &again.checkpoint;
    comet_message message = {""}, note;
    char folder[128];
    snprintf(folder, sizeof folder, "%s/again", folder_get());
    small_run_init(&again, kind);
    EXPECT(comet_checkpoint_write(folder, a, NULL, &message) == COMET_OK);
    EXPECT(comet_checkpoint_read(folder, &again.checkpoint, NULL, &note, &message) == COMET_OK);
    EXPECT(note.text[0] == '\0' && a->step == b->step && a->batches == b->batches && a->epoch == b->epoch);
    EXPECT(strcmp(a->loader, b->loader) == 0 && memcmp(a->keys, b->keys, sizeof a->keys) == 0);
    EXPECT(memcmp(r->values, again.values, sizeof r->values) == 0);
    EXPECT(memcmp(r->state, again.state, sizeof r->state) == 0);
    EXPECT(a->blob_count == b->blob_count);
    for (int i = 0; i < a->blob_count; i++) {
        const comet_checkpoint_blob *blob = comet_checkpoint_find(b, a->blobs[i].name);
        EXPECT(blob && blob->bytes == a->blobs[i].bytes);
        EXPECT(blob->bytes == 0 || memcmp(blob->data, a->blobs[i].data, blob->bytes) == 0);
    }
    comet_checkpoint_release(&again.checkpoint, NULL);
}

static void as_checkpoint(comet_optimiser_kind kind) {
    small_run r;
    comet_message message = {""}, note;
    comet_loader_state loader;
    small_run_init(&r, kind);
    if (comet_checkpoint_read(folder_get(), &r.checkpoint, NULL, &note, &message) != COMET_OK) {
        EXPECT(message.text[0] != '\0' && r.checkpoint.blob_count == 0);
        return;
    }
    EXPECT(r.checkpoint.step >= 0 && r.checkpoint.batches >= 0);
    EXPECT(are_finite(r.values, SMALL_VALUES) && are_finite(r.state, 2 * SMALL_VALUES));
    (void)comet_loader_state_parse(r.checkpoint.loader, &loader);
    check_control(&r.checkpoint, r.checkpoint.step);
    check_again(&r, kind);
    comet_checkpoint_release(&r.checkpoint, NULL);
}

static void as_weights(const char *path, comet_weights_fit fit) {
    small_run r;
    comet_message message = {""};
    comet_weights_report report;
    small_run_init(&r, COMET_SGD);
    for (int i = 0; i < SMALL_VALUES; i++)
        r.values[i] = 1.0f;
    comet_status status = comet_weights_read(path, r.parameters, SMALL_PARAMETERS, fit, &report, NULL, &message);
    EXPECT(status == COMET_OK || message.text[0] != '\0');
    if (status == COMET_OK) {
        EXPECT(report.read == SMALL_PARAMETERS - 2 * report.classifier_kept && report.converted <= report.read);
        EXPECT(!report.classifier_kept || (fit == COMET_WEIGHTS_FINETUNE && report.note.text[0]));
        EXPECT(are_finite(r.values, SMALL_VALUES));
        return;
    }
    for (int i = 0; i < SMALL_VALUES; i++)
        EXPECT(status == COMET_ERROR_CORRUPT || r.values[i] == 1.0f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *file = malloc(size ? size : 1);
    EXPECT(file != NULL);
    if (size)
        memcpy(file, data, size);
    const char *path = folder_put("last.safetensors", data, size);
    if (size && (data[size - 1] & 1) == 0) {
        mend(file, size, path);
        path = folder_put("last.safetensors", file, size);
    }
    as_weights(path, COMET_WEIGHTS_EXACT);
    as_weights(path, COMET_WEIGHTS_FINETUNE);
    as_checkpoint(COMET_SGD);
    as_checkpoint(COMET_ADAMW);
    free(file);
    return 0;
}
