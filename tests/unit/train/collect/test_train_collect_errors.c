/* SPDX-License-Identifier: Apache-2.0 */
/* Measured errors (docs/measured.md): against gradients with the tensor as it is, and where the model is wrong. */
#include "support/effort.h"
#include "unit/train/collect/test_train_collect_measured.h"

static void set_bound(train_case *c, comet_bound_kind kind, double bound) {
    for (int i = 0; i < comet_plan_entries(c->plan); i++)
        if (comet_plan_get_entry(c->plan, i)->form.form == COMET_FORM_CODEC)
            comet_learned_set_bound(c->learned, i, kind, bound);
}

static comet_backend *cpu_backend(void) {
    comet_backend *backend;
    assert_ok(comet_backend_onednn_new(1, NULL, &backend));
    return backend;
}

static void test_measured_is_what_is(void **state) {
    (void)state;
    const single all[] = {
        {plain_network, "bn1", 3, NULL},
        {plain_network, "bn2", 3, NULL},
        {plain_network, "bn3", 2, NULL},
        {plain_network, "relu.9", 1, NULL},
        {small_network, "bn1", 3, NULL},
        {small_network, "bn2", 2, NULL},
        {curved_network, "bn1", 3, NULL},
        {curved_network, "bn3", 2, NULL},
        {curved_network, "bn2", 4, "bn2.weight conv2.weight"},
        {curved_network, "fc1", 1, NULL},
        {strided_network, "bn1", 3, NULL},
        {strided_network, "bn2", 3, NULL},
    };
    /* Both are sums in fp32, of which the errors are small differences. */
    const single_on cpu = {cpu_backend, 32, 5, 2e-3};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        check_single(&all[i], &cpu);
}

/* Two batches of one update add up; a batch that fails counts for nothing, but what is seen then is not whole. */
static void test_batches_add_up(void **state) {
    (void)state;
    wish one = {"bn2", 0.3};
    train_case c = case_on(1, plain_network(), 32, &one);
    comet_collect *collect;
    static double sums[COMET_ERRORS_SUMS];
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    draw_case(&c, 1);
    comet_collect_begin(collect);
    const comet_collect_measured *m = &collect->keeping.kept[0].uses[0];
    const comet_collect_update update = any_update();
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    assert_int_equal(m->seen, 1);
    memcpy(sums, m->sums, sizeof sums);
    const double once = comet_collect_observation(collect, &update, 0)->uses[0].factor;
    case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
    assert_int_equal(m->seen, 2);
    for (int i = 0; i < COMET_ERRORS_SUMS; i++)
        assert_true(m->sums[i] == 2 * sums[i]);
    /* Errors that are the same twice make twice the sigma; independent ones would make the root of that. */
    const double twice = comet_collect_observation(collect, &update, 0)->uses[0].factor;
    assert_true(once > 0 && fabs(twice / once - sqrt(2)) < 0.01);
    comet_collect_batch_begin(collect);
    comet_collect_batch_end(collect); /* nothing was seen of it */
    assert_true(comet_collect_observation(collect, &update, 0)->uses[0].factor == 0);
    comet_collect_free(collect);
    case_free(&c);
}

/* Without COMET_NEEDS_MEASURED nothing is kept; with it memory is counted. */
static void test_memory_is_counted(void **state) {
    (void)state;
    wish all = {NULL, 0.3};
    train_case c = case_on(1, curved_network(), 32, &all);
    comet_collect *with, *without;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &with, &c.message), c.message);
    assert_done(comet_collect_new(c.plan, 0, NULL, &without, &c.message), c.message);
    assert_true(comet_collect_bytes(with) >= comet_collect_bytes(without) + with->keeping.bytes);
    assert_true(with->keeping.room > 0 && with->keeping.bytes >= with->keeping.room);
    assert_int_equal(without->keeping.packs, 0);
    for (int turn = 0; turn < 3 * with->keeping.packs; turn++) { /* each tensor has its turn, within the room */
        comet_collect_set_turn(with, turn);
        comet_collect_begin(with);
        assert_true(with->keeping.count > 0);
        for (int i = 0; i < with->keeping.count; i++) {
            const comet_collect_kept *k = &with->keeping.kept[i];
            const float *end = (k->second ? k->second : k->exact) + k->rows * k->width;
            assert_true((const char *)end <= with->keeping.memory + with->keeping.room);
            assert_int_equal(with->keeping.turns[k->tensor].pack, turn % with->keeping.packs);
        }
    }
    comet_collect_free(with);
    comet_collect_free(without);
    case_free(&c);
}

/* ---- even backgrounds ---- */

enum { EVEN_BATCH = 64, EVEN_BATCHES = 160 };

