/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trainer whose bounds a controller sets: decisions, jumps, checkpoints, budgets; updates that are not finite,
 * without one too.
 */
#include "test_train_trainer.h"

#include "control/control.h"
#include "train/trainer/control_text.h"
#include "train/trainer/trainer_impl.h"

enum { MOST_EVENTS = 4000 };

typedef struct diary {
    comet_control_event events[MOST_EVENTS];
    int count;
} diary;

static diary notes;

static void note_event(void *context, const comet_control_event *event) {
    diary *d = context;
    assert_true(d->count < MOST_EVENTS);
    d->events[d->count++] = *event;
}

static int count_of(comet_control_cause cause) {
    int count = 0;
    for (int i = 0; i < notes.count; i++)
        count += notes.events[i].cause == cause;
    return count;
}

static comet_trainer_options controlled(const char *model, const char *control) {
    comet_trainer_options o = options_for(model, "eb");
    notes.count = 0;
    o.control = control;
    o.control_log = note_event;
    o.control_context = &notes;
    return o;
}

/* ---- texts ---- */

static void test_texts(void **state) {
    (void)state;
    const comet_control_methods *methods;
    comet_control_options o = COMET_CONTROL_OPTIONS_INIT;
    comet_message message;
    assert_done(comet_control_read("comet:paper:c=0.25:warmup=7:ceiling=0.5", &methods, &o, &message), message);
    assert_ptr_equal(methods, comet_control_find("comet:paper"));
    assert_true(o.calibration == 0.25 && o.warmup == 7 && o.ceiling == 0.5);
    assert_done(comet_control_read("fixed:0.125", &methods, &o, &message), message);
    assert_true(o.fixed_bound == 0.125 && o.fixed_kind == COMET_BOUND_RELATIVE);
    assert_done(comet_control_read("fixed:absolute=0.5", &methods, &o, &message), message);
    assert_true(o.fixed_bound == 0.5 && o.fixed_kind == COMET_BOUND_ABSOLUTE);
    const char *const wrong[] = {"",           "comets",      "comet:",      "comet:c",      "comet:c=",
                                 "comet:c=x",  "comet:0.1",   "comet:c=0",   "comet:d=1",    "comet:warmup=1.5",
                                 "comet:c=1,", "budget:e=-1", "comet:c=nan", "comet:c=0.1:", "comet:every=0"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        o = (comet_control_options)COMET_CONTROL_OPTIONS_INIT;
        message.text[0] = 0;
        if (comet_control_read(wrong[i], &methods, &o, &message) != COMET_ERROR_ARGUMENT || !message.text[0])
            fail_msg("'%s' is not refused", wrong[i]);
    }
    assert_true(comet_control_is_named("budget:bytes=1") && !comet_control_is_named("eb"));
}

/* ---- decisions ---- */

static void test_decides(void **state) {
    (void)state;
    const char *const names[] = {"comet:warmup=4:every=2", "comet:paper:warmup=4:every=2", "acgc:warmup=4:every=2",
                                 "budget:warmup=4:every=2", "fixed:0.2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const comet_trainer_options o = controlled("resnet8", names[i]);
        comet_trainer *t = trainer_of(&o);
        comet_trainer_result r = {0};
        double first = train(t, 0, 0.05).loss;
        for (uint64_t step = 1; step < 12; step++)
            r = train(t, step, 0.05);
        assert_true(r.loss < first);
        assert_true(r.saved_stored_bytes * 4 < r.saved_raw_bytes);
        if (i < 4)
            assert_true(count_of(COMET_CAUSE_FIRST) > 0);
        else
            assert_int_equal(count_of(COMET_CAUSE_START), notes.count);
        assert_int_equal(count_of(COMET_CAUSE_IGNORED), 0);
        comet_trainer_free(t);
    }
}

/* A step that changes no weight, always of the same batch: the same loss and the same gradients again and again. */
static comet_trainer_result train_in_place(comet_trainer *t) {
    return train(t, 1, 1e-30);
}

