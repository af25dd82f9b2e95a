/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image/normalise.h"

comet_normalisation comet_normalisation_for(const comet_normalisation *from, int32_t from_channels, int32_t channels) {
    comet_normalisation n = *from;
    if (from_channels == 1 && channels == 3)
        for (int c = 1; c < 3; c++) {
            n.mean[c] = n.mean[0];
            n.deviation[c] = n.deviation[0];
        }
    if (from_channels == 3 && channels == 1) {
        n.mean[0] = 0.299f * from->mean[0] + 0.587f * from->mean[1] + 0.114f * from->mean[2];
        n.deviation[0] = (from->deviation[0] + from->deviation[1] + from->deviation[2]) / 3.0f;
    }
    return n;
}

/* A byte has 256 values: each is worked out once. */
void comet_normalise(const comet_normalisation *n, int32_t channels, const uint8_t *bytes, int64_t count,
                     float *values) {
    float table[COMET_IMAGE_MOST_CHANNELS][256];
    for (int32_t c = 0; c < channels; c++)
        for (int i = 0; i < 256; i++)
            table[c][i] = ((float)i / 255.0f - n->mean[c]) / n->deviation[c];
    if (channels == 1)
        for (int64_t i = 0; i < count; i++)
            values[i] = table[0][bytes[i]];
    else
        for (int64_t i = 0; i < count; i++)
            for (int c = 0; c < 3; c++)
                values[3 * i + c] = table[c][bytes[3 * i + c]];
}
