/* SPDX-License-Identifier: Apache-2.0 */
/* Assessments: what probes leave alone, what they find, and what is said of it. */
#include "unit/train/test_train_trainer.h"

#include "study/assess.h"

enum { MOST_TENSORS = 256 };

static comet_trainer *controlled(const char *model) {
    comet_trainer_options o = options_for(model, "eb");
    o.control = "comet:warmup=2:every=1";
    return trainer_of(&o);
}

/* ---- distributions ---- */

static void test_histogram(void **state) {
    (void)state;
    comet_histogram normal, uniform, shifted;
    rng r = rng_seed(3);
    comet_histogram_init(&normal, -4, 4);
    comet_histogram_init(&uniform, -1, 1);
    comet_histogram_init(&shifted, -4, 4);
    for (int i = 0; i < 200000; i++) {
        const double radius = sqrt(-2 * log(1 - rng_unit(&r))), value = radius * cos(6.283185307179586 * rng_unit(&r));
        comet_histogram_add(&normal, value);
        comet_histogram_add(&shifted, value + 0.5);
        comet_histogram_add(&uniform, 2 * rng_unit(&r) - 1);
    }
    assert_true(fabs(comet_histogram_mean(&normal)) < 0.01);
    assert_true(fabs(comet_histogram_mean(&shifted) - 0.5) < 0.01);
    assert_true(fabs(comet_histogram_variance(&normal) - 1) < 0.02);
    assert_true(fabs(comet_histogram_kurtosis(&normal)) < 0.05);
    assert_true(fabs(comet_histogram_kurtosis(&shifted)) < 0.05);
    assert_true(fabs(comet_histogram_kurtosis(&uniform) + 1.2) < 0.02);
    assert_true(fabs(comet_histogram_variance(&uniform) - 1.0 / 3) < 0.01);
    assert_true(fabs(comet_histogram_within_one(&normal) - 0.6827) < 0.005);
    assert_true(comet_histogram_distance(&normal, comet_normal_distribution) < 0.005);
    assert_true(comet_histogram_distance(&uniform, comet_uniform_distribution) < 0.005);
    /* Half a deviation beside it: 2 F(1/4) - 1. */
    assert_true(fabs(comet_histogram_distance(&shifted, comet_normal_distribution) - 0.1974) < 0.01);
    double area = 0;
    for (int i = 0; i < COMET_HISTOGRAM_BINS; i++)
        area += comet_histogram_density(&uniform, i) *
                (comet_histogram_edge(&uniform, i + 1) - comet_histogram_edge(&uniform, i));
    assert_true(fabs(area - 1) < 1e-9);
}

/* Ends belong to the bins, what is beyond is counted; nothing is 0 everywhere. */
static void test_histogram_ends(void **state) {
    (void)state;
    comet_histogram h;
    comet_histogram_init(&h, -1, 1);
    assert_true(comet_histogram_mean(&h) == 0 && comet_histogram_kurtosis(&h) == 0);
    assert_true(comet_histogram_distance(&h, comet_uniform_distribution) == 0 && comet_histogram_density(&h, 0) == 0);
    const double values[] = {-1, 1, -1.5, 2, 3};
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        comet_histogram_add(&h, values[i]);
    assert_true(h.bins[0] == 1 && h.bins[COMET_HISTOGRAM_BINS - 1] == 1 && h.below == 1 && h.above == 2);
    assert_true(h.count == 5 && comet_histogram_mean(&h) == 0.7);
}

/* ---- probes ---- */

static uint64_t gradient_digest(comet_trainer *t) {
    uint64_t hash = 14695981039346656037u;
    comet_graph *g = comet_trainer_graph(t);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        for (size_t k = 0; p->kind < COMET_RUNNING_MEAN && k < (size_t)p->count * sizeof(float); k++)
            hash = (hash ^ ((const unsigned char *)p->gradient)[k]) * 1099511628211u;
    }
    return hash;
}

static uint64_t probe(comet_trainer *t, double relative) {
    batch b = make_batch(77);
    comet_control_bound_value bounds[MOST_TENSORS];
    comet_message message;
    int32_t count;
    assert_non_null(comet_probe_tensors(t, &count));
    assert_in_range(count, 1, MOST_TENSORS);
    for (int32_t i = 0; i < count; i++)
        bounds[i] = (comet_control_bound_value){COMET_BOUND_RELATIVE, relative};
    const comet_probe p = {.pixels = b.pixels, .labels = b.labels, .bounds = bounds};
    assert_done(comet_trainer_probe(t, &p, &message), message);
    return gradient_digest(t);
}