/* Where k uses reach a gradient, each may have 1 / sqrt(k) of the sigma. */
static double share_of(comet_trainer *t, int32_t gradient) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(t->parts.collect, &count);
    int uses = 0;
    for (int32_t i = 0; i < count; i++)
        for (int32_t u = 0; u < tensors[i].use_count; u++)
            uses += tensors[i].uses[u].gradient == gradient;
    assert_true(uses > 0);
    return 1 / sqrt(uses);
}

/* Of a gradient that is the same in each update, with the decay that SGD adds. */
static double momentum_of(const comet_trainer *t, int32_t gradient) {
    const comet_parameter *p = comet_graph_parameter(t->parts.graph, gradient);
    double sum = 0;
    for (int64_t i = 0; i < p->count; i++)
        sum += fabs((double)p->gradient[i] + t->options.optimiser.weight_decay * (double)p->value[i]);
    return sum / (double)p->count;
}

/* eb = share * c * M / sensitivity, rounded down, M the mean gradient. */
static void test_first_decision(void **state) {
    (void)state;
    comet_trainer_options o =
        controlled("resnet8", "comet:c=0.5:warmup=4:every=2:smoothing=1:loosen=1000:floor=1e-6:ceiling=100");
    o.optimiser.weight_decay = 0.01;
    comet_trainer *t = trainer_of(&o);
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(t->parts.collect, &count);
    for (int step = 0; step < 5; step++)
        train_in_place(t);
    assert_int_equal(notes.count, count);
    for (int32_t i = 0; i < count; i++) {
        const comet_control_event *e = &notes.events[i];
        assert_true(e->cause == COMET_CAUSE_FIRST && e->limit == COMET_LIMIT_USE && e->iteration == 4);
        const int32_t gradient = tensors[e->tensor].uses[e->use].gradient;
        assert_near(e->momentum, momentum_of(t, gradient), 1e-4);
        assert_true(e->after.value == comet_control_round(share_of(t, gradient) * 0.5 * e->momentum / e->sensitivity));
        assert_true(comet_control_bound(t->control, e->tensor).value == e->after.value);
    }
    comet_trainer_free(t);
}

/* As the log says. */
static double last_bound_of(int32_t tensor) {
    for (int i = notes.count; i-- > 0;)
        if (notes.events[i].tensor == tensor)
            return notes.events[i].after.value;
    fail_msg("no decision of tensor %d", (int)tensor);
    return 0;
}

/* The bound that is in force is the one with which tensors are stored; a bound that was given stays. */
static void test_bounds(void **state) {
    (void)state;
    comet_trainer_options o = controlled("resnet8", "comet:warmup=2:every=1");
    o.forms = "layer2.*=eb:0.05";
    comet_trainer *t = trainer_of(&o);
    for (uint64_t step = 0; step < 8; step++)
        train(t, step, 0.05);
    int given = 0, set = 0;
    comet_trainer_control_bounds(t);
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(t->parts.plan, i);
        const comet_learned_entry *now = comet_learned_at(t->parts.learned, i);
        if (e->form.form != COMET_FORM_CODEC)
            continue;
        if (strncmp(e->name, "layer2.", 7) == 0) {
            assert_true(now->bound_kind == COMET_BOUND_RELATIVE && now->bound == 0.05);
            given++;
        } else {
            assert_int_equal(now->bound_kind, COMET_BOUND_ABSOLUTE);
            assert_true(now->bound == last_bound_of(comet_collect_find(t->parts.collect, e)));
            set++;
        }
    }
    assert_true(given > 0 && set > 0);
    comet_trainer_free(t);
}

/*
 * Decided once, as coarse as may be; then activations shrink and grow, and no bound is above the ceiling of the step
 * before.
 */
