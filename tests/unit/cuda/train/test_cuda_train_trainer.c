/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings on a GPU beside those on the CPU, from the same first values and batches. */
#include "unit/cuda/train/test_cuda_train_case.h"

#include "train/trainer/probe.h"

/* Losses of some steps: how far apart they are at most, in parts of the CPU's. */
static double apart(const comet_trainer_options *o, comet_dtype dtype, int steps) {
    comet_trainer *cpu = trainer_of(o), *gpu = gpu_trainer(*o, dtype);
    double most = 0;
    for (int i = 0; i < steps; i++) {
        const double a = train(cpu, (uint64_t)i, 0.05).loss, b = train(gpu, (uint64_t)i, 0.05).loss;
        assert_true(isfinite(a) && isfinite(b));
        most = fmax(most, fabs(a - b) / a);
    }
    const double a = evaluate(cpu, o->batch - 3), b = evaluate(gpu, o->batch - 3);
    most = fmax(most, fabs(a - b) / a);
    comet_trainer_free(cpu);
    comet_trainer_free(gpu);
    return most;
}

/* Gradients of what a block and its shortcut both use are added up by the convolutions that make them. */
static void test_no_sums(void **state) {
    (void)state;
    comet_trainer *t = gpu_trainer(small("resnet8", "eb"), COMET_F32);
    int adds = 0;
    for (int i = 0; i < t->parts.plan->n; i++)
        adds += t->parts.plan->nodes[i].adds_dx;
    assert_int_equal(t->parts.plan->sum_count, 0);
    assert_int_equal(adds, 3); /* one a block */
    comet_trainer_free(t);
}

static void test_uncompressed(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "none");
    assert_true(apart(&o, COMET_F32, 3) < 1e-4);
    o.optimiser = comet_optimiser_default(COMET_ADAMW);
    o.accumulate = 2;
    assert_true(apart(&o, COMET_F32, 2) < 1e-4);
}

static void test_types(void **state) {
    (void)state;
    const comet_trainer_options o = small("resnet8", "none");
    const double bf16 = apart(&o, COMET_BF16, 2), fp16 = apart(&o, COMET_F16, 2);
    assert_true(bf16 < 0.05 && bf16 > 1e-6);
    assert_true(fp16 < 0.01 && fp16 > 1e-7);
}

/* The same streams but for rounding, so the same training but for what a code that flips does. */
static void test_streams(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    assert_true(apart(&o, COMET_F32, 3) < 0.02);
    assert_true(apart(&o, COMET_BF16, 2) < 0.05);
    o.accumulate = 2;
    assert_true(apart(&o, COMET_F32, 2) < 0.02);
}

/* Forms that lose signs have masks; values of others are rebuilt or made again. */
static void test_forms(void **state) {
    (void)state;
    static const char *const forms[] = {"group:8", "pool:2", "zvc", "recompute"}; /* the first two with loss */
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        const comet_trainer_options o = small("resnet8", forms[i]);
        assert_true(apart(&o, COMET_F32, 2) < (i < 2 ? 0.02 : 1e-4));
    }
}

/* Under a controller, whose statistics are gathered on the device: the same decisions but for rounding. */
static void test_controller(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    o.control = "comet:warmup=1:every=1";
    assert_true(apart(&o, COMET_F32, 3) < 0.02);
}

enum { MOST_TENSORS = 64, MOST_PARAMETERS = 128 };

/* Gradients of a batch on the CPU under a bound for all tensors, one behind the other: to be freed. */
static float *gradients_of(comet_trainer *t, const batch *b, double bound, int collect) {
    comet_control_bound_value bounds[MOST_TENSORS];
    int64_t count, at = 0;
    for (int i = 0; i < MOST_TENSORS; i++)
        bounds[i] = (comet_control_bound_value){COMET_BOUND_RELATIVE, bound};
    const comet_probe probe = {.pixels = b->pixels, .labels = b->labels, .bounds = bounds, .collect = collect};
    assert_done(comet_trainer_probe(t, &probe, &message), message);
    (void)comet_graph_gradients(comet_trainer_graph(t), &count);
    float *all = malloc((size_t)count * sizeof *all);
    assert_non_null(all);
    for (int i = 0; i < comet_graph_parameters(comet_trainer_graph(t)); i++) {
        const comet_parameter *p = comet_graph_parameter(comet_trainer_graph(t), i);
        if (p->gradient) {
            memcpy(all + at, p->gradient, (size_t)p->count * sizeof *all);
            at += p->count;
        }
    }
    return all;
}

/* Variances of gradients' errors, by parameter, as the model predicts them of what the last probe collected. */
static void predict(comet_trainer *t, double *variances) {
    int32_t count;
    const comet_control_tensor *tensors = comet_probe_tensors(t, &count);
    assert_true(count <= MOST_TENSORS);
    for (int32_t i = 0; i < count; i++) {
        const comet_control_observation *o = comet_probe_observation(t, i);
        assert_non_null(o);
        for (int32_t u = 0; u < tensors[i].use_count; u++) {
            const double sigma = comet_error_sensitivity(tensors[i].uses[u].kind, &o->uses[u]) * o->sizes[0].bound;
            variances[tensors[i].uses[u].gradient] += sigma * sigma;
        }
    }
}

