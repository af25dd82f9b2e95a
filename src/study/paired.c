/* SPDX-License-Identifier: Apache-2.0 */
#include "study/paired.h"

#include <math.h>

/* t 0.975, 1 to 30 degrees of freedom. */
static const double table[30] = {12.706204736, 4.302652730, 3.182446305, 2.776445105, 2.570581836, 2.446911851,
                                 2.364624252,  2.306004135, 2.262157163, 2.228138852, 2.200985160, 2.178812830,
                                 2.160368656,  2.144786688, 2.131449546, 2.119905299, 2.109815578, 2.100922040,
                                 2.093024054,  2.085963447, 2.079613845, 2.073873068, 2.068657610, 2.063898562,
                                 2.059538553,  2.055529439, 2.051830516, 2.048407142, 2.045229642, 2.042272456};

/* Beyond the table: the expansion about the normal quantile z (Abramowitz & Stegun 26.7.5), to 2e-6. */
double comet_student_t(int freedom) {
    const double z = 1.959963984540054, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    if (freedom <= 30)
        return table[freedom - 1];
    double n = (double)freedom;
    return z + (z3 + z) / (4.0 * n) + (5.0 * z5 + 16.0 * z3 + 3.0 * z) / (96.0 * n * n) +
           (3.0 * z7 + 19.0 * z5 + 17.0 * z3 - 15.0 * z) / (384.0 * n * n * n);
}

comet_paired comet_compare_pairs(const double *a, const double *b, int pairs) {
    comet_paired result = {.pairs = pairs, .half_width = (double)INFINITY};
    double squares = 0.0;
    for (int i = 0; i < pairs; i++)
        result.mean += (b[i] - a[i]) / pairs;
    for (int i = 0; i < pairs; i++) {
        double off = b[i] - a[i] - result.mean;
        squares += off * off;
    }
    if (pairs < 2)
        return result;
    result.deviation = sqrt(squares / (pairs - 1));
    result.half_width = comet_student_t(pairs - 1) * result.deviation / sqrt((double)pairs);
    return result;
}
