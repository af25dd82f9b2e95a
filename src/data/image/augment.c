/* SPDX-License-Identifier: Apache-2.0 */
/* Only operations that IEEE 754 rounds correctly are used, so that the same seed is the same view on every machine. */
#include "data/image/augment.h"

#include <math.h>

#include "base/random.h"

enum { TRIES = 10 };

static int32_t clamp(double value, int32_t most) {
    int32_t whole = (int32_t)(value + 0.5);
    return whole < 1 ? 1 : whole > most ? most : whole;
}

/* The centred rectangle of shape height : width, `part` of the largest there is. */
static comet_box centre_box(double part, int32_t in_height, int32_t in_width, int32_t height, int32_t width) {
    double tall = in_height, wide = in_width;
    if ((int64_t)in_width * height > (int64_t)in_height * width)
        wide = tall * width / height;
    else
        tall = wide * height / width;
    comet_box box = {.height = clamp(tall * part, in_height), .width = clamp(wide * part, in_width)};
    box.top = (in_height - box.height) / 2;
    box.left = (in_width - box.width) / 2;
    return box;
}

/* Aspects from 3/4 to 4/3, those below one as often as those above. */
static double draw_aspect(comet_random *r) {
    double aspect = 1.0 + comet_random_unit(r) / 3.0;
    return comet_random_word(r) & 1 ? aspect : 1.0 / aspect;
}

static bool draw_box(const comet_augment_rule *rule, comet_random *r, int32_t in_height, int32_t in_width,
                     comet_box *box) {
    double area = (double)in_height * in_width;
    area *= rule->least_area + (1.0 - rule->least_area) * comet_random_unit(r);
    double aspect = draw_aspect(r);
    double wide = sqrt(area * aspect) + 0.5, tall = sqrt(area / aspect) + 0.5;
    uint32_t down = comet_random_word(r), right = comet_random_word(r);
    if (wide < 1.0 || tall < 1.0 || wide >= in_width + 1.0 || tall >= in_height + 1.0)
        return false;
    *box = (comet_box){.height = (int32_t)tall, .width = (int32_t)wide};
    box->top = (int32_t)((uint64_t)down * (uint32_t)(in_height - box->height + 1) >> 32);
    box->left = (int32_t)((uint64_t)right * (uint32_t)(in_width - box->width + 1) >> 32);
    return true;
}

static int32_t draw_shift(comet_random *r, int32_t side) {
    int32_t most = side / 8 ? side / 8 : 1;
    return (int32_t)comet_random_below(r, (uint32_t)(2 * most + 1)) - most;
}

comet_view comet_augment_view(const comet_augment_rule *rule, uint64_t seed, uint32_t epoch, int64_t sample,
                              int32_t in_height, int32_t in_width, int32_t height, int32_t width) {
    comet_view view = {.box = centre_box(rule->centre, in_height, in_width, height, width)};
    if (rule->kind <= COMET_AUGMENT_NONE)
        return view;
    comet_random r = comet_random_of(seed, COMET_RANDOM_AUGMENT, epoch, (uint64_t)sample);
    view.flipped = comet_random_word(&r) & 1;
    if (rule->kind == COMET_AUGMENT_CROP) {
        view.down = draw_shift(&r, height);
        view.right = draw_shift(&r, width);
    }
    for (int i = 0; rule->kind == COMET_AUGMENT_RESIZED_CROP && i < TRIES; i++)
        if (draw_box(rule, &r, in_height, in_width, &view.box))
            break;
    return view;
}
