/* SPDX-License-Identifier: Apache-2.0 */
#include "study/match.h"

#include <math.h>

static double value_at(const comet_maps *m, int64_t place, int channel) {
    return (double)m->values[place * m->channels + channel];
}

static double mean_of(const comet_maps *m, int channel) {
    double sum = 0;
    for (int64_t p = 0; p < m->places; p++)
        sum += value_at(m, p, channel);
    return sum / (double)m->places;
}

static double variance_of(const comet_maps *m, int channel, double mean) {
    double sum = 0;
    for (int64_t p = 0; p < m->places; p++) {
        const double off = value_at(m, p, channel) - mean;
        sum += off * off;
    }
    return sum / (double)m->places;
}

void comet_match_strongest(const comet_maps *maps, int count, int *channels) {
    for (int i = 0; i < count; i++) {
        double most = -1;
        channels[i] = i; /* where none can be compared */
        for (int c = 0; c < maps->channels; c++) {
            const double variance = variance_of(maps, c, mean_of(maps, c));
            int taken = 0;
            for (int k = 0; k < i; k++)
                taken |= channels[k] == c;
            if (taken || !(variance > most))
                continue;
            most = variance;
            channels[i] = c;
        }
    }
}

int comet_match_channel(const comet_maps *here, int channel, const comet_maps *there, double *correlation) {
    const double mean = mean_of(here, channel), variance = variance_of(here, channel, mean);
    int best = 0;
    *correlation = -2;
    for (int c = 0; c < there->channels; c++) {
        const double other = mean_of(there, c), scale = sqrt(variance) * sqrt(variance_of(there, c, other));
        double sum = 0;
        for (int64_t p = 0; p < here->places; p++)
            sum += (value_at(here, p, channel) - mean) * (value_at(there, p, c) - other);
        const double found = scale > 0 ? sum / (double)here->places / scale : 0;
        if (found <= *correlation)
            continue;
        *correlation = found;
        best = c;
    }
    return best;
}
