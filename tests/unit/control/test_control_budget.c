/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation against brute force; curves of measured sizes; what `budget` makes of both. */
#include <string.h>

#include "comet/control_methods.h"
#include "control/allocate.h"
#include "control/control.h"
#include "support/rng.h"
#include "test_control_case.h"

/* ---- allocation ---- */

enum { ITEMS = 4, MOST_OPTIONS = 5 };

typedef struct total {
    double price, weight;
} total;

static total total_of(const allocate_item *items, const int *chosen) {
    total t = {0.0, 0.0};
    for (int i = 0; i < ITEMS; i++) {
        t.price += items[i].price[chosen[i]];
        t.weight += items[i].weight[chosen[i]];
    }
    return t;
}

/* The least price of all combinations within the limit; INFINITY: none is. */
static double brute_force(const allocate_item *items, double limit) {
    double best = INFINITY;
    int chosen[ITEMS] = {0};
    for (int carry = 0; !carry;) {
        total t = total_of(items, chosen);
        if (t.weight <= limit && t.price < best)
            best = t.price;
        carry = 1;
        for (int i = 0; i < ITEMS && carry; i++) {
            carry = ++chosen[i] == items[i].count;
            chosen[i] = carry ? 0 : chosen[i];
        }
    }
    return best;
}

/* Integers, so that sums are exact. Prices fall and weights rise along the options, as bytes and errors do. */
static void random_items(rng *r, allocate_item *items, int is_convex) {
    for (int i = 0; i < ITEMS; i++) {
        allocate_item *item = &items[i];
        item->count = 1 + (int)rng_below(r, MOST_OPTIONS);
        item->chosen = 0;
        double price = 1000.0, weight = (double)rng_below(r, 10), fall = 200.0;
        for (int k = 0; k < item->count; k++) {
            item->price[k] = price;
            item->weight[k] = weight;
            fall = is_convex ? floor(fall / 2.0) : 1.0 + (double)rng_below(r, 200);
            price -= fall;
            weight += is_convex ? 10.0 : 1.0 + (double)rng_below(r, 20);
        }
    }
}

/* The least price of all that some multiplier leads to within the limit. */
static double best_of_multipliers(const allocate_item *items, double limit) {
    double best = INFINITY;
    for (double multiplier = 0x1p-10; multiplier < 0x1p12; multiplier *= 1.03) {
        int chosen[ITEMS] = {0};
        for (int i = 0; i < ITEMS; i++)
            for (int k = 1; k < items[i].count; k++)
                if (items[i].price[k] + multiplier * items[i].weight[k] <
                    items[i].price[chosen[i]] + multiplier * items[i].weight[chosen[i]])
                    chosen[i] = k;
        total t = total_of(items, chosen);
        best = t.weight <= limit && t.price < best ? t.price : best;
    }
    return best;
}

static total allocated(const allocate_item *items) {
    int chosen[ITEMS];
    for (int i = 0; i < ITEMS; i++)
        chosen[i] = items[i].chosen;
    return total_of(items, chosen);
}

/*
 * It always fits if anything does. It is never worse than what any multiplier gives, and on curves that are convex with
 * equal steps it is the best there is.
 */
static void test_allocation_against_brute_force(void **state) {
    (void)state;
    rng r = rng_seed(11);
    allocate_item items[ITEMS];
    int feasible = 0;
    for (int trial = 0; trial < 2000; trial++) {
        int is_convex = trial % 2;
        random_items(&r, items, is_convex);
        double limit = (double)rng_below(&r, 150), best = brute_force(items, limit);
        int fits = comet_control_allocate(items, ITEMS, limit);
        total t = allocated(items);
        assert_int_equal(fits, !isinf(best));
        if (!fits) {
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(items[i].chosen, 0);
            continue;
        }
        feasible++;
        assert_true(t.weight <= limit);
        assert_true(t.price >= best);
        assert_true(t.price <= best_of_multipliers(items, limit));
        assert_true(!is_convex || t.price == best);
    }
    assert_true(feasible > 1000);
}

/* Sizes as they are in use: errors around 1e-9, bytes around 1e9. */
static void test_allocation_is_free_of_units(void **state) {
    (void)state;
    rng r = rng_seed(12);
    for (int trial = 0; trial < 100; trial++) {
        allocate_item items[ITEMS], scaled[ITEMS];
        random_items(&r, items, 1);
        double limit = (double)(40 + rng_below(&r, 60));
        memcpy(scaled, items, sizeof items);
        for (int i = 0; i < ITEMS; i++)
            for (int k = 0; k < items[i].count; k++) {
                scaled[i].price[k] *= 0x1p30;
                scaled[i].weight[k] *= 0x1p-60;
            }
        int fits = comet_control_allocate(items, ITEMS, limit);
        assert_int_equal(comet_control_allocate(scaled, ITEMS, limit * 0x1p-60), fits);
        total a = allocated(items), b = allocated(scaled);
        assert_near(b.price, a.price * 0x1p30, 0.0);
    }
}