/* The same bounds, the same bits, with dropout, too; weights and running statistics stay. */
static void test_probe(void **state) {
    (void)state;
    const char *const models[] = {"resnet8", "efficientnet_b0"};
    for (size_t i = 0; i < 2; i++) {
        comet_trainer_options o = options_for(models[i], "eb");
        o.control = "comet";
        comet_trainer *t = trainer_of(&o);
        train(t, 0, 0.05);
        const uint64_t before = digest(t), lossless = probe(t, 0);
        assert_true(lossless == probe(t, 0));
        assert_true(lossless != probe(t, 0.1));
        assert_true(lossless == probe(t, 0));
        assert_true(digest(t) == before);
        comet_trainer_free(t);
    }
}

/* A trainer that was probed goes on as one that was not. */
static void test_probe_leaves_training_alone(void **state) {
    (void)state;
    comet_trainer *probed = controlled("resnet8"), *other = controlled("resnet8");
    for (uint64_t i = 0; i < 6; i++) {
        if (i == 3)
            probe(probed, 0.2);
        train(probed, i, 0.05);
        train(other, i, 0.05);
    }
    assert_true(digest(probed) == digest(other));
    comet_trainer_free(probed);
    comet_trainer_free(other);
}

/* What is held without loss is what is kept: gradients are those of a trainer without any codec. */
static void test_lossless_is_raw(void **state) {
    (void)state;
    comet_trainer_options o = options_for("resnet8", "none");
    comet_trainer *raw = trainer_of(&o), *t = controlled("resnet8");
    batch b = make_batch(77);
    comet_trainer_result result;
    comet_message message;
    probe(t, 0);
    assert_done(comet_trainer_train(raw, b.pixels, b.labels, 1e-30, 0, &result, &message), message);
    comet_graph *g = comet_trainer_graph(t), *h = comet_trainer_graph(raw);
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i), *q = comet_graph_parameter(h, i);
        double off = 0, squares = 0;
        for (int64_t k = 0; p->kind < COMET_RUNNING_MEAN && k < p->count; k++) {
            off += pow((double)p->gradient[k] - (double)q->gradient[k], 2);
            squares += pow((double)q->gradient[k], 2);
        }
        if (off > 1e-9 * squares) /* u is rounded once more than x */
            fail_msg("%s: %g of %g", p->name, sqrt(off), sqrt(squares));
    }
    comet_trainer_free(raw);
    comet_trainer_free(t);
}

/* ---- assessments ---- */

static comet_assess *assessed(comet_trainer *t, const comet_assess_options *o, int batches) {
    comet_assess *a = NULL;
    comet_message message;
    assert_done(comet_assess_new(t, o, NULL, &a, &message), message);
    for (int i = 0; i < batches; i++) {
        batch b = make_batch(100 + (uint64_t)i);
        assert_done(comet_assess_batch(a, b.pixels, b.labels, &message), message);
    }
    return a;
}

static void gradients_of(comet_trainer *t, const batch *b, const comet_control_bound_value *bounds, int collect) {
    const comet_probe p = {.pixels = b->pixels, .labels = b->labels, .bounds = bounds, .collect = collect};
    comet_message message;
    assert_done(comet_trainer_probe(t, &p, &message), message);
}

static double *copy_gradient(const comet_parameter *p) {
    double *copy = malloc((size_t)p->count * sizeof *copy);
    for (int64_t i = 0; i < p->count; i++)
        copy[i] = (double)p->gradient[i];
    return copy;
}

static double mean_square_off(const comet_parameter *p, const double *exact) {
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += pow((double)p->gradient[i] - (exact ? exact[i] : 0), 2);
    return sum / (double)p->count;
}

/* Variances of one use's gradient, from probes of our own; what all uses of the tensor that reach it cause. */
typedef struct own_variances {
    double predicted, measured, gradient;
} own_variances;

