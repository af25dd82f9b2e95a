/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Images stand in a row, class behind class; every (count / most)-th of them is taken. A class so gives its part of the
 * sample, rounded up or down, whatever the order of the split is.
 */
#include "data/loader/draw.h"

#include <string.h>

#include "base/memory.h"

/* Where each class begins in that row. */
static void find_places(const comet_dataset *set, comet_split split, int64_t *places) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    for (int64_t i = 0; i < info->count[split]; i++)
        if (comet_dataset_label(set, split, i) + 1 < info->classes)
            places[comet_dataset_label(set, split, i) + 1]++;
    for (int32_t c = 1; c < info->classes; c++)
        places[c] += places[c - 1];
}

comet_status comet_draw(const comet_dataset *set, comet_split split, int64_t most, int32_t *drawn,
                        const comet_allocator *allocator, comet_message *message) {
    const comet_dataset_info *info = comet_dataset_get_info(set);
    const int64_t count = info->count[split];
    const size_t bytes = (size_t)info->classes * sizeof(int64_t);
    int64_t *places = comet_memory_take(allocator, bytes), taken = 0;
    if (!places)
        return comet_message_memory(message);
    memset(places, 0, bytes);
    find_places(set, split, places);
    for (int64_t i = 0; i < count && taken < most; i++) {
        const int64_t place = places[comet_dataset_label(set, split, i)]++;
        if ((place + 1) * most / count > place * most / count)
            drawn[taken++] = (int32_t)i;
    }
    comet_memory_give(allocator, places, bytes);
    return COMET_OK;
}
