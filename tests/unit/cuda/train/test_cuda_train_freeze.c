/* SPDX-License-Identifier: Apache-2.0 */
/* Frozen layers on a GPU: what is left out shows nowhere else. */
#include "unit/cuda/train/test_cuda_train_case.h"

#include "unit/train/frozen/test_train_frozen.h"

static void check_in(const char *freeze, comet_trainer_options o, comet_dtype dtype, int steps) {
    comet_trainer *freed = gpu_trainer(o, dtype);
    o.freeze = freeze;
    comet_trainer *frozen = gpu_trainer(o, dtype);
    const comet_trainer_bytes few = comet_trainer_get_bytes(frozen), all = comet_trainer_get_bytes(freed);
    assert_true(few.saved_raw_bytes < all.saved_raw_bytes);
    assert_true(few.static_bytes < all.static_bytes);
    assert_true(few.buffer_bytes <= all.buffer_bytes);
    for (int i = 0; i < steps; i++)
        train_both(frozen, freed, (uint64_t)i);
    check_same(frozen, freed);
    comet_trainer_free(frozen);
    comet_trainer_free(freed);
}

/* From the front; a norm whose input has no gradient; a norm whose sum's other addend alone has one. */
static void test_kept(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "none");
    check_in("conv1,bn1,layer1.*", o, COMET_F32, 2);
    check_in("conv1", o, COMET_BF16, 2);
    check_in("*,!fc", o, COMET_F32, 2);
    o.accumulate = 2;
    check_in("conv1,bn1,layer2.0.conv2,layer3.0.bn2,fc.bias", o, COMET_F32, 4);
}

static void test_held(void **state) {
    (void)state;
    static const char *const forms[] = {"eb:0", "recompute", "offload"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        comet_trainer_options o = small("resnet8", forms[i]);
        o.optimiser = comet_optimiser_default(COMET_ADAMW);
        o.spill_directory = "/tmp";
        check_in("conv1,bn1,layer1.*,layer3.0.conv1", o, COMET_F32, 2);
    }
}

/* Depthwise convolutions, squeeze-excites, stochastic depth. */
static void test_other_layers(void **state) {
    (void)state;
    comet_trainer_options o = small("efficientnet_b0", "none");
    o.batch = 2;
    o.height = o.width = 32;
    check_in("features.0.*,features.1.*,features.2.*", o, COMET_F32, 1);
}

/* Under a controller, whose statistics leave out layers without a gradient. */
static void test_controller(void **state) {
    (void)state;
    comet_trainer_options o = small("resnet8", "eb");
    o.control = "comet:warmup=1:every=1";
    o.freeze = "conv1,bn1,layer1.*,layer2.0.conv1,layer3.0.bn2";
    comet_trainer *t = gpu_trainer(o, COMET_F32), *cpu = trainer_of(&o);
    for (uint64_t i = 0; i < 3; i++)
        assert_near(train(t, i, 0.05).loss, train(cpu, i, 0.05).loss, 0.02);
    comet_trainer_free(t);
    comet_trainer_free(cpu);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_held),
        cmocka_unit_test(test_other_layers),
        cmocka_unit_test(test_controller),
    };
    const int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