static own_variances own_of(comet_trainer *t, int32_t tensor, int32_t use, const batch *b, double error_rel) {
    comet_control_bound_value bounds[MOST_TENSORS] = {{COMET_BOUND_ABSOLUTE, 0}};
    int32_t count;
    const comet_control_tensor *tensors = comet_probe_tensors(t, &count);
    const comet_parameter *p = comet_graph_parameter(comet_trainer_graph(t), tensors[tensor].uses[use].gradient);
    for (int32_t i = 0; i < count; i++)
        bounds[i] = (comet_control_bound_value){COMET_BOUND_ABSOLUTE, 0};
    gradients_of(t, b, bounds, 1);
    const double bound = error_rel * comet_probe_observation(t, tensor)->rms, square = mean_square_off(p, NULL);
    double *exact = copy_gradient(p);
    bounds[tensor].value = bound;
    gradients_of(t, b, bounds, 1);
    own_variances found = {0, mean_square_off(p, exact), square};
    for (int32_t i = 0; i < tensors[tensor].use_count; i++) {
        const comet_use_stats *stats = &comet_probe_observation(t, tensor)->uses[i];
        if (tensors[tensor].uses[i].gradient == tensors[tensor].uses[use].gradient)
            found.predicted += pow(bound * comet_error_sensitivity(tensors[tensor].uses[i].kind, stats), 2);
    }
    free(exact);
    return found;
}

