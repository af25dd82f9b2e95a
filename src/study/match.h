/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which channel of one network does what a channel of another does: by the correlation of their maps, as channels of
 * networks that began with other values stand in any order.
 */
#ifndef COMET_STUDY_MATCH_H
#define COMET_STUDY_MATCH_H

#include <stdint.h>

/* Maps of channels, `places` (positions of all images) x `channels`. */
typedef struct comet_maps {
    const float *values;
    int64_t places;
    int channels;
} comet_maps;

/* The `count` channels, of no more than there are, that vary most over the places, the strongest first. */
void comet_match_strongest(const comet_maps *maps, int count, int *channels);

/*
 * The channel of `there` whose map has the greatest correlation with that of `channel` of `here`, of the same places;
 * of equal ones the first. A map that does not vary has a correlation of 0.
 */
int comet_match_channel(const comet_maps *here, int channel, const comet_maps *there, double *correlation);

#endif
