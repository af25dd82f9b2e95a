/* SPDX-License-Identifier: Apache-2.0 */
#include "support/store_case.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    comet_store_form form;
    comet_codec codec;
    int offload;
} forms[] = {
    {COMET_FORM_KEEP, COMET_CODEC_RAW, 0},    {COMET_FORM_KEEP, COMET_CODEC_RAW, 1},
    {COMET_FORM_CODEC, COMET_CODEC_EB, 0},    {COMET_FORM_CODEC, COMET_CODEC_EB, 1},
    {COMET_FORM_CODEC, COMET_CODEC_ZVC, 0},   {COMET_FORM_CODEC, COMET_CODEC_MASK, 0},
    {COMET_FORM_CODEC, COMET_CODEC_POOL, 0},  {COMET_FORM_CODEC, COMET_CODEC_GROUP, 0},
    {COMET_FORM_CODEC, COMET_CODEC_DCT, 0},   {COMET_FORM_RECOMPUTE, COMET_CODEC_RAW, 0},
    {COMET_FORM_CODEC, COMET_CODEC_GROUP, 1},
};

int store_form_count(void) {
    return (int)(sizeof forms / sizeof *forms);
}

static void *need(void *memory) {
    if (!memory)
        abort();
    return memory;
}

static comet_status copy_values(void *context, const comet_tensor *destination) {
    const store_case *c = context;
    memcpy(destination->data, c->values, (size_t)c->count * sizeof *c->values);
    return COMET_OK;
}

static void expect(store_case *c) {
    c->expected = need(malloc((size_t)c->count * sizeof *c->expected + 1));
    memcpy(c->expected, c->values, (size_t)c->count * sizeof *c->expected);
    c->stored = c->item.form == COMET_FORM_KEEP ? (size_t)c->count * sizeof(float) : 0;
    if (c->item.form != COMET_FORM_CODEC)
        return;
    size_t capacity;
    comet_codec_result result = COMET_CODEC_RESULT_INIT;
    comet_tensor out = c->tensor;
    out.data = c->expected;
    if (comet_codec_max_bytes(&c->tensor, &c->codec, &capacity) != COMET_OK)
        abort();
    void *stream = need(malloc(capacity));
    if (comet_codec_compress(&c->tensor, &c->codec, NULL, stream, capacity, &result) != COMET_OK ||
        comet_codec_decompress(stream, result.bytes, NULL, NULL, &out) != COMET_OK)
        abort();
    c->stored = result.bytes;
    free(stream);
}

void store_case_new(store_case *c, int form, int64_t count, rng *r) {
    comet_codec_params params = COMET_CODEC_PARAMS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    int64_t shape[4] = {1, rng_between(r, 1, 8), rng_between(r, 1, 8), 1};
    shape[3] = count / (shape[1] * shape[2]) + 1;
    c->count = shape[1] * shape[2] * shape[3];
    c->values = need(malloc((size_t)c->count * sizeof *c->values));
    for (int64_t i = 0; i < c->count; i++)
        c->values[i] = rng_below(r, 2) ? (float)rng_gauss(r) : 0.0f;
    if (comet_tensor_init(&c->tensor, c->values, COMET_F32, COMET_NHWC, 4, shape) != COMET_OK)
        abort();
    params.codec = forms[form].codec;
    params.bound = 0.05 + 0.5 * rng_unit(r);
    item.form = forms[form].form;
    item.offload = forms[form].offload;
    item.recompute = item.form == COMET_FORM_RECOMPUTE ? copy_values : NULL;
    c->codec = params;
    c->item = item;
    c->item.codec = item.form == COMET_FORM_CODEC ? &c->codec : NULL;
    c->item.context = c;
    expect(c);
}

void store_case_free(store_case *c) {
    free(c->values);
    free(c->expected);
}

int store_case_loads(comet_store *store, comet_store_handle handle, const store_case *c) {
    comet_tensor out = c->tensor;
    size_t bytes = (size_t)c->count * sizeof *c->values;
    out.data = need(malloc(bytes));
    memset(out.data, 0x5A, bytes);
    int same = comet_store_load(store, handle, &out) == COMET_OK && memcmp(out.data, c->expected, bytes) == 0;
    free(out.data);
    return same;
}
