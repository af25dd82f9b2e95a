/* SPDX-License-Identifier: Apache-2.0 */
/* The update on a device against the CPU's, bit by bit, and the copies of weights in 16 bits. */
#include "cuda_train_bench.h"

/* The same network twice: on the host and on the device, whose convolutions' weights lie in another order. */
typedef struct twins {
    train_bench *b;
    comet_optimiser optimiser;
    comet_graph *graphs[2];
    comet_space *spaces[2];
    float *state[2];
    size_t state_bytes;
    double *means[2];
    int count;
} twins;

static comet_graph *network(comet_space *space, int wide) {
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_value x = comet_graph_input(g, 6, 6, 3);
    x = comet_graph_conv2d(g, "one", x, &(comet_conv2d){.out = 5, .kernel = 3, .bias = 1});
    x = comet_graph_batch_norm(g, "norm", x);
    x = comet_graph_conv2d(g, "two", x, &(comet_conv2d){.out = 37, .kernel = 3});
    x = comet_graph_relu(g, comet_graph_batch_norm(g, "norm2", x));
    x = comet_graph_linear(g, "fc", comet_graph_flatten(g, x), wide, 1);
    comet_graph_output(g, comet_graph_linear(g, "fc2", x, 1, 1));
    assert_ok(comet_graph_allocate(g, space, 1));
    return g;
}

static void arrange(const twins *t) {
    float *next = t->state[1];
    for (int a = 0; a < comet_optimiser_arrays(&t->optimiser); a++)
        for (int i = 0; i < t->count; i++) {
            const comet_parameter *p = comet_graph_parameter(t->graphs[1], i);
            if (p->kind == COMET_CONV_WEIGHT)
                assert_ok(t->spaces[1]->arrange(t->spaces[1], next, p->shape));
            next += p->kind < COMET_RUNNING_MEAN ? p->count : 0;
        }
}

static void put(const twins *t, float *host, float *device, int64_t count, double size) {
    for (int64_t i = 0; i < count; i++)
        host[i] = (float)(rng_gauss(&t->b->r) * size);
    assert_ok(t->spaces[1]->write(t->spaces[1], device, host, (size_t)count * sizeof *host));
}

static void put_gradients(const twins *t) {
    for (int i = 0; i < t->count; i++) {
        const comet_parameter *p = comet_graph_parameter(t->graphs[0], i);
        if (p->gradient)
            put(t, p->gradient, comet_graph_parameter(t->graphs[1], i)->gradient, p->count, 0.1);
    }
}

static twins wide_twins_new(comet_dtype dtype, comet_optimiser optimiser, uint64_t seed, int wide) {
    twins t = {.b = train_bench_new(dtype, seed), .optimiser = optimiser};
    t.spaces[0] = comet_host_space_plain();
    t.spaces[1] = t.b->cuda.space;
    for (int side = 0; side < 2; side++)
        t.graphs[side] = network(t.spaces[side], wide);
    t.count = comet_graph_parameters(t.graphs[0]);
    t.state_bytes = comet_optimiser_bytes(&optimiser, comet_graph_parameter(t.graphs[0], 0), t.count);
    for (int side = 0; side < 2; side++) {
        assert_ok(t.spaces[side]->take(t.spaces[side], t.state_bytes, (void **)&t.state[side]));
        t.means[side] = take((size_t)t.count * sizeof(double));
    }
    arrange(&t);
    put(&t, t.state[0], t.state[1], (int64_t)(t.state_bytes / 4), 0.1);
    for (size_t i = 0; i < t.state_bytes / 8; i++) /* second moments are not negative */
        t.state[0][t.state_bytes / 8 + i] = fabsf(t.state[0][t.state_bytes / 8 + i]);
    assert_ok(t.spaces[1]->write(t.spaces[1], t.state[1], t.state[0], t.state_bytes));
    for (int i = 0; i < t.count; i++)
        put(&t, comet_graph_parameter(t.graphs[0], i)->value, comet_graph_parameter(t.graphs[1], i)->value,
            comet_graph_parameter(t.graphs[0], i)->count, 1);
    put_gradients(&t);
    return t;
}

