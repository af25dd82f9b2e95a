/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans of random networks: buffers that live at the same time do not overlap, their block is not exceeded, and a step
 * gives the same bits as with a place of its own for every buffer. Forms: without loss the same bits as kept; masks
 * stay exact with loss; nothing is left in the store.
 */
#include "test_train_case.h"

#include <math.h>
#include <stdio.h>

#include "support/effort.h"

/* ---- random networks ---- */

enum { MOST_VALUES = 64 };

static comet_value random_op(comet_graph *g, rng *r, comet_value x, int index) {
    char name[32];
    const comet_shape s = comet_graph_shape(g, x);
    snprintf(name, sizeof name, "layer%d", index);
    switch (rng_below(r, 12)) {
    case 0:
    case 1:
        return comet_graph_conv2d(
            g, name, x,
            &(comet_conv2d){.out = (int)rng_between(r, 1, 9), .kernel = 3, .padding = 1, .bias = index & 1});
    case 2:
        return comet_graph_conv2d(g, name, x,
                                  &(comet_conv2d){.out = s.channels, .kernel = 3, .padding = 1, .groups = s.channels});
    case 3:
    case 4:
        return comet_graph_relu(g, comet_graph_batch_norm(g, name, x));
    case 5:
        return comet_graph_silu(g, comet_graph_batch_norm(g, name, x));
    case 6:
        return comet_graph_batch_norm(g, name, x);
    case 7:
        return comet_graph_relu(g, x);
    case 8:
        return comet_graph_max_pool(g, x, &(comet_pool2d){.kernel = 2, .stride = 1, .padding = 1});
    case 9:
        return comet_graph_dropout(g, x, 0.3f);
    case 10:
        return comet_graph_scale_channels(g, x, comet_graph_sigmoid(g, comet_graph_adaptive_average_pool(g, x, 1, 1)));
    default:
        return comet_graph_average_pool(g, x, &(comet_pool2d){.kernel = 3, .stride = 1, .padding = 1});
    }
}

static int same(comet_shape a, comet_shape b) {
    return a.height == b.height && a.width == b.width && a.channels == b.channels;
}

/* What no op used goes to the output, as sums. */
static void tie(comet_graph *g, const int *used) {
    comet_value sum = -1;
    char name[32];
    const int count = g->value_count;
    for (int v = 0; v < count; v++) {
        if (used[v])
            continue;
        snprintf(name, sizeof name, "fc%d", v);
        comet_value y = comet_graph_linear(g, name, comet_graph_flatten(g, v), 4, 1);
        sum = sum < 0 ? y : comet_graph_add(g, sum, y);
    }
    comet_graph_output(g, sum);
}

static void mark(const comet_graph *g, int *used) {
    for (int i = 0; i < g->node_count; i++)
        for (int k = 0; k < g->nodes[i].inputs; k++)
            used[g->nodes[i].input[k]] = 1;
}

static comet_graph *random_graph(uint64_t seed) {
    rng r = rng_seed(seed);
    comet_graph *g;
    comet_value values[MOST_VALUES];
    int count = 0, used[512] = {0};
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, (int)rng_between(&r, 3, 7), (int)rng_between(&r, 3, 7), 3);
    values[count++] = comet_graph_conv2d(g, "first", x, &(comet_conv2d){.out = 4, .kernel = 1});
    const int ops = (int)rng_between(&r, 3, 14);
    for (int i = 0; i < ops; i++) {
        comet_value from = values[rng_below(&r, 3) ? count - 1 : (int)rng_below(&r, (uint64_t)count)];
        values[count++] = random_op(g, &r, from, i);
        comet_value other = values[rng_below(&r, (uint64_t)count)];
        if (rng_below(&r, 3) == 0 && same(comet_graph_shape(g, other), comet_graph_shape(g, values[count - 1])))
            values[count - 1] = comet_graph_add(g, values[count - 1], other);
    }
    mark(g, used);
    tie(g, used);
    return g;
}

/* ---- places ---- */

