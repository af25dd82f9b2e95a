/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop of one's own, with a store for what backward needs and a controller that sets its error bounds: three
 * convolutions, NHWC, SGD with momentum. Each layer's input is stored compressed and forgotten; backward takes it back.
 * usage: loop [IMAGES LABELS]    two IDX files, as Fashion-MNIST has them, not packed: in bash,
 *                                loop <(zcat train-images-idx3-ubyte.gz) <(zcat train-labels-idx1-ubyte.gz).
 * Without them: images of stripes, whose angle is the class.
 */
#include <comet/comet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, IMAGES = 10000, BATCH = 32, STEPS = 240, SHOWN = 30, LAYERS = 3 };
enum { LARGEST = BATCH * 14 * 14 * 8, MOST_WEIGHTS = 10 * 7 * 7 * 16, WORKSPACE = 1 << 16 };
static const float rate = 0.02f, momentum = 0.9f;

typedef struct layer {
    const char *name;
    int side, channels, out_side, out_channels, kernel, stride, padding;
    float w[MOST_WEIGHTS], dw[MOST_WEIGHTS], moment[MOST_WEIGHTS]; /* [output][row][column][input] */
    comet_store_handle handle;
    comet_stats_tensor saved; /* what was seen of its input when it was stored, */
    comet_stats_layer seen;   /* and in backward */
} layer;

static layer layers[LAYERS] = {{.name = "conv1", SIDE, 1, 14, 8, 3, 2, 1},
                               {.name = "conv2", 14, 8, 7, 16, 3, 2, 1},
                               {.name = "linear", 7, 16, 1, CLASSES, 7, 1, 0}}; /* its kernel is as large as the map */
static float pixels[IMAGES][PIXELS], values[2][LARGEST], gradients[2][LARGEST];
static unsigned char bytes[IMAGES][PIXELS], labels[IMAGES];
static int chosen[BATCH];
static comet_store *store;
static comet_control *control;
static comet_stats_exec exec = COMET_STATS_EXEC_INIT;

static void check(const char *what, comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "loop: %s: %s\n", what, comet_status_string(status));
    exit(1);
}

static float uniform(void) { /* -1 .. 1, the same everywhere */
    static unsigned long long state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (float)(1 << 23) - 1;
}

static int weights_of(const layer *l) {
    return l->out_channels * l->kernel * l->kernel * l->channels;
}

static void read_idx(const char *path, size_t header, size_t size, unsigned char *to) {
    FILE *file = fopen(path, "rb");
    if (!file || fread(to, 1, header, file) != header || fread(to, size, IMAGES, file) != IMAGES)
        check(path, COMET_ERROR_IO);
    fclose(file);
}

static void get_images(int argc, char **argv) {
    if (argc == 3) {
        read_idx(argv[1], 16, PIXELS, bytes[0]);
        read_idx(argv[2], 8, 1, labels);
    }
    for (int i = 0; i < IMAGES; i++) {
        const float phase = 3 * uniform(), angle = 3.14159265f * (float)(i % CLASSES) / CLASSES;
        labels[i] = argc == 3 ? labels[i] : (unsigned char)(i % CLASSES);
        for (int p = 0; p < PIXELS; p++) {
            const float across = (float)(p % SIDE) * cosf(angle) + (float)(p / SIDE) * sinf(angle);
            pixels[i][p] = argc == 3 ? (float)bytes[i][p] / 255 : sinf(0.8f * across + phase) + uniform();
        }
    }
}

/* Forward: y. Backward, y being NULL: dw and dx, from dy. */
static void convolve(layer *l, const float *x, float *y, const float *dy, float *dx) {
    const int taps = l->kernel * l->kernel;
    for (int p = 0; p < BATCH * l->out_side * l->out_side; p++)
        for (int tap = 0; tap < taps; tap++) {
            const int row = p / l->out_side % l->out_side * l->stride + tap / l->kernel - l->padding,
                      column = p % l->out_side * l->stride + tap % l->kernel - l->padding;
            if (row < 0 || row >= l->side || column < 0 || column >= l->side)
                continue;
            const int from = ((p / l->out_side / l->out_side * l->side + row) * l->side + column) * l->channels;
            for (int k = 0, to = p * l->out_channels; k < l->out_channels; k++, to++)
                for (int c = 0, w = (k * taps + tap) * l->channels; c < l->channels; c++, w++)
                    if (y) {
                        y[to] += x[from + c] * l->w[w];
                    } else {
                        l->dw[w] += dy[to] * x[from + c];
                        dx[from + c] += dy[to] * l->w[w];
                    }
        }
}