static int32_t tensor_called(const comet_trainer *t, const char *name) {
    int32_t count;
    const comet_control_tensor *tensors = comet_probe_tensors(t, &count);
    for (int32_t i = 0; i < count; i++)
        if (strcmp(tensors[i].name, name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return -1;
}

/* The first of a tensor's uses that reaches a gradient. */
static int32_t use_called(comet_trainer *t, int32_t tensor, const char *gradient) {
    int32_t count;
    const comet_control_tensor *of = &comet_probe_tensors(t, &count)[tensor];
    for (int32_t i = 0; i < of->use_count; i++)
        if (strcmp(comet_graph_parameter(comet_trainer_graph(t), of->uses[i].gradient)->name, gradient) == 0)
            return i;
    fail_msg("%s does not reach %s", of->name, gradient);
    return -1;
}

/* Predicted and measured sigmas are roots of means over batches of what each batch has. */
static void test_figures(void **state) {
    (void)state;
    const comet_assess_options o = {.bounds = 1, .error_rel = {0.1}, .layers = "layer2.0.bn1"};
    comet_trainer *t = controlled("resnet8");
    comet_assess *a = assessed(t, &o, 2);
    int32_t count;
    const comet_control_tensor *tensors = comet_probe_tensors(t, &count);
    const int32_t tensor = tensor_called(t, o.layers);
    assert_int_equal(comet_assess_rows(a), tensors[tensor].use_count);
    for (int32_t use = 0; use < tensors[tensor].use_count; use++) {
        own_variances sum = {0, 0, 0};
        for (uint64_t i = 0; i < 2; i++) {
            const batch b = make_batch(100 + i);
            const own_variances more = own_of(t, tensor, use, &b, o.error_rel[0]);
            sum.predicted += more.predicted / 2;
            sum.measured += more.measured / 2;
            sum.gradient += more.gradient / 2;
        }
        comet_assess_row row;
        comet_assess_get_row(a, 0, use, &row);
        assert_string_equal(row.use, comet_use_name(tensors[tensor].uses[use].kind));
        assert_near(row.predicted, sqrt(sum.predicted), 1e-9);
        assert_near(row.measured, sqrt(sum.measured), 1e-9);
        assert_near(row.gradient_rms, sqrt(sum.gradient), 1e-9);
        assert_near(row.ratio, row.predicted / row.measured, 1e-12);
    }
    comet_assess_free(a);
    comet_trainer_free(t);
}

/* The variance that all tensors cause in a gradient is the sum of what each does. */
static double sum_of_predicted(const comet_assess *a, int bound, const char *gradient) {
    double sum = 0;
    for (int i = 0; i < comet_assess_rows(a); i++) {
        comet_assess_row row;
        comet_assess_get_row(a, bound, i, &row);
        sum += strcmp(row.gradient, gradient) == 0 ? row.predicted * row.predicted : 0;
    }
    return sum;
}

/* How many of a gradient's errors are independent of each other: what a norm's input causes is one number a channel. */
static double independent_of(comet_trainer *t, const comet_assess_row *row) {
    const comet_parameter *p = comet_graph_parameter_named(comet_trainer_graph(t), row->gradient);
    return (double)(strcmp(row->use, "norm_input") == 0 ? p->count / p->fan_in : p->count);
}

/* Of all rows of a use: means of (measured / predicted)^2, each row as often as it has independent errors. */
typedef struct use_ratio {
    const char *use;
    double tolerance; /* of the sigma, three times what is left to chance */
    double alone, together, weights;
} use_ratio;

static void add_row(use_ratio *u, const comet_assess_row *row, double independent) {
    u->alone += independent / (row->ratio * row->ratio);
    u->together += independent / (row->joint_ratio * row->joint_ratio);
    u->weights += independent;
}

static void check_row(comet_trainer *t, const comet_assess *a, int b, const comet_assess_row *row, double error_rel,
                      int batches) {
    const double chance = 1 / sqrt(2 * batches * independent_of(t, row));
    if (!(fabs(row->ratio - 1) < 0.08 + 4 * chance))
        fail_msg("%s, %s of %s: %g", row->tensor, row->use, row->gradient, row->ratio);
    assert_near(row->error_rel, error_rel, 1e-9);
    assert_near(row->joint_predicted * row->joint_predicted, sum_of_predicted(a, b, row->gradient), 1e-9);
    assert_near(row->joint_ratio, row->joint_predicted / row->joint_measured, 1e-12);
    assert_int_equal(row->errors->count, batches * row->values);
    assert_near(row->errors->sums[1] / row->errors->count, 1, 1e-9); /* over its own sigma */
}

/*
 * The theory's sigmas, alone and all tensors together. Further down, errors of a gradient come on top (docs/theory.md,
 * 2.8).
 */
static void test_ratios(void **state) {
    (void)state;
    enum { BATCHES = EFFORT_SLOW ? 1 : 4, USES = 4 };
    const comet_assess_options o = {.bounds = 2, .error_rel = {0.05, 0.2}};
    comet_trainer *t = controlled("resnet8");
    comet_assess *a = assessed(t, &o, BATCHES);
    use_ratio uses[USES] = {{"conv_weights", 0.05, 0, 0, 0},
                            {"linear_weights", 0.1, 0, 0, 0},
                            {"norm_scale", EFFORT_SLOW ? 0.15 : 0.08, 0, 0, 0},
                            {"norm_input", EFFORT_SLOW ? 0.15 : 0.08, 0, 0, 0}};
    assert_int_equal(comet_assess_passes(a), 1 + 2 * (1 + comet_assess_tensors(a)));
    for (int b = 0; b < 2; b++)
        for (int i = 0; i < comet_assess_rows(a); i++) {
            comet_assess_row row;
            comet_assess_get_row(a, b, i, &row);
            check_row(t, a, b, &row, o.error_rel[b], BATCHES);
            for (int u = 0; u < USES; u++)
                if (strcmp(row.use, uses[u].use) == 0)
                    add_row(&uses[u], &row, independent_of(t, &row));
        }
    for (int u = 0; u < USES; u++) {
        const double alone = sqrt(uses[u].weights / uses[u].alone), together = sqrt(uses[u].weights / uses[u].together);
        print_message("%s: predicted / measured sigma %.3f, all tensors together %.3f\n", uses[u].use, alone, together);
        assert_true(fabs(alone - 1) < uses[u].tolerance);
        assert_true(together - 1 < uses[u].tolerance && 1 - together < uses[u].tolerance + 0.05);
    }
    comet_assess_free(a);
    comet_trainer_free(t);
}

/*
 * What is stored: within the bound, and uniform, but for what is left to chance among so many values and a density that
 * falls within a cell.
 */
static void test_stored_errors(void **state) {
    (void)state;
    const comet_assess_options o = {.bounds = 1, .error_rel = {0.1}};
    comet_trainer *t = controlled("resnet8");
    comet_assess *a = assessed(t, &o, 1);
    int with_zeros = 0;
    for (int i = 0; i < comet_assess_tensors(a); i++) {
        comet_assess_tensor s;
        comet_assess_get_tensor(a, 0, i, &s);
        const double chance = 1 / sqrt(s.errors->count);
        assert_true(s.largest > 0.99 && s.largest <= 1.0001);
        assert_true(s.errors->count + s.zeros + s.exact == s.values);
        assert_true(s.errors->count + s.zeros > 0.999 * s.values);
        assert_true(comet_histogram_distance(s.errors, comet_uniform_distribution) < 0.02 + 1.6 * chance);
        assert_true(fabs(3 * comet_histogram_variance(s.errors) - 1) < 0.01 + 3 * chance);
        with_zeros += s.zeros > 0.1 * s.values;
    }
    assert_true(with_zeros > 0);
    comet_assess_free(a);
    comet_trainer_free(t);
}

/* Of one tensor, alone and together are the same; and the same as in an assessment of all. */
static void test_one_tensor(void **state) {
    (void)state;
    const comet_assess_options one = {.bounds = 1, .error_rel = {0.1}, .layers = "layer2.0.bn1"},
                               all = {.bounds = 1, .error_rel = {0.1}};
    comet_trainer *t = controlled("resnet8");
    comet_assess *a = assessed(t, &one, 1), *b = assessed(t, &all, 1);
    int same = 0;
    assert_int_equal(comet_assess_tensors(a), 1);
    assert_int_equal(comet_assess_rows(a), 3);
    for (int i = 0; i < comet_assess_rows(a); i++) {
        comet_assess_row row, other;
        comet_assess_get_row(a, 0, i, &row);
        assert_string_equal(row.tensor, "layer2.0.bn1");
        assert_true(row.measured > 0);
        assert_true(row.measured == row.joint_measured && row.predicted == row.joint_predicted);
        for (int k = 0; k < comet_assess_rows(b); k++) {
            comet_assess_get_row(b, 0, k, &other);
            if (strcmp(row.tensor, other.tensor) != 0 || strcmp(row.gradient, other.gradient) != 0)
                continue;
            assert_true(row.measured == other.measured);
            assert_near(row.predicted, other.predicted, 0.01); /* of a step with all of them compressed */
            same++;
        }
    }
    assert_int_equal(same, 3);
    comet_assess_free(a);
    comet_assess_free(b);
    comet_trainer_free(t);
}

/* The controller's own: warm-up's before a decision, its own behind it. */
static void test_controllers_bounds(void **state) {
    (void)state;
    const comet_assess_options o = {.bounds = 1, .error_rel = {-1}};
    const comet_control_options defaults = COMET_CONTROL_OPTIONS_INIT;
    comet_trainer *t = controlled("resnet8");
    comet_assess *before = assessed(t, &o, 1);
    for (uint64_t i = 0; i < 8; i++)
        train(t, i, 0.05);
    comet_assess *after = assessed(t, &o, 1);
    int moved = 0;
    for (int i = 0; i < comet_assess_tensors(after); i++) {
        comet_assess_tensor a, b;
        comet_assess_get_tensor(before, 0, i, &a);
        comet_assess_get_tensor(after, 0, i, &b);
        assert_near(a.error_rel, defaults.warmup_bound, 1e-9);
        const comet_control_bound_value bound = comet_control_bound(comet_trainer_control(t), i);
        assert_int_equal(bound.kind, COMET_BOUND_ABSOLUTE);
        assert_near(b.error_rel * b.rms, bound.value, 1e-9);
        moved += fabs(b.error_rel / defaults.warmup_bound - 1) > 0.1;
    }
    assert_true(moved > 0);
    comet_assess_free(before);
    comet_assess_free(after);
    comet_trainer_free(t);
}

/* Several uses of a tensor that reach one gradient are one row, with the sum of their variances. */
static void test_uses_together(void **state) {
    (void)state;
    const comet_assess_options o = {.bounds = 1, .error_rel = {0.1}, .layers = "features.1.0.block.0.1"};
    comet_trainer *t = controlled("efficientnet_b0");
    comet_assess *a = assessed(t, &o, 1);
    const batch b = make_batch(100);
    const int32_t tensor = tensor_called(t, o.layers);
    int found = 0;
    for (int i = 0; i < comet_assess_rows(a); i++) {
        comet_assess_row row;
        comet_assess_get_row(a, 0, i, &row);
        for (int k = 0; k < i; k++) {
            comet_assess_row other;
            comet_assess_get_row(a, 0, k, &other);
            assert_string_not_equal(row.gradient, other.gradient);
        }
        if (strcmp(row.use, "norm_input+curve_input") != 0)
            continue;
        const own_variances own = own_of(t, tensor, use_called(t, tensor, row.gradient), &b, o.error_rel[0]);
        assert_near(row.predicted, sqrt(own.predicted), 1e-9);
        assert_near(row.measured, sqrt(own.measured), 1e-9);
        found++;
    }
    assert_int_equal(found, 1);
    comet_assess_free(a);
    comet_trainer_free(t);
}

/* ---- what does not work ---- */

static void expect_refusal(comet_trainer *t, const comet_assess_options *o, const char *says) {
    comet_assess *a = NULL;
    comet_message message = {.text = ""};
    assert_int_equal(comet_assess_new(t, o, NULL, &a, &message), COMET_ERROR_ARGUMENT);
    if (!strstr(message.text, says))
        fail_msg("'%s' does not say '%s'", message.text, says);
}

static void test_refusals(void **state) {
    (void)state;
    const comet_assess_options none = {.bounds = 0}, many = {.bounds = COMET_ASSESS_MOST_BOUNDS + 1},
                               unknown = {.bounds = 1, .error_rel = {0.1}, .layers = "nothing*"};
    comet_trainer *t = controlled("resnet8");
    expect_refusal(t, &none, "from 1 to");
    expect_refusal(t, &many, "from 1 to");
    expect_refusal(t, &unknown, "'nothing*'");
    comet_trainer_free(t);
    comet_trainer_options o = options_for("resnet8", "eb");
    t = trainer_of(&o);
    expect_refusal(t, &(comet_assess_options){.bounds = 1, .error_rel = {0.1}}, "controller");
    batch b = make_batch(1);
    comet_message message;
    const comet_probe p = {.pixels = b.pixels, .labels = b.labels};
    assert_int_equal(comet_trainer_probe(t, &p, &message), COMET_ERROR_ARGUMENT);
    comet_trainer_free(t);
}

static void count_pass(void *context, const char *what) {
    assert_true(what[0] != 0);
    ++*(volatile sig_atomic_t *)context;
}

static void test_stop_and_progress(void **state) {
    (void)state;
    volatile sig_atomic_t passes = 0, stop = 0;
    comet_assess_options o = {.bounds = 1, .error_rel = {0.1}, .layers = "layer1.*", .stop = &stop};
    comet_trainer *t = controlled("resnet8");
    o.progress = count_pass;
    o.context = (void *)&passes;
    comet_assess *a = assessed(t, &o, 1);
    assert_int_equal(passes, comet_assess_passes(a));
    batch b = make_batch(1);
    comet_message message;
    stop = 1;
    assert_int_equal(comet_assess_batch(a, b.pixels, b.labels, &message), COMET_ERROR_IO);
    assert_string_equal(message.text, "stopped");
    comet_assess_free(a);
    comet_trainer_free(t);
}

/* Memory that cannot be had: an error, and nothing is kept. */
static void test_memory(void **state) {
    (void)state;
    const comet_assess_options o = {.bounds = 1, .error_rel = {0.1}, .layers = "bn1"};
    comet_trainer *t = controlled("resnet8");
    int failures = 0;
    for (long at = 1;; at++) {
        counting_allocator counting;
        comet_assess *a = NULL;
        comet_message message;
        counting_allocator_init(&counting);
        counting.fail_at = at;
        comet_status status = comet_assess_new(t, &o, &counting.allocator, &a, &message);
        comet_assess_free(status == COMET_OK ? a : NULL);
        assert_int_equal(counting.live_blocks, 0);
        assert_int_equal(counting.wrong_sizes, 0);
        if (status == COMET_OK)
            break;
        assert_int_equal(status, COMET_ERROR_MEMORY);
        failures++;
    }
    assert_in_range(failures, 5, 20);
    comet_trainer_free(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_histogram_ends),
        cmocka_unit_test(test_probe),
        cmocka_unit_test(test_probe_leaves_training_alone),
        cmocka_unit_test(test_lossless_is_raw),
        cmocka_unit_test(test_figures),
        cmocka_unit_test(test_ratios),
        cmocka_unit_test(test_stored_errors),
        cmocka_unit_test(test_one_tensor),
        cmocka_unit_test(test_controllers_bounds),
        cmocka_unit_test(test_uses_together),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_stop_and_progress),
        cmocka_unit_test(test_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
