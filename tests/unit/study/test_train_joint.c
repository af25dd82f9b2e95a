/* SPDX-License-Identifier: Apache-2.0 */
/* What all tensors together do to gradients, as a trainer measures it: beside a study of the same images. */
#include "unit/train/test_train_trainer.h"

#include "study/assess.h"
#include "train/trainer/trainer_impl.h"

enum { MANY = 64, PART = 16, DUE = 2 }; /* a batch; the part of it that is measured; the first update when it is */

typedef struct many {
    uint8_t pixels[MANY * SIDE * SIDE * 3];
    int32_t labels[MANY];
} many;

static void make_many(uint64_t seed, many *m) {
    for (int i = 0; i < MANY / BATCH; i++) {
        const batch b = make_batch(seed + (uint64_t)i);
        memcpy(m->pixels + i * (int)sizeof b.pixels, b.pixels, sizeof b.pixels);
        memcpy(m->labels + i * BATCH, b.labels, sizeof b.labels);
    }
}

static comet_trainer_options options_of(int images, const char *control) {
    comet_trainer_options o = options_for("resnet8", "eb");
    o.batch = images;
    o.control = control;
    return o;
}

static comet_trainer_result train_many(comet_trainer *t, uint64_t seed, double rate) {
    static many m;
    comet_trainer_result result;
    comet_message message;
    make_many(seed, &m);
    assert_done(comet_trainer_train(t, m.pixels, m.labels, rate, 0, &result, &message), message);
    return result;
}

/* ---- what is measured ---- */

/* The study says it of a whole batch: as large as the part is. Its rows by gradient. */
static void check_beside(const comet_trainer_joint *joint, const comet_assess *assess) {
    int found = 0;
    for (int row = 0; row < comet_assess_rows(assess); row++) {
        comet_assess_row r;
        comet_assess_get_row(assess, 0, row, &r);
        for (int i = 0; i < joint->count; i++) {
            const comet_trainer_joint_layer *layer = &joint->layers[i];
            if (strcmp(layer->gradient, r.gradient) != 0)
                continue;
            found++;
            const double error = r.joint_measured / r.gradient_rms; /* of the gradient without loss: some per cent */
            if (fabs(layer->error / error - 1) > 0.1 ||
                fabs(layer->error / layer->predicted * r.joint_ratio - 1) > 2e-3)
                fail_msg("%s: error %g, %g by the study; over what is predicted %g, %g", layer->gradient, layer->error,
                         error, layer->error / layer->predicted, 1 / r.joint_ratio);
        }
    }
    assert_true(joint->count >= 8 && found >= joint->count);
}

static void test_as_a_study_finds(void **state) {
    (void)state;
    const char *control = "comet:warmup=1000:every=1:measured=0"; /* bounds stay relative; factors stay 1 */
    const comet_trainer_options all = options_of(MANY, control), part = options_of(PART, control);
    comet_trainer *t = trainer_of(&all), *beside = trainer_of(&part);
    static many m;
    comet_message message;
    comet_assess *assess = NULL;
    for (uint64_t i = 0; i <= DUE; i++) {
        assert_int_equal(comet_trainer_get_joint(t)->count, 0);
        train_many(t, 10 * i, 0); /* weights stay what they are at first, in both trainers */
    }
    const comet_trainer_joint *joint = comet_trainer_get_joint(t);
    assert_int_equal(joint->iteration, DUE);
    assert_int_equal(joint->images, PART);
    assert_true(joint->error > 0.01 && joint->error < 1);
    make_many(10 * DUE, &m);
    const comet_assess_options o = {.bounds = 1, .error_rel = {-1}};
    assert_done(comet_assess_new(beside, &o, NULL, &assess, &message), message);
    assert_done(comet_assess_batch(assess, m.pixels, m.labels, &message), message);
    check_beside(joint, assess);
    comet_assess_free(assess);
    comet_trainer_free(beside);
    comet_trainer_free(t);
}

/* ---- what it leaves alone, and what it changes ---- */

static uint64_t trained_many(const char *control, int steps, double *factor) {
    const comet_trainer_options o = options_of(MANY, control);
    comet_trainer *t = trainer_of(&o);
    for (int i = 0; i < steps; i++)
        train_many(t, (uint64_t)i, 0.05);
    const comet_trainer_bytes b = comet_trainer_get_bytes(t);
    assert_true(b.allocated_peak_bytes <= b.planned_peak_bytes);
    *factor = 1;
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(t->parts.collect, &count);
    for (int32_t i = 0; i < count; i++)
        for (int32_t u = 0; u < tensors[i].use_count; u++)
            *factor = fmax(*factor, comet_control_joint_factor(comet_trainer_control(t), i, u, NULL));
    const uint64_t result = digest(t);
    comet_trainer_free(t);
    return result;
}

static void test_training_is_the_same(void **state) {
    (void)state;
    double with, without;
    const uint64_t one = trained_many("comet:warmup=1000:every=1", 5, &with);
    assert_true(one == trained_many("comet:warmup=1000:every=1:joint=0", 5, &without));
    assert_true(with > 1 && without == 1);
    /* With decisions it is not: bounds are other ones. */
    assert_true(trained_many("comet:warmup=1:every=1:c=0.05", 6, &with) !=
                trained_many("comet:warmup=1:every=1:c=0.05:joint=0", 6, &without));
}

/* ---- where it cannot be ---- */

static void test_no_room(void **state) {
    (void)state;
    comet_trainer_options o = options_of(MANY, "comet:warmup=1000:every=1");
    o.batch = 2; /* a part of it is no batch */
    comet_trainer *t = trainer_of(&o);
    for (uint64_t i = 0; i <= DUE; i++)
        train_many(t, i, 0.05);
    assert_int_equal(comet_trainer_get_joint(t)->count, 0);
    comet_trainer_free(t);
}

/* Whatever cannot be had: an error or none, and nothing lost of what is there. */
static void test_failures(void **state) {
    (void)state;
    const comet_trainer_options o = options_of(MANY, "comet:warmup=1000:every=1");
    static many m;
    int failed = 0, measured = 0;
    make_many(7, &m);
    for (long at = 1; !measured; at += 1 + at / 6) {
        counting_allocator counter;
        comet_trainer_result result;
        comet_message message;
        comet_trainer *t = NULL;
        counting_allocator_init(&counter);
        assert_done(comet_trainer_new(&o, &counter.allocator, &t, &message), message);
        for (int i = 0; i < DUE; i++)
            assert_done(comet_trainer_train(t, m.pixels, m.labels, 0.01, 0, &result, &message), message);
        counter.fail_at = counter.calls + at;
        const comet_status status = comet_trainer_train(t, m.pixels, m.labels, 0.01, 0, &result, &message);
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
        failed += status != COMET_OK;
        measured = comet_trainer_get_joint(t)->count > 0 && status == COMET_OK;
        comet_trainer_free(t);
        assert_true(counter.live_blocks == 0 && counter.wrong_sizes == 0);
    }
    assert_true(failed > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_a_study_finds),
        cmocka_unit_test(test_training_is_the_same),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