static comet_tensor tensor_of(float *data, int side, int channels) {
    comet_tensor t;
    check("tensor", comet_tensor_init(&t, data, COMET_F32, COMET_NHWC, 4, (int64_t[]){BATCH, side, side, channels}));
    return t;
}

/* A layer's input, with the controller's bound. Zeros stay zeros and nothing else becomes one: that is the ReLU's mask. */
static void save(int i, float *x, int collects, comet_store_bytes *sums) {
    const comet_control_bound_value bound = comet_control_bound(control, i);
    const comet_tensor tensor = tensor_of(x, layers[i].side, layers[i].channels);
    comet_codec_params codec = COMET_CODEC_PARAMS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_info info = {.size = sizeof info};
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    codec.bound_kind = bound.kind, codec.bound = bound.value, codec.keep_mask = 1;
    item.name = layers[i].name, item.form = COMET_FORM_CODEC, item.codec = &codec;
    check(item.name, comet_store_save(store, &tensor, &item, &layers[i].handle, &info));
    layers[i].saved = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    pass.result = &info.result, pass.values = collects ? &tensor : NULL;
    check("stored", comet_stats_see_tensor(&pass, &exec, &layers[i].saved));
    comet_control_see_rms(control, i, comet_stats_tensor_rms(&layers[i].saved));
    sums->raw += info.bytes.raw, sums->stored += info.bytes.stored;
}

/* In backward: of a layer without norms only dY need be seen, which is what COMET_LAYER_PASS_INIT asks for. */
static void see(layer *l, float *x, float *dy) {
    const comet_tensor input = tensor_of(x, l->side, l->channels),
                       gradient = tensor_of(dy, l->out_side, l->out_channels);
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    pass.input = &input, pass.gradient = &gradient;
    for (int a = 0; a < 2; a++)
        pass.kernel[a] = l->kernel, pass.stride[a] = l->stride, pass.padding[a] = l->padding;
    l->seen = (comet_stats_layer)COMET_STATS_LAYER_INIT;
    check("seen", comet_stats_see_layer(&pass, &exec, &l->seen));
}

/* The loss, its gradient, and how many were right. */
static double classify(const float *logits, float *dlogits, int *right) {
    double loss = 0;
    for (int n = 0; n < BATCH; n++, logits += CLASSES, dlogits += CLASSES) {
        const int label = labels[chosen[n]];
        int best = 0;
        double sum = 0;
        for (int k = 0; k < CLASSES; k++)
            best = logits[k] > logits[best] ? k : best;
        for (int k = 0; k < CLASSES; k++)
            sum += exp((double)(logits[k] - logits[best]));
        for (int k = 0; k < CLASSES; k++)
            dlogits[k] = (float)(exp((double)(logits[k] - logits[best])) / sum - (k == label)) / BATCH;
        loss += (log(sum) - (double)(logits[label] - logits[best])) / BATCH;
        *right += best == label;
    }
    return loss;
}

static double step(int collects, int *right, comet_store_bytes *sums) {
    memset(values, 0, sizeof values);
    for (int n = 0; n < BATCH; n++) {
        chosen[n] = (int)((uniform() + 1) / 2 * (IMAGES - 1));
        memcpy(values[0] + n * PIXELS, pixels[chosen[n]], sizeof pixels[0]);
    }
    for (int i = 0; i < LAYERS; i++) { /* forward: two buffers are enough for any number of layers */
        float *x = values[i % 2], *y = values[(i + 1) % 2];
        save(i, x, collects, sums);
        memset(y, 0, sizeof values[0]);
        convolve(&layers[i], x, y, NULL, NULL);
        for (int k = 0; k < LARGEST && i < LAYERS - 1; k++)
            y[k] = y[k] > 0 ? y[k] : 0;
    }
    const double loss = classify(values[LAYERS % 2], gradients[LAYERS % 2], right);
    for (int i = LAYERS - 1; i >= 0; i--) {
        float *x = values[0], *dy = gradients[(i + 1) % 2], *dx = gradients[i % 2];
        const comet_tensor input = tensor_of(x, layers[i].side, layers[i].channels);
        check("load", comet_store_load(store, layers[i].handle, &input));
        check("release", comet_store_release(store, layers[i].handle));
        if (collects)
            see(&layers[i], x, dy);
        memset(layers[i].dw, 0, sizeof layers[i].dw);
        memset(dx, 0, sizeof gradients[0]);
        convolve(&layers[i], x, NULL, dy, dx);
        for (int k = 0; k < LARGEST && i > 0; k++)
            dx[k] = x[k] > 0 ? dx[k] : 0;
    }
    return loss;
}

