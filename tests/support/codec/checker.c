/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/checker.h"

#include <math.h>
#include <string.h>

#include "support/number.h"

static comet_dtype stored_dtype(const check_rules *rules) {
    return rules->grid ? COMET_F32 : rules->dtype;
}

static int64_t channel_of(const check_rules *rules, int64_t i) {
    return i / rules->channel_stride % rules->grid->channels;
}

uint32_t check_stored_bits(const check_rules *rules, const void *in, int64_t i) {
    uint32_t bits = bits_at(rules->dtype, in, i);
    const comet_codec_grid *g = rules->grid;
    if (!g)
        return bits;
    if (rules->dtype != COMET_F32 && number_class_of(rules->dtype, bits) != NUMBER_NAN)
        bits = bits_of_float((float)number_of_bits(rules->dtype, bits));
    else if (rules->dtype != COMET_F32) /* a NaN keeps its sign and payload in the leading bits */
        bits = rules->dtype == COMET_BF16 ? bits << 16 : (bits & 0x8000u) << 16 | 0x7f800000u | (bits & 0x3ffu) << 13;
    if (!g->scale && !g->shift)
        return bits;
    int64_t c = channel_of(rules, i);
    float x = float_of_bits(bits);
    float y = fmaf(g->scale ? g->scale[c] : 1.0f, x, g->shift ? g->shift[c] : 0.0f);
    return isnan(y) && !isnan(x) ? 0x7fc00000u : bits_of_float(y); /* a NaN made by 0 * Inf is a fixed one */
}

static int side_is_kept(const comet_codec_grid *g, int64_t c, double before, double after) {
    double threshold = (double)g->threshold[c];
    if (isnan(threshold))
        return 1;
    if (g->slope && g->slope[c] < 0.0f)
        return (before < threshold) == (after < threshold);
    return (before > threshold) == (after > threshold);
}

/* Returns 1 if the value keeps every promise. */
static int check_finite(const check_rules *rules, int64_t i, double before, double after, check_counts *n) {
    int good = 1;
    double error = fabs(before - after);
    if (!(error <= rules->bound)) {
        n->over_bound++;
        good = 0;
    }
    if (error > n->worst * rules->bound)
        n->worst = error / rules->bound;
    if (rules->grid && !side_is_kept(rules->grid, channel_of(rules, i), before, after)) {
        n->side_broken++;
        good = 0;
    }
    if (!rules->grid && before == 0.0 && after != 0.0) {
        n->zeros_broken++;
        good = 0;
    }
    if (rules->keep_mask && ((before > 0.0) != (after > 0.0) || (before < 0.0) != (after < 0.0))) {
        n->mask_broken++;
        good = 0;
    }
    return good;
}

static int check_one(const check_rules *rules, int64_t i, uint32_t before, uint32_t after, check_counts *n) {
    comet_dtype dtype = stored_dtype(rules);
    if (before == after)
        return 1;
    if (rules->bound == 0.0) {
        n->bits_broken++;
        return 0;
    }
    number_class kind = number_class_of(dtype, before);
    if (kind == NUMBER_NAN || kind == NUMBER_INFINITE) {
        n->special_broken++;
        return 0;
    }
    return check_finite(rules, i, number_of_bits(dtype, before), number_of_bits(dtype, after), n);
}

int64_t check_values(const check_rules *rules, const void *in, const void *out, int64_t count, check_counts *counts) {
    int64_t bad = 0;
    comet_dtype dtype = stored_dtype(rules);
    for (int64_t i = 0; i < count; i++)
        if (!check_one(rules, i, check_stored_bits(rules, in, i), bits_at(dtype, out, i), counts)) {
            if (bad == 0)
                counts->first = i;
            bad++;
        }
    counts->values += count;
    return bad;
}

int check_round_trip(const check_rules *rules, const void *in, const void *out, int64_t count, failure *f) {
    check_counts n = {.first = 0};
    int64_t bad = check_values(rules, in, out, count, &n);
    if (bad == 0)
        return 1;
    comet_dtype dtype = stored_dtype(rules);
    uint32_t before = check_stored_bits(rules, in, n.first), after = bits_at(dtype, out, n.first);
    return failure_set(
        f,
        "%lld of %lld values wrong (bound %lld, zeros %lld, mask %lld, special %lld, side %lld, bits %lld); "
        "value %lld: %.17g (%08x) became %.17g (%08x), bound %.17g",
        (long long)bad, (long long)count, (long long)n.over_bound, (long long)n.zeros_broken, (long long)n.mask_broken,
        (long long)n.special_broken, (long long)n.side_broken, (long long)n.bits_broken, (long long)n.first,
        number_of_bits(dtype, before), (unsigned)before, number_of_bits(dtype, after), (unsigned)after, rules->bound);
}

/* ---- statistics ---- */

static int is_on(const check_rules *rules, int64_t i, double v) {
    if (!rules->grid)
        return v > 0.0;
    int64_t c = channel_of(rules, i);
    double threshold = (double)rules->grid->threshold[c];
    if (isnan(threshold))
        return v > 0.0;
    return rules->grid->slope && rules->grid->slope[c] < 0.0f ? v < threshold : v > threshold;
}

static comet_codec_stats stats_of(const check_rules *rules, const void *in, int64_t count) {
    comet_codec_stats s = {.count = count};
    double min = (double)INFINITY, max = -(double)INFINITY;
    for (int64_t i = 0; i < count; i++) {
        double v = number_of_bits(stored_dtype(rules), check_stored_bits(rules, in, i));
        if (!isfinite(v)) {
            s.nonfinite++;
            continue;
        }
        s.nonzero += v != 0.0;
        s.positive += is_on(rules, i, v);
        min = v < min ? v : min;
        max = v > max ? v : max;
        s.sum_abs += fabs(v);
        s.sum_squares += v * v;
    }
    s.min = s.nonfinite < count ? (float)min + 0.0f : 0.0f; /* never -0 */
    s.max = s.nonfinite < count ? (float)max + 0.0f : 0.0f;
    return s;
}

static int is_near(double a, double b) {
    return fabs(a - b) <= 1e-5 * fabs(b);
}

int check_stats(const check_rules *rules, const void *in, int64_t count, const comet_codec_stats *stats, failure *f) {
    comet_codec_stats e = stats_of(rules, in, count);
    if (stats->count != e.count || stats->nonzero != e.nonzero || stats->positive != e.positive ||
        stats->nonfinite != e.nonfinite)
        return failure_set(f, "count %lld nonzero %lld positive %lld nonfinite %lld, expected %lld %lld %lld %lld",
                           (long long)stats->count, (long long)stats->nonzero, (long long)stats->positive,
                           (long long)stats->nonfinite, (long long)e.count, (long long)e.nonzero, (long long)e.positive,
                           (long long)e.nonfinite);
    if (bits_of_float(stats->min) != bits_of_float(e.min) || bits_of_float(stats->max) != bits_of_float(e.max))
        return failure_set(f, "min %.9g max %.9g, expected %.9g %.9g", (double)stats->min, (double)stats->max,
                           (double)e.min, (double)e.max);
    if (!is_near(stats->sum_abs, e.sum_abs) || !is_near(stats->sum_squares, e.sum_squares))
        return failure_set(f, "sum |x| %.17g sum x^2 %.17g, expected %.17g %.17g", stats->sum_abs, stats->sum_squares,
                           e.sum_abs, e.sum_squares);
    return 1;
}