static twins twins_new(comet_dtype dtype, comet_optimiser optimiser, uint64_t seed) {
    return wide_twins_new(dtype, optimiser, seed, 3);
}

static void twins_free(twins *t) {
    cuda_must(cudaStreamSynchronize(t->b->cuda.queue));
    for (int side = 0; side < 2; side++) {
        t->spaces[side]->give(t->spaces[side], t->state[side], t->state_bytes);
        comet_graph_free(t->graphs[side]);
        free(t->means[side]);
    }
    train_bench_free(t->b);
}

static comet_update_call call_of(const twins *t, int side, const comet_optimiser_step *step, int with_means) {
    return (comet_update_call){.backend = side ? &t->b->cuda.base : &t->b->cpu,
                               .optimiser = &t->optimiser,
                               .step = step,
                               .parameters = comet_graph_parameter(t->graphs[side], 0),
                               .count = t->count,
                               .state = t->state[side],
                               .means = with_means ? t->means[side] : NULL,
                               .broken = -7};
}

static void expect_same(const twins *t, const char *what, const float *host, const float *device, int64_t count) {
    float *found = take((size_t)count * sizeof *found);
    assert_ok(t->spaces[1]->read(t->spaces[1], found, device, (size_t)count * sizeof *found));
    for (int64_t i = 0; i < count; i++)
        if (!same_bits(found[i], host[i]))
            fail_msg("%s: value %lld is %.9g, expected %.9g", what, (long long)i, (double)found[i], (double)host[i]);
    free(found);
}

/* The copies of trained parameters are those of their values where they lie. */
static void expect_copies_of(const twins *t, comet_graph *g) {
    const comet_backend_cuda *b = &t->b->cuda;
    for (int i = 0; i < t->count && b->base.dtype != COMET_F32; i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        if (p->kind >= COMET_RUNNING_MEAN)
            continue;
        float *values = take((size_t)p->count * 4);
        uint16_t *copies = take((size_t)p->count * 2);
        cuda_must(cudaStreamSynchronize(b->queue));
        cuda_must(cudaMemcpy(values, p->value, (size_t)p->count * 4, cudaMemcpyDeviceToHost));
        cuda_must(cudaMemcpy(copies, comet_cuda_weights(b, p), (size_t)p->count * 2, cudaMemcpyDeviceToHost));
        for (int64_t k = 0; k < p->count; k++) {
            float expected = 0; /* room for any dtype */
            set_value(b->base.dtype, &expected, 0, values[k]);
            if (!same_bits(value_at(b->base.dtype, copies, k), value_at(b->base.dtype, &expected, 0)))
                fail_msg("%s: copy %lld of %g is %g", p->name, (long long)k, (double)values[k],
                         (double)value_at(b->base.dtype, copies, k));
        }
        free(values);
        free(copies);
    }
}

static void expect_copies(const twins *t) {
    expect_copies_of(t, t->graphs[1]);
}

/* Values, state, gradients (which stay), means and what is broken. */
static void compare(const twins *t, const comet_update_call *cpu, const comet_update_call *cuda) {
    assert_int_equal(cuda->broken, cpu->broken);
    for (int i = 0; i < t->count; i++) {
        const comet_parameter *p = comet_graph_parameter(t->graphs[0], i), *q = comet_graph_parameter(t->graphs[1], i);
        expect_same(t, p->name, p->value, q->value, p->count);
        if (p->gradient)
            expect_same(t, "a gradient", p->gradient, q->gradient, p->count);
        if (!cpu->means || (isnan(cpu->means[i]) && isnan(cuda->means[i])))
            continue;
        if (!(cuda->means[i] == cpu->means[i] || fabs(cuda->means[i] - cpu->means[i]) <= 1e-14 * cpu->means[i]))
            fail_msg("%s: the mean is %.17g, expected %.17g", p->name, cuda->means[i], cpu->means[i]);
    }
    if (t->state_bytes)
        expect_same(t, "the state", t->state[0], t->state[1], (int64_t)(t->state_bytes / 4));
    expect_copies(t);
}