/* The weights, then, if it is wanted, what the controller must know of each layer's input. */
static void update(int iteration, int updates, int collects) {
    comet_use_stats stats[LAYERS];
    comet_control_observation seen[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &layers[i];
        comet_stats_use use = COMET_STATS_USE_INIT;
        double sizes = 0;
        for (int k = 0; k < weights_of(l); k++) {
            l->moment[k] = momentum * l->moment[k] + l->dw[k];
            l->w[k] -= rate * l->moment[k];
            sizes += fabs((double)l->moment[k]);
        }
        use.kind = COMET_USE_CONV_WEIGHTS, use.tensor = &l->saved, use.layer = &l->seen;
        use.momentum = comet_momentum_sgd(sizes / weights_of(l), (double)momentum, updates);
        if (collects)
            check("use", comet_stats_of_use(&use, &stats[i]));
        seen[i] = (comet_control_observation){.tensor = i, .rms = comet_stats_tensor_rms(&l->saved), .uses = &stats[i]};
    }
    if (collects)
        check("observe", comet_control_observe(control, iteration, seen, LAYERS));
}

static void make(void) {
    static comet_control_use uses[LAYERS];
    static comet_control_tensor tensors[LAYERS];
    comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
    comet_store_options memory = COMET_STORE_OPTIONS_INIT;
    for (int i = 0; i < LAYERS; i++) {
        const layer *l = &layers[i];
        uses[i] = (comet_control_use){COMET_USE_CONV_WEIGHTS, i};
        tensors[i] = (comet_control_tensor){l->name, (int64_t)BATCH * l->side * l->side * l->channels, 1, &uses[i]};
        for (int k = 0; k < weights_of(l); k++)
            layers[i].w[k] = uniform() * sqrtf(6.0f * (float)l->out_channels / (float)weights_of(l));
    }
    options.warmup = 20;
    check("store", comet_store_new(&memory, &store));
    check("control", comet_control_new(comet_control_find("comet"), &options, tensors, LAYERS, &control));
    exec.workspace =
        aligned_alloc(64, exec.workspace_bytes = WORKSPACE); /* comet_stats_layer_workspace says how much */
}

int main(int argc, char **argv) {
    double sum = 0, first = 0, last = 0;
    int right = 0, updates = 0;
    comet_store_bytes held = {0};
    get_images(argc, argv);
    make();
    printf(" step   loss  accuracy  stored/raw  bounds of %s, %s, %s\n", layers[0].name, layers[1].name,
           layers[2].name);
    for (int i = 0; i < STEPS; i++) {
        const int collects = comet_control_wants(control, i);
        const double loss = step(collects, &right, &held);
        if (comet_control_step(control, i, loss, isfinite(loss)) == COMET_CONTROL_GO_ON)
            update(i, ++updates, collects);
        sum += loss;
        if ((i + 1) % SHOWN != 0)
            continue;
        printf("%5d  %.3f  %6.1f %%  %8.1f %%", i + 1, sum / SHOWN, 100.0 * right / (SHOWN * BATCH),
               100.0 * (double)held.stored / (double)held.raw);
        for (int k = 0; k < LAYERS; k++)
            printf("  %.3g", comet_control_bound(control, k).value);
        printf("\n");
        last = sum, first = first > 0 ? first : sum;
        sum = right = 0, held = (comet_store_bytes){0};
    }
    comet_control_free(control);
    comet_store_free(store);
    free(exec.workspace);
    return last < 0.7 * first ? 0 : 1;
}