static int check_layer(const comet_trainer_joint *joint, const comet_parameter *p, const float *lossy,
                       const float *exact, double predicted) {
    double squares = 0, errors = 0;
    for (int64_t k = 0; k < p->count; k++) {
        squares += (double)lossy[k] * (double)lossy[k];
        errors += ((double)lossy[k] - (double)exact[k]) * ((double)lossy[k] - (double)exact[k]);
    }
    for (int i = 0; i < joint->count; i++)
        if (strcmp(joint->layers[i].gradient, p->name) == 0) {
            assert_near(joint->layers[i].error, sqrt(errors / squares), 0.05);
            assert_near(joint->layers[i].predicted, sqrt(predicted * (double)p->count / squares), 0.05);
            return 1;
        }
    return 0;
}

/* What all tensors together do to gradients, measured on a part of a batch; beside that part on the CPU. */
static void test_joint(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    o.control = "comet:warmup=1000:every=1:measured=0"; /* bounds stay relative; factors stay 1 */
    o.batch = BATCH, o.height = o.width = SIDE;         /* or a part without loss has no room */
    comet_trainer *t = gpu_trainer(o, COMET_F32);
    for (uint64_t step = 0; step < 3; step++)
        train(t, step, 0); /* weights stay what they are at first */
    const comet_trainer_joint *joint = comet_trainer_get_joint(t);
    assert_int_equal(joint->iteration, 2);
    assert_int_equal(joint->images, BATCH / 4);
    o.batch = joint->images;
    comet_trainer *part = trainer_of(&o);
    const batch last = make_batch(2);
    float *lossy = gradients_of(part, &last, 0.3, 1), *exact = gradients_of(part, &last, 0, 0);
    double predicted[MOST_PARAMETERS] = {0};
    int64_t at = 0;
    int found = 0;
    free(gradients_of(part, &last, 0.3, 1));
    predict(part, predicted);
    for (int i = 0; i < comet_graph_parameters(comet_trainer_graph(part)); i++) {
        const comet_parameter *p = comet_graph_parameter(comet_trainer_graph(part), i);
        assert_true(i < MOST_PARAMETERS);
        if (p->gradient) {
            found += check_layer(joint, p, lossy + at, exact + at, predicted[i]);
            at += p->count;
        }
    }
    assert_true(joint->count >= 8 && found == joint->count);
    free(lossy);
    free(exact);
    comet_trainer_free(part);
    comet_trainer_free(t);
}

/*
 * Streams that find no room are known at the end of the step, which is run again as if nothing had been: at so fine a
 * bound values are stored as they are, in more room than was guessed.
 */
static void test_step_is_run_again(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    o.error_rel = 1e-5;
    comet_trainer *t = gpu_trainer(o, COMET_F32);
    const size_t guessed = comet_trainer_get_bytes(t).buffer_bytes;
    const double first = train(t, 1, 0.05).loss;
    const double second = train(t, 2, 0.05).loss;
    assert_true(comet_trainer_get_bytes(t).buffer_bytes > guessed);
    comet_trainer_free(t);
    o.codec = "none";
    t = gpu_trainer(o, COMET_F32);
    assert_near(train(t, 1, 0.05).loss, first, 1e-6);
    assert_near(train(t, 2, 0.05).loss, second, 1e-5);
    comet_trainer_free(t);
}

static void test_diverges(void **state) {
    (void)state;
    const comet_trainer_options o = small("resnet8", "eb");
    comet_trainer *t = gpu_trainer(o, COMET_F32);
    batch b = make_batch(1);
    comet_trainer_result result;
    comet_status status = COMET_OK;
    for (int i = 0; i < 4 && status == COMET_OK; i++)
        status = comet_trainer_train(t, b.pixels, b.labels, 1e30, 0, &result, &message);
    assert_int_equal(status, COMET_ERROR_DIVERGED);
    comet_trainer_free(t);
}

/* An update that may not be made, for a controller to skip: the device refuses it before the host knows. */
static void test_refused_update(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    o.control = "comet:warmup=1:every=100";
    comet_trainer *t = gpu_trainer(o, COMET_F32);
    comet_trainer_result result = {.skipped = 0};
    int64_t count, again;
    train(t, 0, 0.05);
    train(t, 1, 1e30); /* finite still */
    float *before = parameters_of(t, &count);
    for (uint64_t i = 2; i < 4; i++) {
        result = train(t, i, 0.05);
        assert_int_equal(result.skipped, 1);
        assert_int_equal(result.updated, 0);
    }
    float *after = parameters_of(t, &again);
    assert_int_equal(count, again);
    assert_memory_equal(before, after, (size_t)count * sizeof *before);
    free(before);
    free(after);
    comet_trainer_free(t);
}

static double scale_of(const comet_trainer *t) {
    char text[64];
    assert_true(comet_trainer_get_scale(t, text, sizeof text) > 0);
    return strtod(text, NULL);
}