static void check_places(const comet_plan *p) {
    for (int i = 0; i < p->buffer_count; i++) {
        const comet_buffer *a = &p->buffers[i];
        assert_true(a->first <= a->last && a->offset + a->bytes <= p->buffer_bytes);
        assert_int_equal(a->offset % 64, 0);
        for (int k = i + 1; k < p->buffer_count; k++) {
            const comet_buffer *b = &p->buffers[k];
            if (a->first <= b->last && b->first <= a->last)
                assert_true(a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset);
        }
    }
    assert_true(p->live_bytes <= p->buffer_bytes);
}

static float *all_gradients(const comet_graph *g, size_t *count) {
    *count = 0;
    for (int i = 0; i < g->parameter_count; i++)
        *count += g->parameters[i].gradient ? (size_t)g->parameters[i].count : 0;
    float *all = malloc(*count * sizeof *all), *next = all;
    for (int i = 0; i < g->parameter_count; i++)
        if (g->parameters[i].gradient) {
            memcpy(next, g->parameters[i].gradient, (size_t)g->parameters[i].count * sizeof *next);
            next += g->parameters[i].count;
        }
    return all;
}

/* A step in memory that was full of NaN. */
static float *gradients_in(train_case *c, char *memory, size_t bytes, size_t *count) {
    comet_step *kept = c->step;
    memset(memory, 0xFF, bytes);
    const comet_step_parts parts = {c->learned, c->holder, memory, bytes};
    assert_done(comet_step_new(c->plan, &parts, NULL, &c->step, &c->message), c->message);
    case_run(c, NULL);
    comet_step_free(c->step);
    c->step = kept;
    return all_gradients(c->graph, count);
}

static void check_same_bits(const float *a, const float *b, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            fail_msg("gradient %zu: %.9g and %.9g", i, (double)a[i], (double)b[i]);
}

static void check_spread_out(train_case *c) {
    comet_plan *p = c->plan;
    size_t count, bytes = p->buffer_bytes, all = 0;
    char *memory = aligned_alloc(64, bytes + 64);
    float *shared = gradients_in(c, memory, bytes, &count);
    for (size_t i = 0; i < count; i++)
        assert_true(isfinite(shared[i]));
    free(memory);
    for (int i = 0; i < p->buffer_count; i++) {
        p->buffers[i].offset = all;
        all += p->buffers[i].bytes + 64;
    }
    p->buffer_bytes = all;
    memory = aligned_alloc(64, all + 64);
    float *apart = gradients_in(c, memory, all, &count);
    check_same_bits(shared, apart, count);
    free(memory);
    free(shared);
    free(apart);
}

static void choose_any(void *context, comet_plan_entry *entry) {
    static const double bounds[] = {0, 0.01, 0.3};
    rng *r = context;
    if (rng_below(r, 2))
        return;
    if (rng_below(r, 3) == 0) {
        entry->form.form = COMET_FORM_RECOMPUTE;
        return;
    }
    double bound = bounds[rng_below(r, 3)];
    comet_plan_choose_eb(&bound, entry);
    if (rng_below(r, 4) == 0)
        entry->form.codec.keep_mask = 0;
    if (rng_below(r, 4) == 0)
        entry->form.codec.codec = COMET_CODEC_ZVC;
}

static void test_random(void **state) {
    (void)state;
    for (int i = 0; i < effort(60); i++) {
        rng r = rng_seed((uint64_t)i);
        comet_plan_options o = {.batch = 1 + i % 4, .training = 1, .choose = i % 3 ? choose_any : NULL, .context = &r};
        train_case c = case_new(random_graph((uint64_t)i), o.batch, 2, &o);
        check_places(c.plan);
        check_spread_out(&c);
        assert_int_equal(c.holder->stats(c.holder).entries, 0);
        case_free(&c);
    }
}

/* ---- what is computed again ---- */

/* A form without loss: kept, in the file, zvc, or computed again. */
static void choose_exact(void *context, comet_plan_entry *entry) {
    rng *r = context;
    switch (rng_below(r, 6)) {
    case 0:
        return;
    case 1:
        entry->form.offload = 1;
        return;
    case 2:
        entry->form.form = COMET_FORM_CODEC;
        entry->form.codec.codec = COMET_CODEC_ZVC;
        return;
    default:
        entry->form.form = COMET_FORM_RECOMPUTE;
    }
}

