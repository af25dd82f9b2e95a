/* SPDX-License-Identifier: Apache-2.0 */
/* Maps of a few images at a few depths, the same channels of all networks side by side. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/look/colours.h"
#include "cmd/look/look.h"

enum { CHANNELS = 4, MANY = 3, WIDE = 60, IMAGE_WIDE = 84, LABEL = 80, MOST_ROWS = COMET_LOOK_DEPTHS + 1 };

/* A channel of the first network, and what it is put beside: with the range of colours for all of them. */
typedef struct matched {
    int channel[LOOK_MOST];
    double correlation[LOOK_MOST];
    double low, high;
} matched;

typedef struct maps {
    const look_case *c;
    int depths, channels, images;
    matched all[COMET_LOOK_DEPTHS][CHANNELS];
    uint8_t palette[3 * COLOURS];
} maps;

/* What a figure's pictures live in. */
typedef struct sheet {
    report_picture pictures[MOST_ROWS][LOOK_MOST][CHANNELS];
    report_cell cells[MOST_ROWS * LOOK_MOST];
    uint8_t pixels[MOST_ROWS][LOOK_MOST][CHANNELS][COMET_LOOK_FINE * COMET_LOOK_FINE];
    char labels[MOST_ROWS][LOOK_MOST][CHANNELS][LABEL];
    char shapes[MOST_ROWS][LOOK_SHAPE];
    uint8_t *image; /* RGBA */
} sheet;

/* ---- channels ---- */

static void widen_range(const maps *m, int depth, int which, matched *one) {
    for (int image = 0; image < m->images; image++) {
        comet_shape shape;
        const float *values = comet_look_fine(m->c->networks[which].look, depth, image, &shape);
        for (int p = 0; p < shape.height * shape.width; p++) {
            const double value = (double)values[(int64_t)p * shape.channels + one->channel[which]];
            one->low = fmin(one->low, value);
            one->high = fmax(one->high, value);
        }
    }
}

static void match(const maps *m, int depth, int channel, matched *one) {
    const comet_maps first = comet_look_coarse(m->c->networks[0].look, depth);
    *one = (matched){.low = (double)INFINITY, .high = -(double)INFINITY};
    for (int i = 0; i < m->c->count; i++) {
        const comet_maps own = comet_look_coarse(m->c->networks[i].look, depth);
        one->channel[i] = channel;
        one->correlation[i] = 1;
        if (i > 0)
            one->channel[i] = comet_match_channel(&first, channel, &own, &one->correlation[i]);
        widen_range(m, depth, i, one);
    }
}

static void find_channels(maps *m) {
    m->depths = comet_look_depths(m->c->networks[0].look);
    m->channels = m->c->count > 3 ? MANY : CHANNELS;
    m->images = m->c->images.count < COMET_LOOK_SHOWN ? m->c->images.count : COMET_LOOK_SHOWN;
    colours_palette(m->palette);
    for (int depth = 0; depth < m->depths; depth++) {
        const comet_maps first = comet_look_coarse(m->c->networks[0].look, depth);
        int strongest[CHANNELS];
        m->channels = first.channels < m->channels ? first.channels : m->channels;
        comet_match_strongest(&first, m->channels, strongest);
        for (int k = 0; k < m->channels; k++)
            match(m, depth, strongest[k], &m->all[depth][k]);
    }
}

/* ---- pictures ---- */

static void paint(const maps *m, sheet *s, int image, int depth, int which) {
    const int row = depth + 1;
    for (int k = 0; k < m->channels; k++) {
        const matched *one = &m->all[depth][k];
        comet_shape shape;
        const float *values = comet_look_fine(m->c->networks[which].look, depth, image, &shape);
        uint8_t *pixels = s->pixels[row][which][k];
        char *label = s->labels[row][which][k];
        for (int p = 0; p < shape.height * shape.width; p++)
            pixels[p] =
                colours_index((double)values[(int64_t)p * shape.channels + one->channel[which]], one->low, one->high);
        if (which)
            snprintf(label, LABEL, "%d \u00b7 %.2f", one->channel[which], one->correlation[which]);
        else
            snprintf(label, LABEL, "%d", one->channel[which]);
        s->pictures[row][which][k] = (report_picture){shape.width, shape.height, pixels, m->palette, WIDE, label};
    }
    s->cells[row * m->c->count + which] = (report_cell){s->pictures[row][which], m->channels};
}