static void update(const twins *t, const comet_optimiser_step *step, int with_means) {
    comet_update_call cpu = call_of(t, 0, step, with_means), cuda = call_of(t, 1, step, with_means);
    for (int i = 0; i < t->count; i++)
        t->means[1][i] = -7;
    assert_ok(comet_cpu_update(&cpu));
    assert_ok(comet_cuda_weights_begin(&t->b->cuda, t->graphs[1]));
    assert_ok(comet_cuda_update(&cuda));
    compare(t, &cpu, &cuda);
}

/* ---- optimisers ---- */

enum { OPTIMISERS = 6 };

static comet_optimiser optimiser_of(int i) {
    comet_optimiser o = comet_optimiser_default(i < 4 ? COMET_SGD : COMET_ADAMW);
    o.weight_decay = i % 2 ? 1e-2 : 0;
    o.decay_weights_only = i == 1 || i == 5;
    o.momentum = i == 0 || i == 1 ? 0 : 0.9;
    o.nesterov = i == 3;
    return o;
}

static void test_steps(void **state) {
    (void)state;
    for (size_t d = 0; d < 3; d++)
        for (int i = 0; i < OPTIMISERS; i++) {
            twins t = twins_new(dtypes[d], optimiser_of(i), 100 * d + (uint64_t)i);
            for (int n = 1; n <= 3; n++) {
                const comet_optimiser_step step = {.number = n,
                                                   .learning_rate = 0.1 / n,
                                                   .momentum = n == 2 ? 0.8 : 0,
                                                   .gradient_scale = n == 3 ? 0.25 : 1};
                update(&t, &step, n != 2);
                put_gradients(&t);
            }
            twins_free(&t);
        }
}

static const comet_optimiser_step plain_step = {.number = 1, .learning_rate = 0.1, .gradient_scale = 1};

/* One value of one array that is not finite: who is broken. */
static void test_broken(void **state) {
    const float bad[] = {NAN, INFINITY, -INFINITY, 3e38f}; /* the last overflows when it is updated */
    (void)state;
    for (int i = 0; i < OPTIMISERS; i++)
        for (int round = 0; round < 12; round++) {
            twins t = twins_new(dtypes[round % 3], optimiser_of(i), 7 + (uint64_t)round);
            for (int hit = 0; hit <= round % 2; hit++) { /* one or two */
                const int index = (int)rng_below(&t.b->r, (uint64_t)t.count);
                const comet_parameter *p = comet_graph_parameter(t.graphs[0], index);
                const comet_parameter *q = comet_graph_parameter(t.graphs[1], index);
                const int64_t place = (int64_t)rng_below(&t.b->r, (uint64_t)p->count);
                const int in_value = !p->gradient || round % 4 < 2;
                float *host = in_value ? p->value : p->gradient, *device = in_value ? q->value : q->gradient;
                host[place] = bad[round / 3];
                assert_ok(t.spaces[1]->write(t.spaces[1], device + place, &bad[round / 3], 4));
            }
            if (round == 11 && t.state_bytes) {
                const size_t last = t.state_bytes / 4 - 2; /* a second moment, if there are any */
                t.state[0][last] = INFINITY;
                assert_ok(t.spaces[1]->write(t.spaces[1], t.state[1] + last, &t.state[0][last], 4));
            }
            update(&t, &plain_step, 1);
            twins_free(&t);
        }
}

