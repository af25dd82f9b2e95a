/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ten shapes on noise: a set to try things with where no other is installed. Place, size, brightness and noise are
 * drawn for each image from a counter; integers alone, so the same bytes everywhere. Every shape is its own mirror
 * image.
 */
#include <stdlib.h>

#include "base/random.h"
#include "data/sets/dataset_impl.h"

enum { CLASSES = 10, SIDE = 28, LEAST_RADIUS = 5, MOST_RADIUS = 10, MOST_SHIFT = 4, SEED = 20 };

static const char *const class_names[CLASSES] = {"disc", "ring", "square", "frame",   "bar",
                                                 "post", "plus", "cross",  "stripes", "checkerboard"};
static const comet_dataset_kind kind = {0};

/* Whether (x, y), from the centre, is in the shape of radius r. */
static int inside(int shape, int x, int y, int r) {
    int ax = abs(x), ay = abs(y), most = ax > ay ? ax : ay, square = x * x + y * y;
    switch (shape) {
    case 0:
        return square <= r * r;
    case 1:
        return square <= r * r && square >= (r - 2) * (r - 2);
    case 2:
        return most <= r - 1;
    case 3:
        return most <= r && most >= r - 1;
    case 4:
        return ax <= r && ay <= 1;
    case 5:
        return ay <= r && ax <= 1;
    case 6:
        return (ax <= r && ay <= 1) || (ay <= r && ax <= 1);
    case 7:
        return most <= r && abs(ax - ay) <= 1;
    case 8:
        return most <= r && ay % 4 < 2;
    default:
        return most <= r && (ax / 3 + ay / 3) % 2 == 0;
    }
}

static void draw_image(int shape, comet_random *random, uint8_t *pixels) {
    int radius = LEAST_RADIUS + (int)comet_random_below(random, MOST_RADIUS - LEAST_RADIUS + 1);
    int cx = SIDE / 2 + (int)comet_random_below(random, 2 * MOST_SHIFT + 1) - MOST_SHIFT;
    int cy = SIDE / 2 + (int)comet_random_below(random, 2 * MOST_SHIFT + 1) - MOST_SHIFT;
    int back = (int)comet_random_below(random, 80), front = back + 50 + (int)comet_random_below(random, 90);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            int noise = (int)comet_random_below(random, 36);
            pixels[y * SIDE + x] = (uint8_t)((inside(shape, x - cx, y - cy, radius) ? front : back) + noise);
        }
}

static void fill(comet_dataset_part *part, uint32_t split) {
    for (int64_t i = 0; i < part->count; i++) {
        comet_random random = comet_random_of(SEED, COMET_RANDOM_GENERATED, split, (uint64_t)i);
        part->labels[i] = (int32_t)comet_random_below(&random, CLASSES);
        draw_image(part->labels[i], &random, part->pixels + i * SIDE * SIDE);
    }
}

comet_status comet_generated_open(int64_t count, const comet_allocator *allocator, comet_dataset **out,
                                  comet_message *message) {
    comet_dataset *set;
    comet_status status = comet_dataset_new(&kind, sizeof *set, allocator, &set, message);
    if (status != COMET_OK)
        return status;
    set->info.name = "generated";
    set->info.classes = CLASSES;
    set->info.height = set->info.width = SIDE;
    set->info.channels = 1;
    set->info.augment = COMET_AUGMENT_CROP;
    set->class_names = class_names;
    for (int s = 0; s < COMET_SPLITS && status == COMET_OK; s++)
        status = comet_dataset_reserve(set, (comet_split)s, s ? (count + 4) / 5 : count, 1, message);
    if (status != COMET_OK) {
        comet_dataset_free(set);
        return status;
    }
    for (uint32_t s = 0; s < COMET_SPLITS; s++)
        fill(&set->parts[s], s);
    comet_dataset_complete(set);
    *out = set;
    return COMET_OK;
}
