/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The activation store alone, as any framework could use it: a forward pass saves the tensors of some layers, each in a
 * form of its own, within a limit on memory; a backward pass takes them back in the opposite order. Prints the
 * accounts.
 * usage: store [json]
 */
#include <comet/comet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 32, SIDE = 64, COUNT = CHANNELS * SIDE * SIDE, LAYERS = 6 };

typedef struct layer {
    const char *name;
    comet_codec codec;
    comet_store_form form;
    int offload;
    double allowed; /* error, absolute */
} layer;

static const layer layers[LAYERS] = {
    {"image", COMET_CODEC_RAW, COMET_FORM_KEEP, 1, 0.0},      {"conv1", COMET_CODEC_EB, COMET_FORM_CODEC, 0, 0.1},
    {"relu1", COMET_CODEC_ZVC, COMET_FORM_CODEC, 0, 0.0},     {"conv2", COMET_CODEC_EB, COMET_FORM_CODEC, 1, 0.1},
    {"again", COMET_CODEC_RAW, COMET_FORM_RECOMPUTE, 0, 0.0}, {"last", COMET_CODEC_RAW, COMET_FORM_KEEP, 0, 0.0},
};

static void check(const char *what, comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "store: %s: %s: %s\n", what, comet_status_string(status), comet_last_error());
    exit(1);
}

/* What layer number `index` puts out: smooth waves, half of them cut off by a ReLU. */
static void run_layer(int index, float *values) {
    for (int i = 0; i < COUNT; i++) {
        int channel = i % CHANNELS, x = i / CHANNELS % SIDE, y = i / CHANNELS / SIDE;
        float wave = sinf((float)(x + 3 * channel + index) * 0.11f) + cosf((float)(y - 2 * channel) * 0.07f);
        values[i] = wave > 0.0f ? wave : 0.0f;
    }
}

/* For the layer that is not stored at all. */
static comet_status run_again(void *context, const comet_tensor *destination) {
    run_layer((int)((const layer *)context - layers), destination->data);
    return COMET_OK;
}

static comet_store_handle save(comet_store *store, int index, const comet_tensor *tensor) {
    comet_codec_params codec = COMET_CODEC_PARAMS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_handle handle;
    codec.codec = layers[index].codec;
    codec.bound = layers[index].allowed;
    item.name = layers[index].name;
    item.form = layers[index].form;
    item.offload = layers[index].offload;
    item.codec = item.form == COMET_FORM_CODEC ? &codec : NULL;
    item.recompute = item.form == COMET_FORM_RECOMPUTE ? run_again : NULL;
    item.context = (void *)&layers[index];
    check(item.name, comet_store_save(store, tensor, &item, &handle, NULL));
    return handle;
}

static void report(comet_store *store, comet_store_report kind) {
    size_t bytes;
    (void)comet_store_write_report(store, kind, NULL, 0, &bytes);
    char *text = malloc(bytes + 1);
    if (!text)
        exit(1);
    check("report", comet_store_write_report(store, kind, text, bytes + 1, &bytes));
    fputs(text, stdout);
    free(text);
}

static double largest_error(const float *a, const float *b) {
    double largest = 0.0;
    for (int i = 0; i < COUNT; i++) {
        double error = fabs((double)a[i] - (double)b[i]);
        largest = error > largest ? error : largest;
    }
    return largest;
}

int main(int argc, char **argv) {
    comet_store_options options = COMET_STORE_OPTIONS_INIT;
    options.limit_bytes = 1 << 20; /* a third of what the six tensors are */
    options.spill_directory = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    options.background = 1;
    comet_store *store;
    check("new", comet_store_new(&options, &store));

    float *values = malloc(COUNT * sizeof *values), *loaded = malloc(COUNT * sizeof *loaded);
    if (!values || !loaded)
        return 1;
    comet_tensor tensor;
    check("tensor", comet_tensor_init(&tensor, values, COMET_F32, COMET_NHWC, 4, (int64_t[]){1, SIDE, SIDE, CHANNELS}));

    comet_store_handle handles[LAYERS];
    for (int i = 0; i < LAYERS; i++) { /* forward: one buffer for all layers is enough */
        run_layer(i, values);
        handles[i] = save(store, i, &tensor);
    }
    report(store, argc > 1 && strcmp(argv[1], "json") == 0 ? COMET_REPORT_JSON : COMET_REPORT_TABLE);

    int wrong = 0;
    tensor.data = loaded;
    for (int i = LAYERS - 1; i >= 0; i--) { /* backward: what comes next is read ahead */
        if (i > 0)
            check("prefetch", comet_store_prefetch(store, handles[i - 1]));
        check("load", comet_store_load(store, handles[i], &tensor));
        run_layer(i, values);
        wrong += largest_error(values, loaded) > layers[i].allowed;
        check("release", comet_store_release(store, handles[i]));
    }
    comet_store_free(store);
    free(values);
    free(loaded);
    return wrong;
}
