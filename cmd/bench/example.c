/* SPDX-License-Identifier: Apache-2.0 */
/* A small network on rendered images: convolution, batch normalisation and ReLU, three times. */
#include "cmd/bench/example.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

enum { IMAGES = 4, COLOURS = 3, SIDE = 96, SHAPES = 12, KERNEL = 5, LAYERS = 3 };

/* Numbers from a counter (splitmix64): uniform in 0 .. 1. */
static double uniform(uint64_t *state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

/* About normal: the sum of four. */
static double normal(uint64_t *state) {
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += uniform(state) - 0.5;
    return sum * 1.7320508; /* each has variance 1/12 */
}

/* N maps of C channels, SIDE or smaller, all in one block. */
typedef struct maps {
    int channels, side;
    float *values;
} maps;

static int maps_new(maps *m, int channels, int side) {
    *m = (maps){channels, side, malloc((size_t)IMAGES * (size_t)channels * (size_t)(side * side) * sizeof(float))};
    return m->values ? DONE : fail_memory();
}

static float *map_at(const maps *m, int image, int channel) {
    return m->values + (ptrdiff_t)(image * m->channels + channel) * m->side * m->side;
}

/* A blob with a soft edge, lit from one side, with a grating on it. */
typedef struct shape {
    double x, y, width, height, turn, colour[COLOURS], light, wave, direction;
} shape;

static shape random_shape(uint64_t *state) {
    shape s = {.x = uniform(state), .y = uniform(state), .width = 0.05 + 0.2 * uniform(state)};
    s.height = s.width * (0.5 + uniform(state));
    s.turn = 3.14159 * uniform(state);
    for (int c = 0; c < COLOURS; c++)
        s.colour[c] = uniform(state);
    s.light = 6.28319 * uniform(state);
    s.wave = 20 + 130 * uniform(state);
    s.direction = 3.14159 * uniform(state);
    return s;
}

static void draw_shape(const maps *images, int image, const shape *s) {
    for (int i = 0; i < SIDE * SIDE; i++) {
        double x = (i % SIDE + 0.5) / SIDE - s->x, y = (i / SIDE + 0.5) / SIDE - s->y;
        double u = (x * cos(s->turn) + y * sin(s->turn)) / s->width,
               v = (y * cos(s->turn) - x * sin(s->turn)) / s->height;
        double distance = sqrt(u * u + v * v), cover = 1 / (1 + exp(24 * (distance - 1)));
        double light = 0.75 + 0.35 * (u * cos(s->light) + v * sin(s->light));
        double texture = 1 + 0.15 * sin(s->wave * (x * cos(s->direction) + y * sin(s->direction)));
        for (int c = 0; c < COLOURS; c++) {
            float *pixel = map_at(images, image, c) + i;
            *pixel = (float)((double)*pixel * (1 - cover) + cover * s->colour[c] * light * texture);
        }
    }
}

static void render(const maps *images, uint64_t *state) {
    for (int image = 0; image < IMAGES; image++) {
        for (int c = 0; c < COLOURS; c++) {
            double left = uniform(state), right = uniform(state);
            for (int i = 0; i < SIDE * SIDE; i++)
                map_at(images, image, c)[i] = (float)(left + (right - left) * (i % SIDE + i / SIDE) / (2 * SIDE) +
                                                      0.03 * normal(state)); /* a sensor's noise */
        }
        for (int s = 0; s < SHAPES; s++) {
            shape drawn = random_shape(state);
            draw_shape(images, image, &drawn);
        }
    }
}

/* Three of four filters are Gabor patches, as trained first layers have them; the rest is random. */
static void make_filter(float *filter, int channels, int number, uint64_t *state) {
    double turn = 3.14159 * uniform(state), wave = 0.8 + 1.6 * uniform(state), phase = 6.28319 * uniform(state);
    for (int c = 0; c < channels; c++) {
        double weight = normal(state);
        for (int i = 0; i < KERNEL * KERNEL; i++) {
            double x = i % KERNEL - KERNEL / 2, y = i / KERNEL - KERNEL / 2;
            double gabor = exp(-(x * x + y * y) / 4) * cos(wave * (x * cos(turn) + y * sin(turn)) + phase);
            filter[c * KERNEL * KERNEL + i] = (float)(number % 4 == 3 ? 0.4 * normal(state) : weight * gabor);
        }
    }
}

/* Adds one input map, filtered, to one output map. Outside the map is zero. */
static void convolve_map(const float *in, int in_side, const float *filter, float *out, int out_side, int stride) {
    for (int y = 0; y < out_side; y++)
        for (int ky = 0; ky < KERNEL; ky++) {
            int in_y = y * stride + ky - KERNEL / 2;
            if (in_y < 0 || in_y >= in_side)
                continue;
            for (int x = 0; x < out_side; x++)
                for (int kx = 0; kx < KERNEL; kx++) {
                    int in_x = x * stride + kx - KERNEL / 2;
                    if (in_x >= 0 && in_x < in_side)
                        out[y * out_side + x] += filter[ky * KERNEL + kx] * in[in_y * in_side + in_x];
                }
        }
}

static int convolve(const maps *in, const maps *out, uint64_t *state) {
    size_t taps = (size_t)in->channels * KERNEL * KERNEL;
    float *filter = malloc(taps * sizeof *filter);
    if (!filter)
        return fail_memory();
    for (int o = 0; o < out->channels; o++) {
        make_filter(filter, in->channels, o, state);
        for (int image = 0; image < IMAGES; image++) {
            float *map = map_at(out, image, o);
            memset(map, 0, (size_t)(out->side * out->side) * sizeof *map);
            for (int i = 0; i < in->channels; i++)
                convolve_map(map_at(in, image, i), in->side, filter + i * KERNEL * KERNEL, map, out->side,
                             in->side / out->side);
        }
    }
    free(filter);
    return DONE;
}

/* relu(gamma * (x - mean) / deviation + beta), in place, statistics over the batch. */
static void normalise_and_cut(const maps *m, uint64_t *state) {
    int size = m->side * m->side;
    for (int c = 0; c < m->channels; c++) {
        double sum = 0, squares = 0, gamma = 0.5 + uniform(state), beta = 0.5 * normal(state);
        for (int i = 0; i < IMAGES * size; i++) {
            double x = map_at(m, i / size, c)[i % size];
            sum += x;
            squares += x * x;
        }
        double mean = sum / (IMAGES * size), scale = gamma / sqrt(squares / (IMAGES * size) - mean * mean + 1e-5);
        for (int i = 0; i < IMAGES * size; i++) {
            float *x = map_at(m, i / size, c) + i % size;
            *x = (float)fmax(0, ((double)*x - mean) * scale + beta);
        }
    }
}

static int add_maps(tensor_list *list, const char *operation, int layer, const maps *m) {
    char name[64];
    array *added;
    const int64_t tensor_shape[] = {IMAGES, m->channels, m->side, m->side};
    snprintf(name, sizeof name, "%s%d_%dx%dx%d", operation, layer + 1, m->channels, m->side, m->side);
    if (tensors_add(list, name, COMET_F32, COMET_NCHW, 4, tensor_shape, &added) != DONE)
        return FAILED;
    memcpy(added->tensor.data, m->values, array_bytes(added));
    return DONE;
}

/* `in` becomes the layer's output. */
static int run_layer(tensor_list *list, int layer, maps *in, uint64_t *state) {
    static const int channels[LAYERS] = {16, 32, 64}, sides[LAYERS] = {SIDE, SIDE / 2, SIDE / 4};
    maps out;
    int answer = maps_new(&out, channels[layer], sides[layer]);
    if (answer == DONE)
        answer = convolve(in, &out, state);
    if (answer == DONE)
        answer = add_maps(list, "conv", layer, &out);
    if (answer == DONE) {
        normalise_and_cut(&out, state);
        answer = add_maps(list, "relu", layer, &out);
    }
    free(in->values);
    *in = out;
    return answer;
}

int example_add(tensor_list *list) {
    uint64_t state = 3;
    maps current;
    int answer = maps_new(&current, COLOURS, SIDE);
    if (answer == DONE)
        render(&current, &state);
    for (int layer = 0; layer < LAYERS && answer == DONE; layer++)
        answer = run_layer(list, layer, &current, &state);
    free(current.values);
    return answer;
}