/* ---- curves ---- */

static void test_curve(void **state) {
    (void)state;
    comet_control_curve curve = {{0}, {0}};
    assert_near(comet_control_curve_bits(&curve, 0.1), 3.05, 1e-12);
    assert_near(comet_control_curve_bits(&curve, 0.4), 3.05 - 2.0 * 0.81, 1e-12);
    assert_near(comet_control_curve_bits(&curve, 1e6), 0.04, 0.0); /* never nothing */
    comet_control_curve_add(&curve, 0.25, 2.0, 0.5);
    assert_near(comet_control_curve_bits(&curve, 0.25), 2.0, 0.0);
    assert_near(comet_control_curve_bits(&curve, 0.125), 2.0 + 0.81, 1e-12);
    comet_control_curve_add(&curve, 0.0625, 5.0, 0.5);
    assert_near(comet_control_curve_bits(&curve, 0.125), 3.5, 1e-12);
    comet_control_curve_add(&curve, 0.25, 3.0, 0.5);
    assert_near(comet_control_curve_bits(&curve, 0.25), 2.5, 1e-12);
    comet_control_curve_add(&curve, 1e-9, 30.0, 0.5);
    comet_control_curve_add(&curve, 1e9, 0.1, 0.5);
    double last = 1e9;
    for (double ratio = 1e-10; ratio < 1e10; ratio *= 1.5) {
        double bits = comet_control_curve_bits(&curve, ratio);
        assert_true(bits > 0.0 && bits <= last);
        last = bits;
    }
}

/* ---- the controller ---- */

enum { TENSORS = 3 };

typedef struct budget_case {
    comet_control *control;
    double sensitivity[TENSORS], momentum[TENSORS];
    int64_t values[TENSORS];
} budget_case;

static double true_bytes(const budget_case *b, int i, double bound) {
    return (double)b->values[i] * (3.0 - comet_control_log2(bound / 0.125)) / 8.0;
}

static budget_case budget_of(const int64_t values[TENSORS], double bytes, double error, double momentum_of_last) {
    static const comet_control_use use = {COMET_USE_CONV_WEIGHTS, -1};
    budget_case b = {NULL, {1.0, 10.0, 1.0}, {1.0, 1.0, momentum_of_last}, {values[0], values[1], values[2]}};
    comet_control_tensor tensors[TENSORS] = {
        {"large", b.values[0], 1, &use}, {"touchy", b.values[1], 1, &use}, {"small", b.values[2], 1, &use}};
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    o.calibration = 0.1, o.warmup_bound = 0.1, o.ceiling = 0.6, o.warmup = 0, o.loosen = 1e9;
    o.budget_bytes = bytes, o.budget_error = error;
    assert_ok(comet_control_new(comet_control_find("budget"), &o, tensors, TENSORS, &b.control));
    return b;
}

static budget_case budget_new(double bytes, double error, double momentum_of_last) {
    static const int64_t values[TENSORS] = {100000, 1000, 1000};
    return budget_of(values, bytes, error, momentum_of_last);
}

/* The curve is measured over all that the ladder has. */
static void budget_observe(budget_case *b, int tensors) {
    comet_use_stats stats[TENSORS];
    comet_control_size sizes[TENSORS][12];
    comet_control_observation seen[TENSORS];
    for (int i = 0; i < tensors; i++) {
        stats[i] = (comet_use_stats){.derivative_squares = 1.0,
                                     .gradient_squares = 3.0 * b->sensitivity[i] * b->sensitivity[i],
                                     .momentum = b->momentum[i]};
        for (int k = 0; k < 12; k++) {
            double bound = ldexp(1.0, -k / 2) * (k % 2 ? 0.75 : 1.0);
            sizes[i][k] = (comet_control_size){bound, true_bytes(b, i, bound)};
        }
        seen[i] = (comet_control_observation){i, 12, 1.0, &stats[i], sizes[i]};
    }
    assert_ok(comet_control_observe(b->control, 0, seen, tensors));
}

static double bound_of(const budget_case *b, int i) {
    return comet_control_bound(b->control, i).value;
}

/* Four bounds an octave from the ceiling (0.6) to the floor (0.01), rounded as bounds are. */
static int ladder(double *bounds) {
    int count = 0;
    for (int octave = 0;; octave++)
        for (int part = 0; part < 4; part++) {
            double bound = comet_control_round(ldexp(0.6 * (1.0 - 0.125 * part), -octave));
            if (bound < 0.01)
                return count;
            bounds[count++] = bound;
        }
}

