/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of uses: what is wrong is an error of its kind, and changes nothing. */
#include "support/use_stats_case.h"

enum { BYTES = 1 << 20 };

/* A layer's call that is right, to be spoilt. */
typedef struct layer_call {
    conv v;
    laid x, dy;
    comet_layer_pass pass;
    comet_stats_exec exec;
    comet_stats_layer layer;
} layer_call;

static void layer_call_new(layer_call *c) {
    rng r = rng_seed(21);
    *c = (layer_call){.v = conv_new(&r, 4), .exec = exec_new(BYTES, NULL), .layer = COMET_STATS_LAYER_INIT};
    c->x = lay(&c->v.x, ROWS);
    c->dy = lay(&c->v.dy, ROWS);
    c->pass = conv_pass(&c->v, &c->x.tensor, &c->dy.tensor);
}

static void layer_call_free(layer_call *c) {
    conv_free(&c->v);
    free(c->x.memory);
    free(c->dy.memory);
    free(c->exec.workspace);
}

/* Refused by the call, with nothing changed, and by the query where that reads what is wrong. */
static void assert_refused(layer_call *c, comet_status expected, int by_query) {
    const comet_stats_layer before = c->layer;
    size_t bytes;
    assert_status(comet_stats_see_layer(&c->pass, &c->exec, &c->layer), expected);
    assert_memory_equal(&c->layer, &before, sizeof before);
    assert_status(comet_stats_layer_workspace(&c->pass, &bytes), by_query ? expected : COMET_OK);
}

#define REFUSED(expected, by_query, spoil)                                                                             \
    do {                                                                                                               \
        layer_call c;                                                                                                  \
        layer_call_new(&c);                                                                                            \
        spoil;                                                                                                         \
        assert_refused(&c, (expected), (by_query));                                                                    \
        layer_call_free(&c);                                                                                           \
    } while (0)

static void test_layers(void **state) {
    (void)state;
    layer_call right;
    layer_call_new(&right);
    assert_ok(comet_stats_see_layer(&right.pass, &right.exec, &right.layer));
    assert_status(comet_stats_see_layer(NULL, &right.exec, &right.layer), COMET_ERROR_ARGUMENT);
    assert_status(comet_stats_see_layer(&right.pass, &right.exec, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_stats_layer_workspace(&right.pass, NULL), COMET_ERROR_ARGUMENT);
    layer_call_free(&right);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.size = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 0, c.layer.size = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 0, c.exec.size = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.input = NULL);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.gradient = NULL);
    REFUSED(COMET_ERROR_ARGUMENT, 0, c.pass.weights = NULL);
    REFUSED(COMET_ERROR_ARGUMENT, 0, c.x.tensor.data = NULL);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.what = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.what = 8 | COMET_STATS_INPUT);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.what = COMET_STATS_COMMON);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.dy.tensor.shape[0]++);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.dy.tensor.shape[1]++);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.dy.tensor.shape[2]--);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.x.tensor.shape[0] = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.x.tensor.ndim = 5);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.x.tensor.layout = COMET_FLAT);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.stride[1] = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.kernel[0] = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.padding[0] = -1);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.dilation[1] = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.groups = 0);
    REFUSED(COMET_ERROR_ARGUMENT, 1, c.pass.groups = 97);
    REFUSED(COMET_ERROR_UNSUPPORTED, 1, c.x.tensor.dtype = COMET_F16);
    REFUSED(COMET_ERROR_UNSUPPORTED, 1, c.dy.tensor.device.kind = COMET_CUDA);
    REFUSED(COMET_ERROR_CAPACITY, 0, c.exec.workspace_bytes = 0);
}

/* Of a tensor that is not asked for only the shape counts. */
static void test_what_is_not_read(void **state) {
    (void)state;
    layer_call c;
    layer_call_new(&c);
    c.pass.what = COMET_STATS_OUTPUT;
    c.pass.weights = NULL;
    c.x.tensor.data = NULL;
    assert_ok(comet_stats_see_layer(&c.pass, &c.exec, &c.layer));
    assert_true(c.layer.gradient_squares > 0 && c.layer.input_squares == 0);
    c.pass.what = COMET_STATS_INPUT;
    assert_status(comet_stats_see_layer(&c.pass, &c.exec, &c.layer), COMET_ERROR_ARGUMENT);
    layer_call_free(&c);
}

/* ---- workspaces ---- */

