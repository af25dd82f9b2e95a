/* SPDX-License-Identifier: Apache-2.0 */
/* Whole trainings on a GPU beside those on the CPU, from the same first values and batches. */
#include "test_train_trainer.h"

#include "train/backend/cuda.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation/train/stand_in.h"
#endif

static comet_backend_cuda_options place; /* of the next backend */
static comet_message message;

static comet_status backend_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend) {
    place.threads = threads;
#ifdef COMET_CUDA_EMULATION
    place.loader = comet_stand_in_loader();
#endif
    return comet_backend_cuda_new(&place, allocator, backend, &message);
}

static comet_trainer *gpu_trainer(comet_trainer_options o, comet_dtype dtype) {
    place = (comet_backend_cuda_options){.dtype = dtype, .exact_products = dtype == COMET_F32, .deterministic = 1};
    o.backend = backend_new;
    return trainer_of(&o);
}

/* Losses of some steps: how far apart they are at most, in parts of the CPU's. */
static double apart(const comet_trainer_options *o, comet_dtype dtype, int steps) {
    comet_trainer *cpu = trainer_of(o), *gpu = gpu_trainer(*o, dtype);
    double most = 0;
    for (int i = 0; i < steps; i++) {
        const double a = train(cpu, (uint64_t)i, 0.05).loss, b = train(gpu, (uint64_t)i, 0.05).loss;
        assert_true(isfinite(a) && isfinite(b));
        most = fmax(most, fabs(a - b) / a);
    }
    const double a = evaluate(cpu, BATCH - 3), b = evaluate(gpu, BATCH - 3);
    most = fmax(most, fabs(a - b) / a);
    comet_trainer_free(cpu);
    comet_trainer_free(gpu);
    return most;
}

static void test_uncompressed(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "none");
    assert_true(apart(&o, COMET_F32, 4) < 1e-4);
}

static void test_types(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "none");
    const double bf16 = apart(&o, COMET_BF16, 3), fp16 = apart(&o, COMET_F16, 3);
    assert_true(bf16 < 0.05 && bf16 > 1e-6);
    assert_true(fp16 < 0.01 && fp16 > 1e-7);
}

/* The same streams but for rounding, so the same training but for what a code that flips does. */
static void test_streams(void **state) {
    (void)state;
    const comet_trainer_options o = options_for("resnet8", "eb");
    assert_true(apart(&o, COMET_F32, 3) < 0.02);
    assert_true(apart(&o, COMET_BF16, 2) < 0.05);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uncompressed),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