static float *gradients_chosen(uint64_t seed, void (*choose)(void *, comet_plan_entry *), size_t *count,
                               comet_plan_bytes *bytes) {
    rng r = rng_seed(seed);
    comet_plan_options o = {.batch = 1 + (int)seed % 3, .training = 1, .choose = choose, .context = &r};
    train_case c = case_new(random_graph(seed), o.batch, 2, &o);
    check_places(c.plan);
    case_run(&c, NULL);
    *bytes = comet_plan_get_bytes(c.plan, c.learned);
    float *all = all_gradients(c.graph, count);
    case_free(&c);
    return all;
}

static void test_again_is_exact(void **state) {
    (void)state;
    for (int i = 0; i < effort(60); i++) {
        comet_plan_bytes bytes;
        size_t count;
        float *kept = gradients_chosen((uint64_t)i, NULL, &count, &bytes);
        float *mixed = gradients_chosen((uint64_t)i, choose_exact, &count, &bytes);
        check_same_bits(kept, mixed, count);
        free(kept);
        free(mixed);
    }
}

/* ---- forms ---- */

static comet_graph *block_net(void) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 12, 12, 3);
    x = comet_graph_conv2d(g, "conv1", x, &(comet_conv2d){.out = 16, .kernel = 3, .padding = 1});
    x = comet_graph_max_pool(g, comet_graph_relu(g, comet_graph_batch_norm(g, "bn1", x)), &(comet_pool2d){.kernel = 2});
    comet_value y = comet_graph_conv2d(g, "conv2", x, &(comet_conv2d){.out = 16, .kernel = 3, .padding = 1});
    y = comet_graph_silu(g, comet_graph_batch_norm(g, "bn2", y));
    y = comet_graph_conv2d(g, "conv3", y, &(comet_conv2d){.out = 16, .kernel = 3, .padding = 1});
    x = comet_graph_relu(g, comet_graph_add(g, comet_graph_batch_norm(g, "bn3", y), x));
    x = comet_graph_conv2d(g, "conv4", x, &(comet_conv2d){.out = 24, .kernel = 3, .stride = 2, .padding = 1});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "bn4", x));
    x = comet_graph_flatten(g, comet_graph_adaptive_average_pool(g, x, 1, 1));
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 10, 1));
    return g;
}

static float *gradients_with(double *bound, comet_plan_bytes *bytes, uint64_t *stored, size_t *count) {
    comet_plan_options o = {.batch = 8, .training = 1, .choose = bound ? comet_plan_choose_eb : NULL, .context = bound};
    train_case c = case_new(block_net(), 8, 2, &o);
    *stored = case_run(&c, NULL).stored_bytes;
    *bytes = comet_plan_get_bytes(c.plan, c.learned);
    float *all = all_gradients(c.graph, count);
    case_free(&c);
    return all;
}

static void test_lossless_is_exact(void **state) {
    (void)state;
    comet_plan_bytes kept_bytes, bytes;
    uint64_t stored;
    size_t count;
    double bound = 0;
    float *kept = gradients_with(NULL, &kept_bytes, &stored, &count);
    assert_int_equal(stored, 0);
    float *lossless = gradients_with(&bound, &bytes, &stored, &count);
    assert_true(stored > 0);
    check_same_bits(kept, lossless, count);
    free(kept);
    free(lossless);
}

static double distance(const float *a, const float *b, size_t count) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        error += pow((double)(b[i] - a[i]), 2);
        norm += pow((double)a[i], 2);
    }
    return sqrt(error / norm);
}