/* Images that are the same number but for a spot. */
static void even_input(train_case *c, uint64_t seed) {
    const comet_shape shape = c->graph->values[c->graph->input].shape;
    rng r = rng_seed(seed);
    for (int n = 0; n < c->batch; n++) {
        const int y = (int)rng_below(&r, (uint32_t)shape.height), x = (int)rng_below(&r, (uint32_t)shape.width);
        for (int64_t i = 0; i < comet_shape_count(shape); i++) {
            const int64_t pixel = i / shape.channels, down = pixel / shape.width - y, right = pixel % shape.width - x;
            c->input[n * comet_shape_count(shape) + i] =
                down * down + right * right < 12 ? (float)rng_gauss(&r) : -0.8f;
        }
        c->labels[n] = (int32_t)rng_below(&r, 5);
    }
}

/* Of one gradient: variances by the model, by the model with the factor so far, as they are. */
typedef struct account {
    const char *gradient;
    double factor;
    int64_t count;
    double predicted, with_factor, measured;
} account;

static double actual_variance(const comet_graph *g, const float *exact, int parameter) {
    const comet_parameter *p = &g->parameters[parameter];
    const float *was = gradient_in(g, exact, parameter);
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += pow((double)p->gradient[i] - (double)was[i], 2) / (double)p->count;
    return sum;
}

/* In the first half factors are found, in the second they are used. */
static void add_batch(const train_case *c, comet_collect *collect, const float *exact, int is_used, account *a) {
    int32_t count;
    const comet_control_tensor *tensor = comet_collect_tensors(collect, &count);
    const comet_collect_update update = any_update();
    const comet_control_observation *o = comet_collect_observation(collect, &update, 0);
    assert_non_null(o);
    for (int32_t u = 0; u < tensor->use_count; u++) {
        comet_use_stats s = o->uses[u];
        if (strcmp(c->graph->parameters[tensor->uses[u].gradient].name, a->gradient) != 0)
            continue;
        assert_true(s.factor > 0);
        if (!is_used) {
            a->factor = comet_error_factor_mean(a->factor, a->count++, s.factor);
            continue;
        }
        s.factor = 0;
        const double variance = pow(comet_error_sensitivity(tensor->uses[u].kind, &s) * o->sizes[0].bound, 2);
        a->predicted += variance;
        a->with_factor += variance * a->factor * a->factor;
        a->measured += actual_variance(c->graph, exact, tensor->uses[u].gradient);
    }
}

/* One network with other images each time. */
static void run_even(uint64_t network, account *all, int count) {
    wish one = {"bn1", 0.3};
    train_case c = case_on(1, pooled_network(), EVEN_BATCH, &one);
    comet_collect *collect;
    assert_done(comet_collect_new(c.plan, COMET_NEEDS_MEASURED, NULL, &collect, &c.message), c.message);
    draw_case(&c, network);
    for (int i = 0; i < EVEN_BATCHES; i++) {
        even_input(&c, (uint64_t)i + 1);
        set_bound(&c, COMET_BOUND_ABSOLUTE, 0);
        case_run(&c, NULL);
        float *exact = gradients_of(c.graph);
        set_bound(&c, COMET_BOUND_RELATIVE, 0.3);
        comet_collect_set_turn(collect, i);
        comet_collect_begin(collect);
        case_run(&c, &(comet_step_options){.seed = 1, .step = 1, .collect = collect});
        for (int k = 0; k < count; k++)
            add_batch(&c, collect, exact, i >= EVEN_BATCHES / 2, &all[k]);
        free(exact);
    }
    comet_collect_free(collect);
    case_free(&c);
}

/*
 * All of an even background has the same error in every image, which the model does not know: it is off by more than 2,
 * to either side. What chance leaves of a factor is 10 % or so: there are two channels in each of its measurements.
 */
static void test_even_backgrounds(void **state) {
    (void)state;
    static const uint64_t networks[] = {4, 12, 13};
    double least = 1, most = 1;
    int wrong = 0;
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++) {
        account all[] = {{.gradient = "conv1.weight"}, {.gradient = "bn1.weight"}, {.gradient = "conv2.weight"}};
        run_even(networks[i], all, 3);
        for (int k = 0; k < 3; k++) {
            const double model = sqrt(all[k].predicted / all[k].measured),
                         with = sqrt(all[k].with_factor / all[k].measured);
            print_message("bn1 in the gradient of %s: predicted / measured sigma %.2f, with its factor %.2f\n",
                          all[k].gradient, model, with);
            least = model < least ? model : least;
            most = model > most ? model : most;
            wrong += !(with > 0.85 && with < 1.2);
        }
    }
    assert_true(least < 0.5 && most > 2); /* or the images are not what they are for */
    assert_int_equal(wrong, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_measured_is_what_is),
                                       cmocka_unit_test(test_batches_add_up), cmocka_unit_test(test_memory_is_counted),
                                       cmocka_unit_test(test_even_backgrounds)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
