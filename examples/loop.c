/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A training loop of one's own, with a store for what backward needs and a controller that sets its error bounds:
 * linear layers and ReLUs on Fashion-MNIST, SGD with momentum. Each layer's input is stored compressed and forgotten;
 * backward takes it back.
 * usage: loop [FOLDER]    with train-images-idx3-ubyte.gz and train-labels-idx1-ubyte.gz
 */
#include <comet/comet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAYERS = 3, BATCH = 64, STEPS = 300, SHOWN = 50, IMAGES = 20000, PIXELS = 784, CLASSES = 10, HIDDEN = 128 };
static const int widths[LAYERS + 1] = {PIXELS, HIDDEN, HIDDEN, CLASSES};
static const float rate = 0.05f, momentum = 0.9f;

typedef struct layer {
    int in, out;
    float w[HIDDEN * PIXELS], dw[HIDDEN * PIXELS], moment[HIDDEN * PIXELS]; /* [out][in] */
    comet_store_handle handle;
    comet_stats_tensor saved; /* what was seen of its input when it was stored, */
    comet_stats_layer seen;   /* and in backward */
} layer;

static layer layers[LAYERS];
static unsigned char pixels[IMAGES][PIXELS], labels[IMAGES];
static float values[2][BATCH * PIXELS], gradients[2][BATCH * PIXELS]; /* two are enough for any number of layers */
static _Alignas(64) char workspace[1 << 20]; /* comet_stats_layer_workspace says how much is needed */
static comet_stats_exec exec = COMET_STATS_EXEC_INIT;
static comet_store *store;
static comet_control *control;

static void check(const char *what, comet_status status) {
    if (status == COMET_OK)
        return;
    fprintf(stderr, "loop: %s: %s: %s\n", what, comet_status_string(status), comet_last_error());
    exit(1);
}

static void read_idx(const char *folder, const char *name, size_t header, size_t size, void *to) {
    char command[1024];
    snprintf(command, sizeof command, "zcat '%s/%s.gz' 2>/dev/null", folder, name);
    FILE *pipe = popen(command, "r");
    if (!pipe || fread(to, 1, header, pipe) != header || fread(to, size, IMAGES, pipe) != IMAGES) {
        printf("skipped: no %s.gz in %s (on Debian: apt-get install dataset-fashion-mnist)\n", name, folder);
        exit(77);
    }
    pclose(pipe);
}

static void make(void) {
    static comet_control_use uses[LAYERS];
    static comet_control_tensor tensors[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        const int in = layers[i].in = widths[i], out = layers[i].out = widths[i + 1];
        for (int k = 0; k < in * out; k++)
            layers[i].w[k] = ((float)rand() / (float)RAND_MAX * 2 - 1) * sqrtf(6.0f / (float)in);
        uses[i] = (comet_control_use){COMET_USE_LINEAR_WEIGHTS, i}; /* its error reaches these weights' gradient */
        tensors[i] = (comet_control_tensor){"layer", (int64_t)BATCH * in, 1, &uses[i]};
    }
    comet_store_options memory = COMET_STORE_OPTIONS_INIT;
    comet_control_options options = COMET_CONTROL_OPTIONS_INIT;
    check("store", comet_store_new(&memory, &store));
    check("control", comet_control_new(comet_control_find("comet"), &options, tensors, LAYERS, &control));
    exec.workspace = workspace, exec.workspace_bytes = sizeof workspace;
}

static comet_tensor tensor_of(float *data, int width) {
    comet_tensor t;
    check("tensor", comet_tensor_init(&t, data, COMET_F32, COMET_FLAT, 2, (int64_t[]){BATCH, width}));
    return t;
}

/* A layer's input, within the controller's bound. Zeros stay zeros and nothing else becomes one: the ReLU's mask. */
static void save(int i, float *x, int collects, comet_store_bytes *sums) {
    const comet_control_bound_value bound = comet_control_bound(control, i);
    const comet_tensor tensor = tensor_of(x, layers[i].in);
    comet_codec_params codec = COMET_CODEC_PARAMS_INIT;
    comet_store_item item = COMET_STORE_ITEM_INIT;
    comet_store_info info = COMET_STORE_INFO_INIT;
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    codec.bound_kind = bound.kind, codec.bound = bound.value, codec.keep_mask = 1;
    item.form = COMET_FORM_CODEC, item.codec = &codec;
    check("save", comet_store_save(store, &tensor, &item, &layers[i].handle, &info));
    sums->raw += info.bytes.raw, sums->stored += info.bytes.stored;
    pass.result = &info.result, pass.values = collects ? &tensor : NULL;
    layers[i].saved = (comet_stats_tensor)COMET_STATS_TENSOR_INIT;
    check("stored", comet_stats_see_tensor(&pass, &exec, &layers[i].saved));
    comet_control_see_rms(control, i, comet_stats_tensor_rms(&layers[i].saved));
}

static void forward(const layer *l, const float *x, float *y, int relu) {
    for (int n = 0; n < BATCH; n++)
        for (int o = 0; o < l->out; o++) {
            float sum = 0;
            for (int k = 0; k < l->in; k++)
                sum += x[n * l->in + k] * l->w[o * l->in + k];
            y[n * l->out + o] = relu && sum < 0 ? 0 : sum;
        }
}