/* With loss: near by, and much smaller; fewer tensors are saved than when everything is kept. */
static void test_lossy(void **state) {
    (void)state;
    comet_plan_bytes kept_bytes, bytes;
    uint64_t stored;
    size_t count;
    float *kept = gradients_with(NULL, &kept_bytes, &stored, &count);
    double before = 0;
    for (double bound = 1e-3; bound < 1; bound *= 10) {
        float *lossy = gradients_with(&bound, &bytes, &stored, &count);
        const double error = distance(kept, lossy, count);
        assert_true(error < 2 * bound && error > before);
        assert_true(bytes.saved_raw_bytes < kept_bytes.saved_raw_bytes);
        assert_true(bytes.saved_stored_bytes < kept_bytes.saved_stored_bytes);
        before = error;
        free(lossy);
    }
    free(kept);
}

/* Computed again from values held with loss: near by all the same, and with masks beside them. */
static void choose_again_with_loss(void *context, comet_plan_entry *entry) {
    if (entry->kind == COMET_SAVED_NORM || entry->op == COMET_OP_CONV || entry->op == COMET_OP_BATCH_NORM)
        entry->form.form = COMET_FORM_RECOMPUTE;
    else
        comet_plan_choose_eb(context, entry);
}

static void test_again_with_loss(void **state) {
    (void)state;
    comet_plan_bytes bytes;
    uint64_t stored;
    size_t count;
    float *kept = gradients_with(NULL, &bytes, &stored, &count);
    for (double bound = 1e-3; bound < 1; bound *= 10) {
        comet_plan_options o = {.batch = 8, .training = 1, .choose = choose_again_with_loss, .context = &bound};
        train_case c = case_new(block_net(), 8, 2, &o);
        int masks = 0, again = 0;
        for (int i = 0; i < c.plan->entry_count; i++) {
            masks += c.plan->entries[i].kind == COMET_SAVED_MASK;
            again += c.plan->entries[i].form.form == COMET_FORM_RECOMPUTE;
        }
        assert_true(masks > 0 && again > 0);
        check_places(c.plan);
        case_run(&c, NULL);
        float *lossy = all_gradients(c.graph, &count);
        const double error = distance(kept, lossy, count);
        assert_true(error > 0 && error < 3 * bound);
        free(lossy);
        case_free(&c);
    }
    free(kept);
}

static const comet_plan_entry *entry_named(const comet_plan *p, const char *name, comet_saved_kind kind) {
    for (int i = 0; i < p->entry_count; i++)
        if (p->entries[i].kind == kind && strcmp(p->entries[i].name, name) == 0)
            return &p->entries[i];
    return NULL;
}

/* Aliases are one entry: a ReLU behind a sum, its mask and two readers; a norm's input and no mask. */
static void test_aliases(void **state) {
    (void)state;
    train_case c = case_new(block_net(), 8, 1, NULL);
    const comet_plan *p = c.plan;
    for (int i = 0; i < p->entry_count; i++)
        assert_int_not_equal(p->entries[i].kind, COMET_SAVED_MASK);
    assert_non_null(entry_named(p, "conv1", COMET_SAVED_VALUE)); /* bn1's input */
    assert_null(entry_named(p, "bn1", COMET_SAVED_VALUE));       /* the max-pool behind it needs no values */
    const comet_plan_entry *sum = NULL;
    for (int i = 0; i < p->entry_count; i++)
        if (strncmp(p->entries[i].name, "relu", 4) == 0 && p->entries[i].kind == COMET_SAVED_VALUE)
            sum = &p->entries[i];
    assert_non_null(sum);
    assert_int_equal(sum->uses, 2); /* conv4 and the ReLU itself */
    const comet_plan_entry *pool = entry_named(p, "max_pool.3", COMET_SAVED_SIDE);
    assert_non_null(pool);
    assert_int_equal(pool->raw_bytes, 8 * 6 * 6 * 16 / 4); /* two bits each */
    case_free(&c);
}

/* ---- evaluation ---- */

