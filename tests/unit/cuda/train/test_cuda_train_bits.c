/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trainings on a GPU that must have the same bits: steps that are replayed and steps that are issued, tensors that stay
 * and tensors that go to the host or are computed again. And what all of it takes.
 */
#include "unit/cuda/train/test_cuda_train_case.h"

/* What is made of the same bits, in whatever place it is held. */
static void check_same_bits(const comet_trainer_options *a, const comet_trainer_options *b, int steps) {
    comet_trainer *x = gpu_trainer(*a, COMET_F32), *y = gpu_trainer_like(x, *b, COMET_F32);
    for (int i = 0; i < steps; i++)
        assert_true(train(x, (uint64_t)i, 0.05).loss == train(y, (uint64_t)i, 0.05).loss);
    assert_true(evaluate(x, a->batch) == evaluate(y, a->batch));
    comet_trainer_free(x);
    comet_trainer_free(y);
}

#ifdef COMET_CUDA_EMULATION
static uint64_t calls_now(void) {
    return emulation_calls();
}
#else
static uint64_t calls_now(void) {
    return 0;
}
#endif

/* Calls of CUDA in a step; the loss. */
static uint64_t step_calls(comet_trainer *t, int i, double rate, double *loss) {
    const uint64_t before = calls_now();
    *loss = train(t, (uint64_t)i, rate).loss;
    return calls_now() - before;
}

/*
 * Steps that are replayed give the bits of steps that are issued, with all that changes from one to the next, and take
 * a small part of the calls.
 */
static void check_recorded(comet_trainer_options o, comet_dtype dtype, double rate, int steps, int evaluations) {
    comet_trainer *replayed = gpu_trainer(o, dtype);
    unrecorded = 1;
    comet_trainer *issued = gpu_trainer_like(replayed, o, dtype);
    unrecorded = 0;
    uint64_t few = 0, many = 0;
    for (int i = 0; i < steps; i++) {
        double a, b;
        few = step_calls(replayed, i, rate, &a);
        many = step_calls(issued, i, rate, &b);
        assert_true(isfinite(a) && a == b);
    }
    assert_string_equal(comet_trainer_refusal(replayed), "");
    assert_int_equal(comet_trainer_is_recorded(replayed), 1);
    assert_int_equal(comet_trainer_is_recorded(issued), 0);
    if (calls_now() && few * 4 > many)
        fail_msg("%s: %llu calls in a step that is replayed, %llu in one that is issued", o.codec,
                 (unsigned long long)few, (unsigned long long)many);
    for (int i = 0; i < evaluations; i++) {
        const int count = o.batch - i / 3; /* each kind several times */
        assert_true(evaluate(replayed, count) == evaluate(issued, count));
    }
    comet_trainer_free(replayed);
    comet_trainer_free(issued);
}

static void test_recorded(void **state) {
    (void)state;
    check_recorded(small("resnet8", "none"), COMET_F32, 0.01, 4, 6);
    check_recorded(small("resnet8", "eb"), COMET_BF16, 0.01, 6, 0);
    check_recorded(small("resnet8", "eb+offload"), COMET_F32, 0.01, 5, 0);
    check_recorded(small("resnet8", "recompute"), COMET_F32, 0.01, 4, 0);
    comet_trainer_options o = small("resnet8", "eb");
    o.accumulate = 2;
    check_recorded(o, COMET_F32, 0.01, 10, 0);
    o.accumulate = 1;
    o.control = "comet:warmup=1:every=3"; /* steps that collect, and bounds that change */
    check_recorded(o, COMET_F32, 0.01, 12, 0);
}

#ifndef COMET_CUDA_EMULATION /* where its weights alone take minutes: test_cuda_train_recording.c has the drops */
/*
 * Dropout and stochastic depth: what is dropped differs from step to step. Norms of eight samples, whose last maps are
 * one pixel, diverge at any rate but one as good as none.
 */
static void test_recorded_drops(void **state) {
    (void)state;
    check_recorded(small("efficientnet_b0", "eb"), COMET_F32, 1e-6, 6, 6);
}
#endif

static void test_offload(void **state) {
    (void)state;
    const comet_trainer_options kept = small("resnet8", "none"), plain = small("resnet8", "offload");
    check_same_bits(&kept, &plain, 2);
    const comet_trainer_options streams = small("resnet8", "eb"), moved = small("resnet8", "eb+offload");
    check_same_bits(&streams, &moved, 2);
}

#ifdef COMET_CUDA_EMULATION
/* What the driver says is taken is what was planned and what the backend says of itself, but for small tables. */
static void test_memory(void **state) {
    (void)state;
    static const char *const codecs[] = {"none", "eb"};
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++) {
        size_t before, after, total;
        cuda_must(cudaMemGetInfo(&before, &total));
        comet_trainer *t = gpu_trainer(small("resnet8", codecs[i]), COMET_BF16);
        train(t, 0, 0.01);
        cuda_must(cudaMemGetInfo(&after, &total));
        const comet_trainer_bytes bytes = comet_trainer_get_bytes(t);
        const size_t said = bytes.planned_peak_bytes + bytes.library_bytes, taken = before - after;
        if (taken < said - said / 100 || taken > said + 100000)
            fail_msg("%s: %zu bytes are planned, %zu are taken", codecs[i], said, taken);
        comet_trainer_free(t);
    }
}
#endif

/* With less and less memory: offloaded, computed again, the same bits; and an error that names the least. */
static void test_budget(void **state) {
    (void)state;
    const comet_trainer_options whole = small("resnet8", "none");
    comet_trainer *t = gpu_trainer(whole, COMET_F32);
    const comet_trainer_bytes bytes = comet_trainer_get_bytes(t);
    const size_t peak = bytes.planned_peak_bytes + bytes.library_bytes;
    comet_trainer_free(t);
    comet_trainer_options tight = whole;
    tight.memory_bytes = peak - bytes.buffer_bytes / 4;
    check_same_bits(&whole, &tight, 2);
    comet_trainer_options least = whole;
    least.memory_bytes = peak / 16;
    least.backend = backend_new;
    assert_int_equal(comet_trainer_new(&least, NULL, &t, &message), COMET_ERROR_CAPACITY);
    assert_non_null(strstr(message.text, "at least"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_offload),
        cmocka_unit_test(test_budget),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_memory),
#else
        cmocka_unit_test(test_recorded_drops),
#endif
    };
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