/* A parameter of more chunks than a block has threads: all of them are looked at. */
static void test_many_chunks(void **state) {
    (void)state;
    for (int hit = 0; hit < 3; hit++) {
        twins t = wide_twins_new(COMET_BF16, optimiser_of(3), 17, 1003);
        const comet_parameter *p = comet_graph_parameter_named(t.graphs[0], "fc.weight");
        const comet_parameter *q = comet_graph_parameter_named(t.graphs[1], "fc.weight");
        const int64_t place = hit * (p->count - 1) / 2;
        p->gradient[place] = NAN;
        assert_ok(t.spaces[1]->write(t.spaces[1], q->gradient + place, &p->gradient[place], 4));
        update(&t, &plain_step, 1);
        twins_free(&t);
    }
}

/* ---- copies ---- */

/* What the host writes is copied before the next step, and only then. */
static void test_stale_copies(void **state) {
    (void)state;
    for (size_t d = 1; d < 3; d++) {
        twins t = twins_new(dtypes[d], optimiser_of(2), 3);
        comet_backend_cuda *b = &t.b->cuda;
        assert_ok(comet_cuda_weights_begin(b, t.graphs[1]));
        expect_copies(&t);
        assert_int_equal(b->weights_stale, 0);
        put_gradients(&t);
        assert_int_equal(b->weights_stale, 0);
        const comet_parameter *p = comet_graph_parameter_named(t.graphs[1], "two.weight");
        assert_ok(b->space->fill(b->space, p->value + 5, 2, 77));
        assert_int_equal(b->weights_stale, 1);
        assert_ok(comet_cuda_weights_begin(b, t.graphs[1]));
        expect_copies(&t);
        comet_graph *other = network(t.spaces[1], 3); /* another one: its weights are copied */
        assert_ok(comet_cuda_weights_begin(b, other));
        expect_copies_of(&t, other);
        assert_ok(comet_cuda_weights_begin(b, t.graphs[1]));
        expect_copies(&t);
        cuda_must(cudaStreamSynchronize(b->queue));
        comet_graph_free(other);
        twins_free(&t);
    }
}

/* Two networks in turn: the table is made for the one that is updated. */
static void test_two_networks(void **state) {
    (void)state;
    twins t = twins_new(COMET_F32, optimiser_of(4), 3);
    train_bench *own = t.b;
    twins u = twins_new(COMET_F32, optimiser_of(4), 4);
    train_bench *other = u.b;
    u.b = own; /* the spaces stay: memory is freed where it was taken */
    for (int n = 0; n < 2; n++) {
        update(&t, &plain_step, 1);
        cuda_must(cudaDeviceSynchronize());
        update(&u, &plain_step, 1);
        cuda_must(cudaDeviceSynchronize());
    }
    u.b = other;
    twins_free(&u);
    twins_free(&t);
}

#ifdef COMET_CUDA_EMULATION
/* Nothing is allocated once a step was made; an error of any call is told. */
static void test_calls(void **state) {
    (void)state;
    twins t = twins_new(COMET_BF16, optimiser_of(5), 9);
    update(&t, &plain_step, 1);
    const uint64_t before = emulation_live_allocations();
    comet_update_call call = call_of(&t, 1, &plain_step, 1);
    const uint64_t first = emulation_calls();
    assert_ok(comet_cuda_update(&call));
    const int calls = (int)(emulation_calls() - first);
    assert_int_equal(emulation_live_allocations(), before);
    assert_in_range(calls, 4, 9);
    for (int i = 0; i < calls; i++) {
        emulation_fail_next(cudaErrorLaunchFailure, i);
        assert_status(comet_cuda_update(&call), COMET_ERROR_DEVICE);
    }
    emulation_reset();
    twins_free(&t);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),        cmocka_unit_test(test_broken),       cmocka_unit_test(test_many_chunks),
        cmocka_unit_test(test_stale_copies), cmocka_unit_test(test_two_networks),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_calls),
#endif
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
