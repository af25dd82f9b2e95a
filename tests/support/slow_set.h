/* SPDX-License-Identifier: Apache-2.0 */
/* A set in memory whose images take their time, as files on a slow disk do. */
#ifndef TESTS_SUPPORT_SLOW_SET_H
#define TESTS_SUPPORT_SLOW_SET_H

#include <time.h>

#include "data/sets/dataset_impl.h"

static const comet_dataset_kind *quick_kind;
static comet_dataset_kind slow_kind;
static long slow_ms; /* of an image */

static inline void sleep_ms(long ms) {
    const struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static inline comet_status slow_read(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                                     comet_image *image, comet_message *why) {
    const comet_dataset_info *info = &set->info;
    const size_t bytes = (size_t)info->height * (size_t)info->width * (size_t)info->channels;
    (void)decoder, (void)why;
    sleep_ms(slow_ms);
    *image = (comet_image){set->parts[split].pixels + bytes * (size_t)index, info->height, info->width, info->channels};
    return COMET_OK;
}

/* Until quicken() is called; no loader may use the set meanwhile. */
static inline void slow_down(comet_dataset *set, long ms) {
    quick_kind = set->kind;
    slow_kind = *set->kind;
    slow_kind.read = slow_read;
    slow_ms = ms;
    set->kind = &slow_kind;
}

static inline void quicken(comet_dataset *set) {
    set->kind = quick_kind;
}

#endif
