/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each output value is a weighted mean of the inputs within one output pixel's width (two, when enlarging: of one input
 * pixel) of its centre; rows first, rounded to bytes, then columns. An input row goes through the first pass once and
 * is added to all output rows it belongs to, so that memory depends on the output's size and not on the input's height.
 */
#include "data/image/resize.h"

#include <string.h>

enum { PRECISION = 22 }; /* bits of a weight: 8 for the value and 2 for sums beyond one are left of 32 */

/* The weights of one axis: output i takes count[i] inputs from first[i] on. */
typedef struct axis {
    int32_t taps; /* room for the weights of an output */
    int32_t *first, *count, *weights;
} axis;

static double filter_width(int32_t in, int32_t out) {
    double scale = (double)in / out;
    return scale < 1.0 ? 1.0 : scale;
}

static int32_t taps_for(int32_t in, int32_t out) {
    double width = filter_width(in, out);
    int32_t whole = (int32_t)width;
    return 2 * (whole + (whole < width)) + 1;
}

static size_t axis_words(int32_t in, int32_t out) {
    return (size_t)out * (2 + (size_t)taps_for(in, out));
}

static double triangle(double x) {
    x = x < 0.0 ? -x : x;
    return x < 1.0 ? 1.0 - x : 0.0;
}

static void weigh_output(axis *a, int32_t i, int32_t in, int32_t out) {
    double width = filter_width(in, out), centre = (i + 0.5) * ((double)in / out), sum = 0.0;
    int32_t first = (int32_t)(centre - width + 0.5), end = (int32_t)(centre + width + 0.5);
    first = centre - width + 0.5 < 0.0 ? 0 : first;
    end = end > in ? in : end;
    int32_t *weights = a->weights + (size_t)i * (size_t)a->taps;
    double inverse = 1.0 / width;
    for (int32_t x = first; x < end; x++)
        sum += triangle((x - centre + 0.5) * inverse);
    for (int32_t x = first; x < end; x++) {
        double weight = triangle((x - centre + 0.5) * inverse) / sum;
        weights[x - first] = (int32_t)(weight * (1 << PRECISION) + 0.5);
    }
    a->first[i] = first;
    a->count[i] = end - first;
}

/* Lays the axis out at `words` and returns the place behind it. */
static int32_t *axis_init(axis *a, int32_t in, int32_t out, int32_t *words) {
    a->taps = taps_for(in, out);
    a->first = words;
    a->count = words + out;
    a->weights = words + 2 * (size_t)out;
    for (int32_t i = 0; i < out; i++)
        weigh_output(a, i, in, out);
    return words + axis_words(in, out);
}

static uint8_t to_byte(int32_t sum) {
    sum >>= PRECISION; /* weights are not negative, nor is a sum */
    return (uint8_t)(sum > 255 ? 255 : sum);
}

static void resize_row_grey(const axis *a, const uint8_t *in, int32_t width, uint8_t *out) {
    for (int32_t i = 0; i < width; i++) {
        const int32_t *weights = a->weights + (size_t)i * (size_t)a->taps;
        const uint8_t *p = in + a->first[i];
        int32_t sum = 1 << (PRECISION - 1);
        for (int32_t k = 0; k < a->count[i]; k++)
            sum += weights[k] * p[k];
        out[i] = to_byte(sum);
    }
}

static void resize_row_rgb(const axis *a, const uint8_t *in, int32_t width, uint8_t *out) {
    for (int32_t i = 0; i < width; i++, out += 3) {
        const int32_t *weights = a->weights + (size_t)i * (size_t)a->taps;
        const uint8_t *p = in + 3 * (size_t)a->first[i];
        int32_t red = 1 << (PRECISION - 1), green = red, blue = red;
        for (int32_t k = 0; k < a->count[i]; k++, p += 3) {
            red += weights[k] * p[0];
            green += weights[k] * p[1];
            blue += weights[k] * p[2];
        }
        out[0] = to_byte(red);
        out[1] = to_byte(green);
        out[2] = to_byte(blue);
    }
}

static void add_row(int32_t *sums, const uint8_t *row, int32_t weight, size_t values) {
    for (size_t i = 0; i < values; i++)
        sums[i] += weight * row[i];
}

static void copy_box(const comet_image *image, comet_box box, uint8_t *out) {
    size_t row = (size_t)box.width * (size_t)image->channels;
    for (int32_t y = 0; y < box.height; y++) {
        size_t from = ((size_t)(box.top + y) * (size_t)image->width + (size_t)box.left) * (size_t)image->channels;
        memcpy(out + (size_t)y * row, image->pixels + from, row);
    }
}

size_t comet_resize_workspace(int32_t most_side, int32_t height, int32_t width, int32_t channels) {
    size_t row = (size_t)width * (size_t)channels;
    return 4 * (axis_words(most_side, height) + axis_words(most_side, width) + row * (size_t)height) + row;
}

void comet_resize(const comet_image *image, comet_box box, int32_t height, int32_t width, void *workspace,
                  uint8_t *out) {
    if (box.height == height && box.width == width) {
        copy_box(image, box, out);
        return;
    }
    size_t channels = (size_t)image->channels, row = (size_t)width * channels;
    axis rows, columns;
    int32_t *sums = axis_init(&columns, box.height, height, axis_init(&rows, box.width, width, workspace));
    uint8_t *resized = (uint8_t *)(sums + row * (size_t)height);
    for (size_t i = 0; i < row * (size_t)height; i++)
        sums[i] = 1 << (PRECISION - 1);
    int32_t begin = 0; /* the first output row that is not complete */
    for (int32_t y = 0; y < box.height; y++) {
        const uint8_t *in =
            image->pixels + ((size_t)(box.top + y) * (size_t)image->width + (size_t)box.left) * channels;
        (channels == 1 ? resize_row_grey : resize_row_rgb)(&rows, in, width, resized);
        while (begin < height && columns.first[begin] + columns.count[begin] <= y)
            begin++;
        for (int32_t o = begin; o < height && columns.first[o] <= y; o++)
            add_row(sums + (size_t)o * row, resized,
                    columns.weights[(size_t)o * (size_t)columns.taps + (size_t)(y - columns.first[o])], row);
    }
    for (size_t i = 0; i < row * (size_t)height; i++)
        out[i] = to_byte(sums[i]);
}