static int paint_image(const maps *m, sheet *s, int image) {
    const look_images *images = &m->c->images;
    const uint8_t *from = images->pixels + image * images->bytes;
    const size_t count = (size_t)images->width * (size_t)images->height;
    s->image = malloc(4 * count);
    if (!s->image)
        return fail_memory();
    for (size_t p = 0; p < count; p++) {
        for (size_t k = 0; k < 3; k++)
            s->image[4 * p + k] = from[p * (size_t)images->channels + (images->channels < 3 ? 0 : k)];
        s->image[4 * p + 3] = 255;
    }
    for (int i = 0; i < m->c->count; i++) {
        char number[NETWORK_NAME];
        snprintf(s->labels[0][i][0], LABEL, "taken for %.60s",
                 look_label(m->c, m->c->networks[i].taken[image], number));
        s->pictures[0][i][0] =
            (report_picture){images->width, images->height, s->image, NULL, IMAGE_WIDE, s->labels[0][i][0]};
        s->cells[i] = (report_cell){s->pictures[0][i], 1};
    }
    return DONE;
}

static void put(report *r, const maps *m, sheet *s, int image) {
    const char *columns[LOOK_MOST], *rows[MOST_ROWS] = {"image"}, *notes[MOST_ROWS] = {NULL};
    char title[160], number[NETWORK_NAME];
    for (int i = 0; i < m->c->count; i++)
        columns[i] = m->c->networks[i].name.text;
    for (int depth = 0; depth < m->depths; depth++) {
        const comet_look *first = m->c->networks[0].look;
        const comet_look_layer *layer = comet_look_layer_at(first, comet_look_depth_layer(first, depth));
        rows[depth + 1] = layer->name;
        notes[depth + 1] = look_shape_text(layer->shape, s->shapes[depth + 1]);
    }
    snprintf(title, sizeof title, "What layers make of image %d: %.80s", image + 1,
             look_label(m->c, m->c->images.labels[image], number));
    const report_gallery gallery = {.title = title,
                                    .columns = columns,
                                    .column_count = m->c->count,
                                    .rows = rows,
                                    .notes = notes,
                                    .row_count = m->depths + 1,
                                    .cells = s->cells};
    report_pictures(r, &gallery);
}

static int put_image(report *r, const maps *m, int image) {
    sheet *s = calloc(1, sizeof *s);
    int answer = s ? paint_image(m, s, image) : fail_memory();
    for (int depth = 0; answer == DONE && depth < m->depths; depth++)
        for (int i = 0; i < m->c->count; i++)
            paint(m, s, image, depth, i);
    if (answer == DONE)
        put(r, m, s, image);
    if (s)
        free(s->image);
    free(s);
    return answer;
}

int look_put_maps(report *r, const look_case *c) {
    maps m = {.c = c};
    int answer = DONE;
    find_channels(&m);
    if (m.depths == 0 || m.channels == 0)
        return DONE;
    report_text(r, "Maps: the channels of the first network that vary most, and for each the channel of another "
                   "network whose maps correlate most with it over the first 32 images. The number is the channel's, "
                   "behind it is the correlation. Trainings that began with the same values (the same seed) mostly "
                   "keep a channel's number; between different seeds the order of channels means nothing, and even "
                   "the best match may do something else. Colours go from the least value of a channel (dark) to the "
                   "greatest, over all networks and the images shown.");
    for (int image = 0; image < m.images && answer == DONE; image++)
        answer = put_image(r, &m, image);
    return answer;
}