static void test_ceiling(void **state) {
    (void)state;
    const comet_trainer_options o =
        controlled("resnet8", "comet:c=1000:warmup=1:every=1:ceiling=0.5:loosen=1000:adaptive=0:window=1000");
    comet_trainer *t = trainer_of(&o);
    int held = 0, seen = 0;
    for (uint64_t step = 0; step < 12; step++) {
        train(t, step, 0.2);
        comet_trainer_control_bounds(t);
        for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
            const comet_learned_entry *e = comet_learned_at(t->parts.learned, i);
            if (comet_collect_find(t->parts.collect, comet_plan_get_entry(t->parts.plan, i)) < 0 ||
                e->bound_kind != COMET_BOUND_ABSOLUTE)
                continue;
            assert_true(e->rms > 0 && e->bound <= 0.5 * e->rms);
            held += e->bound > 0.875 * 0.5 * e->rms; /* rounded down to four bits */
            seen++;
        }
    }
    assert_true(seen > 100 && held > 0.9 * seen);
    comet_trainer_free(t);
}

static void test_efficientnet(void **state) {
    (void)state;
    comet_trainer_options o = controlled("efficientnet_b0", "comet:warmup=1:every=1");
    o.optimiser = comet_optimiser_default(COMET_ADAMW);
    comet_trainer *t = trainer_of(&o);
    for (uint64_t step = 0; step < 3; step++)
        train(t, step, 0.001);
    assert_true(count_of(COMET_CAUSE_FIRST) > 0);
    assert_int_equal(count_of(COMET_CAUSE_IGNORED), 0);
    comet_trainer_free(t);
}

/*
 * Where nothing is stored by eb without a bound, bounds are nobody's; steps that are not finite are skipped all the
 * same.
 */
static void test_nothing_to_control(void **state) {
    (void)state;
    const char *const codecs[] = {"none", "eb:0.1", "pool:2"};
    for (int i = 0; i < 3; i++) {
        comet_trainer_options o = controlled("resnet8", "comet:warmup=1:every=1");
        o.codec = codecs[i];
        const uint64_t with = trained(&o, 3);
        o.control = NULL;
        assert_true(trained(&o, 3) == with);
    }
}

/* ---- safety ---- */

/* All that a step may change. */
typedef struct snapshot {
    uint64_t parameters;
    float *state;
    size_t bytes;
    int64_t updates;
} snapshot;

static snapshot take_snapshot(comet_trainer *t) {
    snapshot s = {.parameters = digest(t), .bytes = t->state_bytes, .updates = t->updates};
    s.state = malloc(s.bytes);
    memcpy(s.state, t->state, s.bytes);
    return s;
}

static void assert_unchanged(comet_trainer *t, snapshot *before) {
    assert_true(digest(t) == before->parameters);
    assert_memory_equal(t->state, before->state, before->bytes);
    assert_int_equal(t->updates, before->updates);
    free(before->state);
}

/* A batch whose pixels become NaN on the way to the first layer: a batch norm's grid refuses them. */
static comet_trainer_result train_broken(comet_trainer *t, uint64_t seed) {
    const comet_normalisation right = t->options.normalisation;
    t->options.normalisation.mean[0] = NAN;
    const comet_trainer_result r = train(t, seed, 0.05);
    t->options.normalisation = right;
    return r;
}

/* One with labels of NaN: forward is fine, loss and gradients are not. */
static comet_trainer_result train_lost(comet_trainer *t, uint64_t seed) {
    t->options.smoothing = NAN;
    const comet_trainer_result r = train(t, seed, 0.05);
    t->options.smoothing = 0;
    return r;
}

static void test_not_finite(void **state) {
    (void)state;
    comet_trainer_result (*const breaks[])(comet_trainer *, uint64_t) = {train_broken, train_lost};
    for (int m = 0; m < 2; m++) {
        const comet_trainer_options o = controlled("resnet8", "comet:warmup=2:every=1");
        comet_trainer *t = trainer_of(&o);
        for (uint64_t step = 0; step < 4; step++)
            assert_true(train(t, step, 0.05).updated);
        snapshot before = take_snapshot(t);
        const double bound = comet_control_bound(t->control, 0).value;
        const comet_trainer_result r = breaks[m](t, 4);
        assert_true(r.skipped && !r.updated && !isfinite(r.loss));
        assert_unchanged(t, &before);
        assert_int_equal(count_of(COMET_CAUSE_NONFINITE), 1);
        assert_true(comet_control_bound(t->control, 0).value == bound / 4);
        const comet_trainer_result after = train(t, 5, 0.05);
        assert_true(after.updated && isfinite(after.loss));
        assert_true(isfinite(evaluate(t, BATCH)));
        comet_trainer_free(t);
    }
}