/* The input is back, the gradient of the output at hand: what the controller must know is seen here. */
static void backward(layer *l, float *x, float *dy, float *dx, int collects) {
    const comet_tensor input = tensor_of(x, l->in), gradient = tensor_of(dy, l->out);
    comet_layer_pass pass = COMET_LAYER_PASS_INIT;
    pass.input = &input, pass.gradient = &gradient;
    l->seen = (comet_stats_layer)COMET_STATS_LAYER_INIT;
    check("load", comet_store_load(store, l->handle, &input));
    check("release", comet_store_release(store, l->handle));
    if (collects)
        check("seen", comet_stats_see_layer(&pass, &exec, &l->seen));
    memset(l->dw, 0, sizeof l->dw);
    memset(dx, 0, sizeof gradients[0]);
    for (int n = 0; n < BATCH; n++)
        for (int o = 0; o < l->out; o++)
            for (int k = 0; k < l->in; k++) {
                l->dw[o * l->in + k] += dy[n * l->out + o] * x[n * l->in + k];
                dx[n * l->in + k] += x[n * l->in + k] > 0 ? dy[n * l->out + o] * l->w[o * l->in + k] : 0;
            }
}

static double classify(const float *logits, const int *chosen, float *dlogits) {
    double loss = 0;
    for (int n = 0; n < BATCH; n++, logits += CLASSES, dlogits += CLASSES) {
        const int label = labels[chosen[n]];
        double sum = 0;
        for (int k = 0; k < CLASSES; k++)
            sum += exp((double)logits[k]);
        for (int k = 0; k < CLASSES; k++)
            dlogits[k] = (float)(exp((double)logits[k]) / sum - (k == label)) / BATCH;
        loss += (log(sum) - (double)logits[label]) / BATCH;
    }
    return loss;
}

static double step(int collects, comet_store_bytes *sums) {
    int chosen[BATCH];
    for (int n = 0; n < BATCH; n++) {
        chosen[n] = rand() % IMAGES;
        for (int p = 0; p < PIXELS; p++)
            values[0][n * PIXELS + p] = (float)pixels[chosen[n]][p] / 255;
    }
    for (int i = 0; i < LAYERS; i++) {
        save(i, values[i % 2], collects, sums);
        forward(&layers[i], values[i % 2], values[(i + 1) % 2], i < LAYERS - 1);
    }
    const double loss = classify(values[LAYERS % 2], chosen, gradients[LAYERS % 2]);
    for (int i = LAYERS - 1; i >= 0; i--)
        backward(&layers[i], values[0], gradients[(i + 1) % 2], gradients[i % 2], collects);
    return loss;
}

/* The weights; then, if it is wanted, what the controller must know of each layer's input. */
static void update(int iteration, int updates, int collects) {
    comet_use_stats stats[LAYERS];
    comet_control_observation seen[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        layer *l = &layers[i];
        comet_stats_use use = COMET_STATS_USE_INIT;
        double sizes = 0;
        for (int k = 0; k < l->in * l->out; k++) {
            l->moment[k] = momentum * l->moment[k] + l->dw[k];
            l->w[k] -= rate * l->moment[k];
            sizes += fabs((double)l->moment[k]);
        }
        use.kind = COMET_USE_LINEAR_WEIGHTS, use.tensor = &l->saved, use.layer = &l->seen;
        use.momentum = comet_momentum_sgd(sizes / (l->in * l->out), (double)momentum, updates);
        if (collects)
            check("use", comet_stats_of_use(&use, &stats[i]));
        seen[i] = (comet_control_observation){.tensor = i, .rms = comet_stats_tensor_rms(&l->saved), .uses = &stats[i]};
    }
    if (collects)
        check("observe", comet_control_observe(control, iteration, seen, LAYERS));
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "/usr/share/datasets/fashion-mnist";
    double sum = 0, first = 0, last = 0;
    comet_store_bytes held = {0};
    read_idx(folder, "train-images-idx3-ubyte", 16, PIXELS, pixels);
    read_idx(folder, "train-labels-idx1-ubyte", 8, 1, labels);
    make();
    for (int i = 0, updates = 0; i < STEPS; i++) {
        const int collects = comet_control_wants(control, i);
        const double loss = step(collects, &held);
        if (comet_control_step(control, i, loss, isfinite(loss)) == COMET_CONTROL_GO_ON)
            update(i, ++updates, collects);
        sum += loss;
        if ((i + 1) % SHOWN != 0)
            continue;
        printf("step %3d: loss %.3f, stored %.1f %% of the bytes, bounds", i + 1, sum / SHOWN,
               100.0 * (double)held.stored / (double)held.raw);
        for (int k = 0; k < LAYERS; k++)
            printf(" %.3g%s", comet_control_bound(control, k).value, k < LAYERS - 1 ? "," : "\n");
        last = sum, first = first > 0 ? first : sum, sum = 0;
    }
    comet_control_free(control);
    comet_store_free(store);
    return last < 0.7 * first ? 0 : 1; /* it has learnt */
}