/* Of the first `count` tensors. */
static total total_with(const budget_case *b, int count, const double *bounds) {
    total t = {0.0, 0.0};
    for (int i = 0; i < count; i++) {
        double part = b->sensitivity[i] * bounds[i] / b->momentum[i];
        t.price += true_bytes(b, i, bounds[i]);
        t.weight += part * part;
    }
    return t;
}

/* The least bytes with at most that error, or the least error in at most those bytes, of all combinations. */
static double least(const budget_case *b, int count, double limit, int of_bytes) {
    double bounds[64], best = INFINITY;
    int steps = ladder(bounds), all = 1;
    for (int i = 0; i < count; i++)
        all *= steps;
    for (int choice = 0; choice < all; choice++) {
        double chosen[TENSORS];
        for (int i = 0, rest = choice; i < count; i++, rest /= steps)
            chosen[i] = bounds[rest % steps];
        total t = total_with(b, count, chosen);
        if ((of_bytes ? t.price : t.weight) <= limit)
            best = fmin(best, of_bytes ? t.weight : t.price);
    }
    return best;
}

/*
 * What was decided is within the limit, and the best there is but for 5 %: multipliers do not reach every combination.
 */
static void check_best(const budget_case *b, int count, double limit, int of_bytes) {
    double bounds[TENSORS];
    for (int i = 0; i < count; i++)
        bounds[i] = bound_of(b, i);
    total t = total_with(b, count, bounds);
    double best = least(b, count, limit, of_bytes), found = of_bytes ? t.weight : t.price;
    assert_true((of_bytes ? t.price : t.weight) <= limit);
    assert_true(found >= best && found <= 1.05 * best);
}

static void test_budget_of_error(void **state) {
    (void)state;
    budget_case b = budget_new(0.0, 0.09, 1.0);
    budget_observe(&b, TENSORS);
    check_best(&b, TENSORS, 0.09, 0);
    /* The large one, where bytes are, gets most of the error. */
    assert_true(bound_of(&b, 0) > 4.0 * bound_of(&b, 1));
    assert_true(bound_of(&b, 0) > bound_of(&b, 2));
    comet_control_free(b.control);
}

static void test_budget_without_a_target_allows_what_comet_does(void **state) {
    (void)state;
    budget_case b = budget_new(0.0, 0.0, 1.0);
    budget_observe(&b, TENSORS);
    check_best(&b, TENSORS, 3.0 * 0.1 * 0.1, 0);
    comet_control_free(b.control);
}

static void test_budget_of_bytes(void **state) {
    (void)state;
    budget_case b = budget_new(45000.0, 0.0, 1.0);
    budget_observe(&b, TENSORS);
    check_best(&b, TENSORS, 45000.0, 1);
    comet_control_free(b.control);
    b = budget_new(10.0, 0.0, 1.0); /* less than there is: as coarse as allowed */
    budget_observe(&b, TENSORS);
    for (int i = 0; i < TENSORS; i++)
        assert_near(bound_of(&b, i), 0.5625, 0.0);
    comet_control_free(b.control);
}

/* A gradient that may have no error at all costs its own tensor, which is as fine as allowed, not the others. */
static void test_budget_with_a_use_that_bears_nothing(void **state) {
    (void)state;
    double bounds[64];
    budget_case b = budget_new(0.0, 0.09, 0.0);
    budget_observe(&b, TENSORS);
    assert_near(bound_of(&b, 2), bounds[ladder(bounds) - 1], 0.0);
    check_best(&b, 2, 0.09, 0);
    comet_control_free(b.control);
}

/* What is not seen yet takes its bytes at the warm-up bound, by the typical curve: here nearly all that there are. */
static void test_budget_before_all_is_seen(void **state) {
    (void)state;
    static const int64_t values[TENSORS] = {1000, 1000, 100000};
    double typical = 100000.0 * 3.05 / 8.0;
    budget_case b = budget_of(values, typical + 900.0, 0.0, 1.0);
    budget_observe(&b, 2);
    check_best(&b, 2, 900.0, 1);
    assert_int_equal(comet_control_bound(b.control, 2).kind, COMET_BOUND_RELATIVE);
    assert_near(bound_of(&b, 2), 0.1, 0.0);
    assert_int_equal(comet_control_bound(b.control, 0).kind, COMET_BOUND_ABSOLUTE);
    comet_control_free(b.control);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_allocation_against_brute_force),
        cmocka_unit_test(test_allocation_is_free_of_units),
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_budget_of_error),
        cmocka_unit_test(test_budget_without_a_target_allows_what_comet_does),
        cmocka_unit_test(test_budget_of_bytes),
        cmocka_unit_test(test_budget_with_a_use_that_bears_nothing),
        cmocka_unit_test(test_budget_before_all_is_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