/* Gradients alone: the loss is fine. */
static void test_gradients_not_finite(void **state) {
    (void)state;
    const comet_trainer_options o = controlled("resnet8", "comet");
    comet_trainer *t = trainer_of(&o);
    train(t, 0, 0.05);
    comet_parameter *p = comet_graph_parameter(t->parts.graph, 0);
    int go_on;
    comet_message message;
    const float before = p->gradient[p->count - 1];
    p->gradient[p->count - 1] = INFINITY;
    assert_done(comet_trainer_judge(t, &go_on, &message), message);
    assert_int_equal(go_on, 0);
    p->gradient[p->count - 1] = before;
    assert_done(comet_trainer_judge(t, &go_on, &message), message);
    assert_int_equal(go_on, 1);
    comet_trainer_free(t);
}

/* One bad batch of an update: the whole of it does not happen. */
static void test_accumulated(void **state) {
    (void)state;
    for (int bad = 0; bad < 3; bad++) {
        comet_trainer_options o = controlled("resnet8", "comet:warmup=1:every=1");
        o.accumulate = 3;
        comet_trainer *t = trainer_of(&o);
        for (uint64_t step = 0; step < 6; step++)
            assert_int_equal(train(t, step, 0.05).updated, step % 3 == 2);
        snapshot before = take_snapshot(t);
        for (int i = 0; i < 3; i++) {
            const comet_trainer_result r = i == bad ? train_broken(t, 9) : train(t, (uint64_t)i, 0.05);
            assert_int_equal(r.skipped, i == 2);
            assert_false(r.updated);
        }
        assert_unchanged(t, &before);
        for (uint64_t step = 0; step < 3; step++)
            assert_int_equal(train(t, step, 0.05).updated, step == 2);
        comet_trainer_free(t);
    }
}

static void test_stops(void **state) {
    (void)state;
    const comet_trainer_options o = controlled("resnet8", "comet:most-skips=3");
    comet_trainer *t = trainer_of(&o);
    batch b = make_batch(1);
    comet_trainer_result r;
    comet_message message;
    t->options.normalisation.mean[0] = NAN;
    for (int i = 0; i < 2; i++)
        assert_done(comet_trainer_train(t, b.pixels, b.labels, 0.05, 0, &r, &message), message);
    assert_int_equal(comet_trainer_train(t, b.pixels, b.labels, 0.05, 0, &r, &message), COMET_ERROR_DIVERGED);
    assert_non_null(strstr(message.text, "diverged since step 1: 3 steps in a row"));
    assert_int_equal(t->batches, 2); /* the skipped ones */
    comet_trainer_free(t);
}

/* ---- without a controller ---- */

/* Running variances overflow; what is normalised, the loss and all gradients do not. */
static void make_inputs_huge(comet_trainer *t) {
    comet_parameter *p = comet_graph_parameter_named(t->parts.graph, "conv1.weight");
    for (int64_t k = 0; k < p->count; k++)
        p->value[k] *= 1e20f;
}

static void make_pixels_nan(comet_trainer *t) {
    t->options.normalisation.mean[0] = NAN;
}

static void make_labels_nan(comet_trainer *t) {
    t->options.smoothing = NAN;
}

typedef struct trouble {
    void (*make)(comet_trainer *);
    const char *codec, *control, *says;
} trouble;

static comet_status try_update(comet_trainer *t, double rate, comet_trainer_result *result, comet_message *message) {
    comet_status status = COMET_OK;
    for (int i = 0; i < t->options.accumulate && status == COMET_OK; i++) {
        batch b = make_batch(20 + (uint64_t)i);
        status = comet_trainer_train(t, b.pixels, b.labels, rate, 0, result, message);
    }
    return status;
}