/* fp16: gradients that are too large leave everything as it was, and are multiplied by less until they are not. */
static void test_scale_of_fp16(void **state) {
    (void)state;
    const comet_trainer_options o = small("resnet8", "eb");
    comet_trainer *t = gpu_trainer(o, COMET_F16);
    comet_trainer_result result = {.skipped = 0};
    int64_t count, again;
    int skipped = 0;
    assert_true(scale_of(t) == 0x1p16);
    comet_trainer_set_scale(t, "16777216 0");
    float *before = parameters_of(t, &count);
    for (result.skipped = 1; result.skipped; skipped += result.skipped) {
        float *after = parameters_of(t, &again);
        assert_memory_equal(before, after, (size_t)count * sizeof *before);
        free(after);
        result = train(t, 0, 0.05);
        assert_int_equal(result.updated, !result.skipped);
        assert_int_equal(result.too_large, result.skipped);
    }
    assert_in_range(skipped, 1, 16);
    assert_true(scale_of(t) == ldexp(0x1p24, -skipped));
    float *after = parameters_of(t, &again);
    assert_memory_not_equal(before, after, (size_t)count * sizeof *before);
    /* The same update as without any factor, but for rounding. */
    comet_trainer *plain = gpu_trainer(o, COMET_F32);
    train(plain, 0, 0.05);
    const double a = train(t, 1, 0.05).loss, b = train(plain, 1, 0.05).loss;
    assert_true(fabs(a - b) < 0.02 * b);
    const double now = scale_of(t);
    comet_trainer_set_scale(t, "nonsense");
    comet_trainer_set_scale(t, "0 0");
    assert_true(scale_of(t) == now);
    comet_trainer_free(plain);
    free(before);
    free(after);
    comet_trainer_free(t);
}

/* Two that choose the same kernels; one of which says that it cannot. */
static void test_choices(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "none");
    comet_trainer *first = gpu_trainer(o, COMET_F32);
    const size_t length = comet_trainer_get_choices(first, NULL, 0);
    char *text = malloc(length + 1), *again = malloc(length + 1);
    assert_true(length > 100 && text && again);
    assert_int_equal(comet_trainer_get_choices(first, text, length + 1), length);
    o.choices = text;
    comet_trainer *second = gpu_trainer(o, COMET_F32);
    assert_int_equal(comet_trainer_get_choices(second, again, length + 1), length);
    assert_string_equal(text, again);
    assert_string_equal(comet_trainer_note(second), "");
    const comet_backend_cuda *backend = (const comet_backend_cuda *)second->parts.backend;
    assert_int_equal(comet_cudnn_timed(backend->cudnn), 0);
    o.choices = "gpu One of another kind\ncudnn-choices 1 90000\n";
    comet_trainer *third = gpu_trainer(o, COMET_F32);
    assert_non_null(strstr(comet_trainer_note(third), "One of another kind"));
    o.choices = "what is this";
    comet_trainer *fourth = gpu_trainer(o, COMET_F32);
    comet_trainer_free(fourth);
    comet_trainer_free(third);
    comet_trainer_free(second);
    comet_trainer_free(first);
    free(text);
    free(again);
}

#ifdef COMET_CUDA_EMULATION
/* A call of CUDA fails, any: an error, and nothing is left behind. */
static void test_failures(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    batch b = make_batch(1);
    o.batch = 2;
    o.backend = backend_new;
    place = (comet_backend_cuda_options){.dtype = COMET_F32, .exact_products = 1};
    const uint64_t live = emulation_live_allocations();
    int failed = 0, reached = 1;
    for (int calls = 0; reached; calls += 1 + calls / 8) {
        comet_trainer *t = NULL;
        comet_trainer_result result;
        const uint64_t before = emulation_calls();
        emulation_fail_next(cudaErrorMemoryAllocation, calls);
        comet_status status = comet_trainer_new(&o, NULL, &t, &message);
        if (status == COMET_OK)
            status = comet_trainer_train(t, b.pixels, b.labels, 0.05, 0, &result, &message);
        reached = emulation_calls() - before > (uint64_t)calls;
        emulation_fail_next(cudaSuccess, 0);
        comet_trainer_free(t);
        /* cuDNN and cuBLASLt say what they can; but it is no lack of room, and no values that are not finite */
        if (status == COMET_ERROR_CAPACITY || status == COMET_ERROR_DIVERGED)
            fail_msg("after %d calls: %s: %s; %s", calls, comet_status_string(status), message.text,
                     comet_last_error());
        assert_int_equal(emulation_live_allocations(), live);
        failed += status != COMET_OK;
    }
    assert_true(failed > 20);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uncompressed),   cmocka_unit_test(test_types),
        cmocka_unit_test(test_streams),        cmocka_unit_test(test_forms),
        cmocka_unit_test(test_controller),     cmocka_unit_test(test_joint),
        cmocka_unit_test(test_diverges),       cmocka_unit_test(test_step_is_run_again),
        cmocka_unit_test(test_refused_update), cmocka_unit_test(test_scale_of_fp16),
        cmocka_unit_test(test_choices),        cmocka_unit_test(test_no_sums),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_failures),
#endif
    };
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