/* One byte short, one byte off, none: refused. */
#define CHECK_CAPACITY(kind, pass, into)                                                                               \
    do {                                                                                                               \
        size_t bytes;                                                                                                  \
        assert_ok(comet_stats_##kind##_workspace((pass), &bytes));                                                     \
        assert_true(bytes > 0);                                                                                        \
        comet_stats_exec exec = exec_new(bytes + 64, NULL), off = exec;                                                \
        exec.workspace_bytes = bytes - 1;                                                                              \
        assert_status(comet_stats_see_##kind((pass), &exec, (into)), COMET_ERROR_CAPACITY);                            \
        assert_status(comet_stats_see_##kind((pass), NULL, (into)), COMET_ERROR_CAPACITY);                             \
        off.workspace = (char *)off.workspace + 1;                                                                     \
        assert_status(comet_stats_see_##kind((pass), &off, (into)), COMET_ERROR_ARGUMENT);                             \
        exec.workspace_bytes = bytes;                                                                                  \
        assert_ok(comet_stats_see_##kind((pass), &exec, (into)));                                                      \
        free(exec.workspace);                                                                                          \
    } while (0)

static void test_capacity(void **state) {
    (void)state;
    const comet_codec_record result = {.bytes = 1, .bound = 0.1, .stats = {.count = 2, .nonzero = 1, .sum_squares = 1}};
    for (int form = 0; form < FORMS; form++) {
        rng r = rng_seed(22);
        conv v = conv_new(&r, 3);
        norm n = norm_new(&r, 3);
        batch s = batch_new(&r, 3, 1, 1, n.x.channels, 0);
        laid x = lay(&v.x, form), dy = lay(&v.dy, form), u = lay(&n.x, form), g = lay(&n.dy, form), f = lay(&s, form);
        const comet_layer_pass layer = conv_pass(&v, &x.tensor, &dy.tensor);
        const comet_norm_pass of_norm = norm_pass(&n, &u.tensor, &g.tensor);
        comet_silu_pass silu = COMET_SILU_PASS_INIT;
        comet_scale_pass scale = COMET_SCALE_PASS_INIT;
        comet_tensor_pass tensor = COMET_TENSOR_PASS_INIT;
        silu.input = &u.tensor, silu.gradient = &g.tensor;
        scale.factors = &f.tensor, scale.gradient = &u.tensor;
        tensor.values = &u.tensor, tensor.result = &result;
        CHECK_CAPACITY(layer, &layer, &(comet_stats_layer)COMET_STATS_LAYER_INIT);
        CHECK_CAPACITY(norm, &of_norm, &(comet_stats_norm)COMET_STATS_NORM_INIT);
        CHECK_CAPACITY(silu, &silu, &(comet_stats_silu)COMET_STATS_SILU_INIT);
        CHECK_CAPACITY(scale, &scale, &(comet_stats_scale)COMET_STATS_SCALE_INIT);
        CHECK_CAPACITY(tensor, &tensor, &(comet_stats_tensor)COMET_STATS_TENSOR_INIT);
        conv_free(&v);
        norm_free(&n);
        free(s.values);
        free(x.memory);
        free(dy.memory);
        free(u.memory);
        free(g.memory);
        free(f.memory);
    }
}

/* ---- the others ---- */

static void test_norms(void **state) {
    (void)state;
    rng r = rng_seed(23);
    norm n = norm_new(&r, 4);
    batch other = batch_new(&r, 4, n.x.height, n.x.width, n.x.channels + 1, 0);
    laid x = lay(&n.x, ROWS), dy = lay(&n.dy, PLANES), wrong = lay(&other, ROWS);
    const comet_norm_pass right = norm_pass(&n, &x.tensor, &dy.tensor);
    comet_norm_pass p[6] = {right, right, right, right, right, right};
    comet_stats_exec exec = exec_new(BYTES, NULL);
    comet_stats_norm seen = COMET_STATS_NORM_INIT;
    p[0].gradient = &wrong.tensor;
    p[1].gamma = NULL;
    p[2].scale = NULL;
    p[3].part = 1;
    p[4].parts = 0;
    p[5].part = 1, p[5].parts = 2; /* its first part was not there */
    for (int i = 0; i < 6; i++)
        assert_status(comet_stats_see_norm(&p[i], &exec, &seen), COMET_ERROR_ARGUMENT);
    assert_true(seen.batches == 0 && seen.derivative == 0);
    comet_silu_pass silu = COMET_SILU_PASS_INIT;
    comet_stats_silu curve = COMET_STATS_SILU_INIT;
    silu.input = &x.tensor, silu.gradient = &dy.tensor, silu.normalised = 1; /* of which norm? */
    assert_status(comet_stats_see_silu(&silu, &exec, &curve), COMET_ERROR_ARGUMENT);
    silu.normalised = 0, silu.beta = n.beta;
    assert_status(comet_stats_see_silu(&silu, &exec, &curve), COMET_ERROR_ARGUMENT);
    silu.beta = NULL, silu.gradient = &wrong.tensor;
    assert_status(comet_stats_see_silu(&silu, &exec, &curve), COMET_ERROR_ARGUMENT);
    comet_scale_pass scale = COMET_SCALE_PASS_INIT;
    comet_stats_scale factors = COMET_STATS_SCALE_INIT;
    scale.factors = &x.tensor, scale.gradient = &dy.tensor; /* a factor for each pixel */
    assert_status(comet_stats_see_scale(&scale, &exec, &factors),
                  n.x.height * n.x.width > 1 ? COMET_ERROR_ARGUMENT : COMET_OK);
    free(exec.workspace);
    free(x.memory);
    free(dy.memory);
    free(wrong.memory);
    free(other.values);
    norm_free(&n);
}

static void test_tensors(void **state) {
    (void)state;
    rng r = rng_seed(24);
    batch b = batch_new(&r, 2, 4, 4, 3, 0.2);
    laid x = lay(&b, ROWS);
    comet_codec_record result = {.bytes = 1, .bound = 0.1, .stats = {.count = 2, .nonzero = 1, .sum_squares = 1}};
    comet_stats_exec exec = exec_new(BYTES, NULL);
    comet_stats_tensor seen = COMET_STATS_TENSOR_INIT;
    comet_tensor_pass pass = COMET_TENSOR_PASS_INIT;
    const float threshold[4] = {0, 0, 0, 0};
    const comet_codec_grid four = {4, NULL, NULL, threshold, NULL};
    assert_status(comet_stats_see_tensor(&pass, &exec, &seen), COMET_ERROR_ARGUMENT); /* no result */
    pass.result = &result, pass.values = &x.tensor, pass.relu = 1;
    assert_status(comet_stats_see_tensor(&pass, &exec, &seen), COMET_ERROR_ARGUMENT); /* a ReLU without a grid */
    pass.grid = &four;
    assert_status(comet_stats_see_tensor(&pass, &exec, &seen), COMET_ERROR_ARGUMENT); /* of other channels */
    pass.grid = NULL, pass.relu = 0, result.bound = NAN;
    assert_status(comet_stats_see_tensor(&pass, &exec, &seen), COMET_ERROR_ARGUMENT);
    assert_true(seen.streams == 0);
    result.bound = 0; /* lossless: there are no errors to be alike */
    assert_ok(comet_stats_see_tensor(&pass, &exec, &seen));
    assert_true(seen.streams == 1 && !seen.has_alike);
    result.stats.nonfinite = 1;
    assert_status(comet_stats_see_tensor(&pass, &exec, &seen), COMET_ERROR_DIVERGED);
    pass.values = NULL; /* needs no workspace */
    result.stats.nonfinite = 0;
    assert_ok(comet_stats_see_tensor(&pass, NULL, &seen));
    free(exec.workspace);
    free(x.memory);
    free(b.values);
}

static void test_uses(void **state) {
    (void)state;
    comet_stats_tensor tensor = COMET_STATS_TENSOR_INIT;
    comet_stats_layer layer = COMET_STATS_LAYER_INIT;
    comet_stats_norm seen = COMET_STATS_NORM_INIT;
    comet_stats_silu silu = COMET_STATS_SILU_INIT;
    comet_stats_scale scale = COMET_STATS_SCALE_INIT;
    comet_stats_use use = COMET_STATS_USE_INIT;
    comet_use_stats stats;
    tensor.count = tensor.nonzero = tensor.streams = 1;
    layer.batches = layer.outputs = layer.positions = layer.kernel = seen.batches = silu.batches = scale.batches = 1;
    layer.stride[0] = layer.stride[1] = 1;
    for (int kind = 0; kind < COMET_USE_KINDS; kind++) {
        const int needs_layer = kind != COMET_USE_NORM_SCALE;
        use = (comet_stats_use)COMET_STATS_USE_INIT;
        use.kind = (comet_use_kind)kind;
        use.tensor = &tensor, use.layer = &layer, use.norm = &seen, use.silu = &silu, use.scale = &scale;
        assert_ok(comet_stats_of_use(&use, &stats));
        use.layer = NULL;
        assert_status(comet_stats_of_use(&use, &stats), needs_layer ? COMET_ERROR_ARGUMENT : COMET_OK);
        use.layer = &layer, layer.batches = 0; /* it is there, but has seen nothing */
        assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_ARGUMENT);
        layer.batches = 1, use.tensor = NULL;
        assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_ARGUMENT);
        use.tensor = &tensor, use.momentum = -1;
        assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_ARGUMENT);
        use.momentum = NAN;
        assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_DIVERGED);
    }
    use.momentum = 0, use.kind = COMET_USE_KINDS;
    assert_status(comet_stats_of_use(&use, &stats), COMET_ERROR_ARGUMENT);
    assert_status(comet_stats_of_use(NULL, &stats), COMET_ERROR_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layers), cmocka_unit_test(test_what_is_not_read), cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_norms),  cmocka_unit_test(test_tensors),          cmocka_unit_test(test_uses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