/*
 * An update that is not finite: nothing of it remains, whatever holds the activations and however many batches it has.
 */
static void check_trouble(const trouble *what, int accumulate) {
    comet_trainer_options o = options_for("resnet8", what->codec);
    o.control = what->control;
    o.accumulate = accumulate;
    comet_trainer *t = trainer_of(&o);
    comet_trainer_result result;
    comet_message message;
    for (int i = 0; i < 2; i++)
        assert_done(try_update(t, 0.05, &result, &message), message);
    const comet_normalisation right = t->options.normalisation;
    what->make(t);
    snapshot before = take_snapshot(t);
    const comet_status status = try_update(t, 0.05, &result, &message);
    assert_unchanged(t, &before);
    assert_int_equal(status, what->control ? COMET_OK : COMET_ERROR_DIVERGED);
    assert_int_equal(t->batches, (what->control ? 3 : 2) * accumulate);
    if (what->control)
        assert_true(result.skipped && !result.updated);
    else if (!strstr(message.text, what->says) || !strstr(message.text, "diverged since step 3: "))
        fail_msg("%s: no '%s' in: %s", what->codec, what->says, message.text);
    t->options.normalisation = right;
    t->options.smoothing = 0;
    if (what->make != make_inputs_huge)
        assert_done(try_update(t, 0.05, &result, &message), message);
    comet_trainer_free(t);
}

static void test_taken_back(void **state) {
    (void)state;
    const char *const on_grid = "the input of bn1 is not finite", *const running = "bn1.running_var is not finite",
                      *const loss = "the loss is not finite";
    const trouble all[] = {
        {make_inputs_huge, "none", NULL, running},   {make_inputs_huge, "eb:0.3", NULL, running},
        {make_inputs_huge, "pool:2", NULL, running}, {make_inputs_huge, "recompute", NULL, running},
        {make_inputs_huge, "eb", "comet", NULL},     {make_inputs_huge, "eb", "fixed:0.3", NULL},
        {make_pixels_nan, "none", NULL, loss},       {make_pixels_nan, "group:4", NULL, loss},
        {make_pixels_nan, "eb:0.3", NULL, on_grid},  {make_labels_nan, "none", NULL, loss},
        {make_labels_nan, "eb:0.3", NULL, loss},     {make_labels_nan, "offload", NULL, loss},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int accumulate = 1; accumulate <= 2; accumulate++)
            check_trouble(&all[i], accumulate);
}

/* Gradients are finite, what is made of weights or state is not: whoever sets the bounds, this is the end. */
static void test_ruined(void **state) {
    (void)state;
    for (int adamw = 0; adamw < 2; adamw++)
        for (int control = 0; control < 2; control++) {
            comet_trainer_options o = options_for("resnet8", "eb");
            o.control = control ? "comet" : NULL;
            if (adamw)
                o.optimiser = comet_optimiser_default(COMET_ADAMW);
            comet_trainer *t = trainer_of(&o);
            comet_trainer_result result;
            comet_message message;
            assert_done(try_update(t, 0.05, &result, &message), message);
            assert_int_equal(try_update(t, 1e39, &result, &message), COMET_ERROR_DIVERGED);
            assert_non_null(strstr(message.text, "diverged since step 2: after its update conv1.weight"));
            assert_int_equal(t->batches, 1);
            comet_trainer_free(t);
        }
}

/* ---- jumps ---- */

/* All outputs times a power of two, which can be taken back: what a rate that is too high does to a network. */
static void scale_head(comet_trainer *t, float factor) {
    comet_parameter *p = comet_graph_parameter_named(t->parts.graph, "fc.weight");
    for (int64_t i = 0; i < p->count; i++)
        p->value[i] *= factor;
}

