/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU's ops against themselves: outputs over inputs, other numbers of threads; and that the body which tests other
 * backends' ops (support/train/op_case.h) finds what is wrong.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <string.h>

#include "support/effort.h"
#include "support/train/op_case.h"
#include "support/train/op_layer.h"

typedef struct backends {
    comet_backend *one, *two; /* threads */
} backends;

static backends b;

static int set_up(void **state) {
    (void)state;
    assert_ok(comet_backend_onednn_new(1, NULL, &b.one));
    assert_ok(comet_backend_onednn_new(2, NULL, &b.two));
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    comet_backend_free(b.one);
    comet_backend_free(b.two);
    return 0;
}

static op_case case_of(const op_layer *layer, rng *r) {
    op_case c = {.backend = b.two,
                 .reference = b.one,
                 .build = op_layer_build,
                 .how = layer,
                 .batch = (int)rng_between(r, 1, 4),
                 .has_mask = layer->kind == COMET_OP_RELU};
    /* oneDNN shares out its sums over threads. */
    if (layer->kind == COMET_OP_CONV || layer->kind == COMET_OP_LINEAR)
        c.forward = c.backward = c.gradients = (op_tolerance){2, 32};
    op_case_vary(&c, r);
    return c;
}

static void test_agrees(void **state) {
    (void)state;
    for (int kind = COMET_OP_CONV; kind < COMET_OP_KINDS; kind++)
        for (int i = 0; i < effort(20); i++) {
            rng r = rng_seed((uint64_t)(100 * kind + i));
            const op_layer layer = op_layer_draw((comet_op_kind)kind, 9, &r);
            op_case c = case_of(&layer, &r);
            failure f;
            c.relu = kind == COMET_OP_BATCH_NORM && rng_below(&r, 2);
            c.evaluation = kind == COMET_OP_BATCH_NORM && rng_below(&r, 4) == 0;
            assert_check(op_case_agrees(&c, &f), f);
        }
}

/* ---- what is wrong is found ---- */

static comet_op_kernel wrong;
static const comet_op_kernel *right;
static int calls;

static comet_status wrong_output(const comet_op_call *call) {
    const comet_status status = right->forward(call);
    ((float *)call->y)[0] = nextafterf(((float *)call->y)[0], 9);
    return status;
}

static comet_status wrong_gradient(const comet_op_call *call) {
    const comet_status status = right->backward(call);
    ((float *)call->dx[0])[1] += 1e-3f;
    return status;
}

static comet_status late_output(const comet_op_call *call) {
    return calls++ ? right->forward(call) : COMET_OK;
}

static comet_status writes_behind(const comet_op_call *call) {
    const comet_status status = right->forward(call);
    ((float *)call->y)[comet_shape_count(*comet_value_shape(call->graph, call->node->output)) * call->batch] = 0;
    return status;
}

static comet_status changes(const comet_op_call *call) {
    const comet_status status = right->forward(call);
    if (calls++)
        ((float *)call->y)[2] = -((float *)call->y)[2];
    return status;
}

static void assert_found(comet_op_kind kind, const comet_op_kernel *kernel, const char *what) {
    rng r = rng_seed(5);
    op_layer layer = op_layer_draw(kind, 6, &r);
    failure f;
    layer.in = (comet_shape){5, 6, 7};
    op_case c = case_of(&layer, &r);
    c.y_over = 0;
    c.dx_over = OP_BESIDE;
    c.no_dx = 0;
    c.random |= 1; /* guards */
    calls = 0;
    right = b.two->kernels[kind];
    wrong = *right;
    wrong.forward = kernel->forward ? kernel->forward : right->forward;
    wrong.backward = kernel->backward ? kernel->backward : right->backward;
    b.two->kernels[kind] = &wrong;
    const int agrees = op_case_agrees(&c, &f);
    b.two->kernels[kind] = right;
    assert_false(agrees);
    if (!strstr(f.text, what))
        fail_msg("%s; expected: %s", f.text, what);
}

static void test_finds(void **state) {
    (void)state;
    assert_found(COMET_OP_SILU, &(comet_op_kernel){.forward = wrong_output}, "y[0 of ");
    assert_found(COMET_OP_SILU, &(comet_op_kernel){.backward = wrong_gradient}, "dx[0][1 of ");
    assert_found(COMET_OP_SILU, &(comet_op_kernel){.forward = late_output}, "y[0 of ");
    assert_found(COMET_OP_SILU, &(comet_op_kernel){.forward = writes_behind}, "behind it was written");
    assert_found(COMET_OP_SIGMOID, &(comet_op_kernel){.forward = changes}, "y[2 of ");
}

/* ---- NaN ---- */

/* In a window it stays, wherever it is: what diverged is seen. Of several the last counts, as in PyTorch. */
static void test_max_pool_keeps_nan(void **state) {
    (void)state;
    comet_graph *g;
    assert_ok(comet_graph_new(NULL, &g));
    comet_graph_max_pool(g, comet_graph_input(g, 2, 2, 1), &(comet_pool2d){.kernel = 2});
    for (int at = 0; at < 4; at++) {
        float x[] = {3, 1, 4, 2}, y = 0;
        uint8_t side = 0;
        x[at] = NAN;
        const comet_op_call call = {.backend = b.one,
                                    .graph = g,
                                    .node = g->nodes,
                                    .batch = 1,
                                    .training = 1,
                                    .x = {x},
                                    .y = &y,
                                    .side = &side};
        assert_ok(b.one->kernels[COMET_OP_MAX_POOL]->forward(&call));
        assert_true(isnan(y));
        assert_int_equal(side, at);
    }
    comet_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_agrees), cmocka_unit_test(test_finds),
                                       cmocka_unit_test(test_max_pool_keeps_nan)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