static void test_evaluation(void **state) {
    (void)state;
    train_case c = case_new(block_net(), 8, 2, NULL);
    case_run(&c, NULL); /* running statistics that are not 0 and 1 */
    comet_plan *plan;
    comet_step *step;
    comet_step_result all, some, one;
    assert_done(comet_plan_new(c.graph, c.backend, &(comet_plan_options){.batch = 8}, NULL, &plan, &c.message),
                c.message);
    check_places(plan);
    assert_true(comet_plan_get_bytes(plan, NULL).buffer_bytes < comet_plan_get_bytes(c.plan, NULL).buffer_bytes);
    assert_int_equal(comet_plan_entries(plan), 0);
    assert_done(comet_step_new(plan, &(comet_step_parts){0}, NULL, &step, &c.message), c.message);
    const size_t bytes = 8 * 12 * 12 * 3 * sizeof(float);
    memcpy(comet_step_input(step), c.input, bytes);
    assert_done(comet_step_run(step, &(comet_step_options){.labels = c.labels}, &all, &c.message), c.message);
    float logits[80];
    memcpy(logits, comet_step_logits(step), sizeof logits);
    double sum = 0;
    for (int i = 0; i < 8; i++) { /* sample by sample: the batch does not matter */
        for (int k = 0; k < 8; k++)
            memcpy((float *)comet_step_input(step) + k * 432, c.input + i * 432, bytes / 8);
        assert_done(comet_step_run(step, &(comet_step_options){.labels = c.labels + i, .count = 1}, &one, &c.message),
                    c.message);
        for (int k = 0; k < 10; k++)
            assert_true(fabs((double)(((const float *)comet_step_logits(step))[k] - logits[i * 10 + k])) < 1e-5);
        sum += one.loss / 8;
    }
    assert_true(fabs(sum - all.loss) < 1e-6);
    memcpy(comet_step_input(step), c.input, bytes);
    assert_done(comet_step_run(step, &(comet_step_options){.labels = c.labels, .count = 5}, &some, &c.message),
                c.message);
    assert_true(some.top1 <= all.top1 && some.top5 <= all.top5 && all.top1 <= all.top5);
    comet_step_free(step);
    comet_plan_free(plan);
    case_free(&c);
}

/* ---- what is wrong ---- */

static void check_problem(comet_graph *g, const char *part) {
    comet_message message = {{0}};
    comet_backend *backend;
    comet_plan *plan = NULL;
    assert_ok(comet_backend_onednn_new(1, NULL, &backend));
    assert_true(comet_plan_new(g, backend, &(comet_plan_options){.batch = 2, .training = 1}, NULL, &plan, &message) !=
                COMET_OK);
    assert_null(plan);
    assert_non_null(strstr(message.text, part));
    comet_backend_free(backend);
    comet_graph_free(g);
}

static void test_problems(void **state) {
    (void)state;
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    check_problem(g, "no input");
    assert_ok(comet_graph_new(NULL, &g));
    comet_graph_output(g, comet_graph_linear(g, "fc", comet_graph_input(g, 4, 4, 3), 10, 1));
    check_problem(g, "fc: ");
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 4, 4, 3);
    x = comet_graph_conv2d(g, "stem", x, &(comet_conv2d){.out = 8, .kernel = 7});
    comet_graph_output(
        g, comet_graph_flatten(g, comet_graph_relu(g, comet_graph_add(g, x, x)))); /* the first problem is told */
    check_problem(g, "stem: an image of 4 x 4 is too small");
    assert_ok(comet_graph_new(NULL, &g));
    x = comet_graph_flatten(g, comet_graph_input(g, 4, 4, 3));
    comet_graph_relu(g, x);
    comet_graph_output(g, comet_graph_linear(g, "fc", x, 10, 1));
    check_problem(g, "nothing uses");
    assert_ok(comet_graph_new(NULL, &g));
    x = comet_graph_flatten(g, comet_graph_input(g, 1, 1, 3));
    x = comet_graph_linear(g, "fc", comet_graph_linear(g, "fc", x, 3, 0), 3, 0);
    comet_graph_output(g, x);
    check_problem(g, "two layers");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_again_is_exact),
        cmocka_unit_test(test_lossless_is_exact),
        cmocka_unit_test(test_lossy),
        cmocka_unit_test(test_again_with_loss),
        cmocka_unit_test(test_aliases),
        cmocka_unit_test(test_evaluation),
        cmocka_unit_test(test_problems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
