/* SPDX-License-Identifier: Apache-2.0 */
/* A part of a split that stands for all of it. */
#ifndef COMET_DATA_DRAW_H
#define COMET_DATA_DRAW_H

#include "data/sets/dataset.h"

/*
 * `most` of the split's samples (fewer than there are) into `drawn`, in the order of the split: of each class as large
 * a part as it has of the split, evenly spread over its images. The same ones every time.
 */
comet_status comet_draw(const comet_dataset *set, comet_split split, int64_t most, int32_t *drawn,
                        const comet_allocator *allocator, comet_message *message);

#endif