/* Bounds that the next step will have: this part of those that are given; 0: they are noted. */
static void check_bounds(comet_trainer *t, double *bounds, double part) {
    comet_trainer_control_bounds(t);
    for (int i = 0; i < comet_plan_entries(t->parts.plan); i++) {
        const double bound = comet_learned_at(t->parts.learned, i)->bound;
        if (comet_collect_find(t->parts.collect, comet_plan_get_entry(t->parts.plan, i)) < 0)
            continue;
        if (part > 0)
            assert_true(bound == part * bounds[i]);
        bounds[i] = part > 0 ? bounds[i] : bound;
    }
}

/*
 * A known sequence of losses: steady, three that are high, and steady again. Bounds are a quarter from the first high
 * one on, a half when `recover` steps have passed, and what they were after as many more; streams are then as large as
 * before, to the byte.
 */
static void test_jump(void **state) {
    (void)state;
    enum { JUMP = 25, RECOVER = 15, MOST_ENTRIES = 100 };
    const comet_trainer_options o =
        controlled("resnet8", "comet:c=0.1:warmup=5:every=5:adaptive=0:loosen=1000:floor=1e-6:recover=15");
    comet_trainer *t = trainer_of(&o);
    double bounds[MOST_ENTRIES], steady = 0;
    uint64_t bytes = 0;
    assert_in_range(comet_plan_entries(t->parts.plan), 1, MOST_ENTRIES);
    for (int step = 0; step < JUMP + 2 * RECOVER + 2; step++) {
        const int is_high = step >= JUMP && step < JUMP + 3;
        scale_head(t, is_high ? 16 : 1);
        const comet_trainer_result r = train_in_place(t);
        scale_head(t, is_high ? 0.0625f : 1);
        steady = step == 0 ? r.loss : steady;
        bytes = step == JUMP - 1 ? r.saved_stored_bytes : bytes;
        assert_true(is_high ? r.loss > 2 * steady : r.loss == steady);
        if (step < JUMP)
            check_bounds(t, bounds, step < JUMP - 1 ? 0 : 1);
        else
            check_bounds(t, bounds, step < JUMP + RECOVER ? 0.25 : step < JUMP + 2 * RECOVER ? 0.5 : 1);
        if (step > JUMP && step <= JUMP + 2 * RECOVER)
            assert_true(r.saved_stored_bytes > bytes + bytes / 8);
        else if (step >= JUMP)
            assert_int_equal(r.saved_stored_bytes, bytes);
    }
    assert_int_equal(count_of(COMET_CAUSE_SPIKE), 1);
    assert_int_equal(count_of(COMET_CAUSE_RECOVERY), 2);
    comet_trainer_free(t);
}

/*
 * A rate that is far too high for three steps. Where that leads is chaotic, compressed or not, and no seed says more of
 * it than another: what is asked is that it is noticed at once and that training goes on.
 */
static void test_rate_jump(void **state) {
    (void)state;
    const comet_trainer_options o = controlled("resnet8", "comet:warmup=5:every=5:recover=5");
    comet_trainer *t = trainer_of(&o);
    for (uint64_t step = 0; step < 45; step++)
        assert_true(isfinite(train(t, step, step >= 30 && step < 33 ? 4 : 0.05).loss));
    int noticed = 0;
    for (int i = 0; i < notes.count; i++)
        if (notes.events[i].cause == COMET_CAUSE_SPIKE) {
            assert_in_range(notes.events[i].iteration, 31, 44); /* none before */
            noticed += notes.events[i].iteration <= 33;
        }
    assert_int_equal(noticed, 1);
    comet_trainer_free(t);
}

/* ---- checkpoints ---- */

static void copy_trainer(comet_trainer *from, comet_trainer *to) {
    comet_message message;
    for (int i = 0; i < comet_graph_parameters(from->parts.graph); i++) {
        const comet_parameter *p = comet_graph_parameter(from->parts.graph, i);
        memcpy(comet_graph_parameter(to->parts.graph, i)->value, p->value, (size_t)p->count * sizeof(float));
    }
    memcpy(to->state, from->state, from->state_bytes);
    *comet_trainer_batches(to) = *comet_trainer_batches(from);
    const size_t bytes = comet_trainer_control_bytes(from);
    void *blob = malloc(bytes);
    assert_done(comet_trainer_get_control(from, blob, bytes, &message), message);
    assert_int_equal(comet_trainer_set_control(to, blob, bytes - 1, &message) == COMET_OK, 0);
    assert_done(comet_trainer_set_control(to, blob, bytes, &message), message);
    free(blob);
}

/* With a skipped step before it: updates and iterations are not the same number then. */
static void test_goes_on(void **state) {
    (void)state;
    comet_trainer_options o = controlled("resnet8", "comet:warmup=3:every=2");
    o.optimiser = comet_optimiser_default(COMET_ADAMW);
    comet_trainer *a = trainer_of(&o), *b = trainer_of(&o);
    for (uint64_t step = 0; step < 7; step++)
        train(a, step, 0.001);
    train_broken(a, 7);
    copy_trainer(a, b);
    assert_int_equal(*comet_trainer_updates(b), 7);
    for (uint64_t step = 8; step < 16; step++) {
        notes.count = 0;
        const comet_trainer_result from_a = train(a, step, 0.001);
        static diary of_a;
        of_a = notes;
        notes.count = 0;
        const comet_trainer_result from_b = train(b, step, 0.001);
        assert_true(from_a.loss == from_b.loss && from_a.saved_stored_bytes == from_b.saved_stored_bytes);
        assert_int_equal(of_a.count, notes.count);
        for (int i = 0; i < notes.count; i++)
            assert_true(notes.events[i].after.value == of_a.events[i].after.value);
    }
    assert_true(digest(a) == digest(b));
    comet_trainer_free(a);
    comet_trainer_free(b);
}

/* ---- memory ---- */

/* Within the least budget there is: bounds are the controller's all the same, what does not fit is computed again. */
static void test_budget(void **state) {
    (void)state;
    comet_trainer_options o = controlled("resnet8", "comet:warmup=2:every=1");
    o.spill_directory = NULL;
    comet_fit fit;
    comet_message message;
    assert_done(comet_trainer_fit(&o, NULL, &fit, NULL, NULL, NULL, &message), message);
    o.memory_bytes = fit.least_bytes + fit.least_bytes / 50;
    comet_trainer *t = trainer_of(&o);
    for (uint64_t step = 0; step < 8; step++)
        assert_true(isfinite(train(t, step, 0.05).loss));
    assert_true(count_of(COMET_CAUSE_FIRST) > 0);
    assert_true(comet_trainer_get_bytes(t).allocated_peak_bytes <= o.memory_bytes);
    comet_trainer_free(t);
}

/* Every allocation fails once: an error, and nothing is left. */
static void test_no_memory(void **state) {
    (void)state;
    const comet_trainer_options o = controlled("resnet8", "comet:warmup=0:every=1");
    for (long at = 1;; at++) {
        counting_allocator counting;
        comet_trainer *t = NULL;
        comet_message message;
        counting_allocator_init(&counting);
        counting.fail_at = at;
        comet_status status = comet_trainer_new(&o, &counting.allocator, &t, &message);
        const int was_last = counting.calls < at;
        counting.fail_at = 0;
        if (status == COMET_OK && was_last)
            train(t, 1, 0.05);
        if (status == COMET_OK)
            comet_trainer_free(t);
        else
            assert_int_equal(status, COMET_ERROR_MEMORY);
        assert_int_equal(counting.live_blocks, 0);
        assert_int_equal(counting.wrong_sizes, 0);
        if (was_last) {
            assert_int_equal(status, COMET_OK);
            return;
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_decides),
        cmocka_unit_test(test_first_decision),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_ceiling),
        cmocka_unit_test(test_efficientnet),
        cmocka_unit_test(test_nothing_to_control),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_gradients_not_finite),
        cmocka_unit_test(test_accumulated),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_taken_back),
        cmocka_unit_test(test_ruined),
        cmocka_unit_test(test_jump),
        cmocka_unit_test(test_rate_jump),
        cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
