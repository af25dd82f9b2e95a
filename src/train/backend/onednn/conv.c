/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions. Activations are NHWC on both sides, which oneDNN computes as they are with most implementations;
 * weights come in as OIHW and are reordered to what the primitive prefers. Where NHWC would mean oneDNN's reference
 * code, blocked activations are tried: two reorders are cheaper than that. So they are where sums are long: for NHWC
 * oneDNN adds up all products of a value one after the other, for blocked activations those of 16 channels at a time,
 * whose rounding error is two to four times smaller. The copies are of a few samples at a time, which takes little
 * memory and leaves them in the cache.
 */
#include <string.h>

#include "base/memory.h"
#include "train/backend/cpu/kernels.h"
#include "train/backend/onednn/onednn.h"
#include "train/backend/onednn/pass.h"

enum { CHANNEL_BLOCK = 16, LONG_SUM = 512, COPIED_BYTES = 4 << 20 };

typedef struct conv_state {
    const comet_allocator *allocator;
    comet_pass forward, backward_data, backward_weights;
    /* In scratch: gradients that are to be added, and the bias's if nobody wants it, which comes with the weights'. */
    size_t weight_bytes, bias_bytes;
} conv_state;

/* Descriptors of one convolution: the user's, and what is asked for. */
typedef struct conv_mds {
    comet_dnnl_own_md x, w, b, y; /* the user's */
    comet_dnnl_own_md any_x, any_w, any_y;
    const comet_conv2d *conv;
    int channels; /* of x */
} conv_mds;

static void conv_dims(const comet_graph *g, const comet_node *node, int batch, dnnl_dims_t x, dnnl_dims_t w,
                      int *w_ndims, dnnl_dims_t y) {
    const comet_shape *in = comet_value_shape(g, node->input[0]), *out = comet_value_shape(g, node->output);
    const comet_conv2d *c = &node->as.conv;
    const dnnl_dim_t xs[] = {batch, in->channels, in->height, in->width},
                     ys[] = {batch, out->channels, out->height, out->width};
    const dnnl_dim_t plain[] = {c->out, in->channels, c->kernel, c->kernel_width};
    const dnnl_dim_t grouped[] = {c->groups, c->out / c->groups, in->channels / c->groups, c->kernel, c->kernel_width};
    memcpy(x, xs, sizeof xs);
    memcpy(y, ys, sizeof ys);
    *w_ndims = c->groups > 1 ? 5 : 4;
    if (c->groups > 1)
        memcpy(w, grouped, sizeof grouped);
    else
        memcpy(w, plain, sizeof plain);
}

static dnnl_status_t mds_make(conv_mds *m, const comet_graph *g, const comet_node *node, int batch) {
    dnnl_dims_t x, w, y;
    int w_ndims;
    conv_dims(g, node, batch, x, w, &w_ndims, y);
    memset(m, 0, sizeof *m);
    m->conv = &node->as.conv;
    m->channels = (int)x[1];
    dnnl_status_t status = comet_dnnl_md_make(&m->x, 4, x, dnnl_nhwc);
    if (status == dnnl_success)
        status = comet_dnnl_md_make(&m->w, w_ndims, w, w_ndims == 5 ? dnnl_goihw : dnnl_oihw);
    if (status == dnnl_success)
        status = comet_dnnl_md_make(&m->b, 1, (dnnl_dims_t){node->as.conv.out}, dnnl_a);
    if (status == dnnl_success)
        status = comet_dnnl_md_make(&m->y, 4, y, dnnl_nhwc);
    if (status == dnnl_success)
        status = comet_dnnl_md_make(&m->any_x, 4, x, dnnl_format_tag_any);
    if (status == dnnl_success)
        status = comet_dnnl_md_make(&m->any_w, w_ndims, w, dnnl_format_tag_any);
    return status == dnnl_success ? comet_dnnl_md_make(&m->any_y, 4, y, dnnl_format_tag_any) : status;
}

static void mds_destroy(conv_mds *m) {
    comet_dnnl_own_md *all[] = {&m->x, &m->w, &m->b, &m->y, &m->any_x, &m->any_w, &m->any_y};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        comet_dnnl_md_destroy(all[i]);
}

static int is_reference(dnnl_primitive_desc_t pd) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success && name &&
           strstr(name, "ref") != NULL;
}

/*
 * Is a value of the output so long a sum that it is worth a copy? 1 x 1 kernels add up in one order whatever the
 * layout.
 */
static int has_long_sums(const comet_conv2d *c, int channels, comet_dnnl_pass pass) {
    const int in = channels / c->groups, out = c->out / c->groups, pixels = c->kernel * c->kernel_width;
    const int summed = pass == COMET_DNNL_FORWARD ? in : out;
    return pass != COMET_DNNL_BACKWARD_WEIGHTS && pixels > 1 && in % CHANNEL_BLOCK == 0 && out % CHANNEL_BLOCK == 0 &&
           (int64_t)summed * pixels > LONG_SUM;
}

/*
 * The primitive for NHWC, unless sums are long or that is the reference code, and for another layout there is one that
 * is not.
 */
static dnnl_status_t choose_pd(const comet_backend_onednn *b, comet_dnnl_pass pass, const conv_mds *m, int training,
                               dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *pd) {
    const comet_conv2d *c = m->conv;
    comet_dnnl_conv conv = {.src = comet_dnnl_md_read(&m->x),
                            .weights = comet_dnnl_md_read(&m->any_w),
                            .bias = c->bias && pass != COMET_DNNL_BACKWARD_DATA ? comet_dnnl_md_read(&m->b) : NULL,
                            .dst = comet_dnnl_md_read(&m->y),
                            .strides = {c->stride, c->stride},
                            .padding = {c->padding, c->padding_width},
                            .training = training};
    dnnl_primitive_desc_t blocked = NULL;
    dnnl_status_t status = comet_dnnl_conv_pd(pd, b->engine, pass, &conv, hint, b->attr);
    if (status == dnnl_success && !is_reference(*pd) && !has_long_sums(c, m->channels, pass))
        return status;
    conv.src = comet_dnnl_md_read(&m->any_x);
    conv.dst = comet_dnnl_md_read(&m->any_y);
    if (comet_dnnl_conv_pd(&blocked, b->engine, pass, &conv, hint, b->attr) != dnnl_success)
        return status;
    if (status == dnnl_success && is_reference(blocked)) {
        dnnl_primitive_desc_destroy(blocked);
        return status;
    }
    if (status == dnnl_success)
        dnnl_primitive_desc_destroy(*pd);
    *pd = blocked;
    return dnnl_success;
}

/* In the order of the tensors that the functions below give to comet_pass_run. */
static dnnl_status_t add_tensors(comet_pass *p, comet_dnnl_pass pass, const conv_mds *m, dnnl_primitive_desc_t pd) {
    static const int argument[3][4] = {
        {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_BIAS},
        {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST, 0},
        {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST, DNNL_ARG_DIFF_BIAS},
    };
    static const dnnl_query_t query[3][3] = {
        {dnnl_query_src_md, dnnl_query_weights_md, dnnl_query_dst_md},
        {dnnl_query_diff_src_md, dnnl_query_weights_md, dnnl_query_diff_dst_md},
        {dnnl_query_src_md, dnnl_query_diff_weights_md, dnnl_query_diff_dst_md},
    };
    const comet_dnnl_own_md *user[] = {&m->x, &m->w, &m->y};
    static const int output[3] = {2, 0, 1};
    for (int i = 0; i < 3; i++) {
        dnnl_status_t status =
            comet_pass_add(p, argument[pass][i], i == output[pass], user[i] != &m->w, comet_dnnl_md_read(user[i]),
                           dnnl_primitive_desc_query_md(pd, query[pass][i], 0));
        if (status != dnnl_success)
            return status;
    }
    if (!m->conv->bias || pass == COMET_DNNL_BACKWARD_DATA)
        return dnnl_success;
    return comet_pass_add(p, argument[pass][3], pass == COMET_DNNL_BACKWARD_WEIGHTS, 0, comet_dnnl_md_read(&m->b),
                          comet_dnnl_md_read(&m->b));
}

/* Samples that are convolved at a time: all, unless they are copied. */
static int samples_of(const comet_op_call *call, comet_dnnl_pass pass) {
    const comet_shape *in = comet_value_shape(call->graph, call->node->input[0]),
                      *out = comet_value_shape(call->graph, call->node->output);
    if (!has_long_sums(&call->node->as.conv, in->channels, pass))
        return call->batch;
    const int64_t bytes = (comet_shape_count(*in) + comet_shape_count(*out)) * (int64_t)sizeof(float);
    int samples = call->batch;
    while (samples > 1 && (samples * bytes > COPIED_BYTES || call->batch % samples != 0))
        samples--;
    return samples;
}

static dnnl_status_t make_pd(const comet_backend_onednn *b, comet_dnnl_pass pass, const conv_mds *m, int training,
                             dnnl_primitive_desc_t *pd) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = choose_pd(b, COMET_DNNL_FORWARD, m, training, NULL, &hint);
    if (pass == COMET_DNNL_FORWARD || status != dnnl_success) {
        *pd = hint;
        return status;
    }
    status = choose_pd(b, pass, m, training, hint, pd);
    dnnl_primitive_desc_destroy(hint);
    return status;
}

static dnnl_status_t make_pass(const comet_backend_onednn *b, comet_dnnl_pass pass, const comet_op_call *call,
                               comet_pass *p) {
    const int samples = samples_of(call, pass);
    conv_mds m;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = mds_make(&m, call->graph, call->node, samples);
    if (status == dnnl_success)
        status = make_pd(b, pass, &m, call->training, &pd);
    if (status == dnnl_success)
        status = comet_pass_make(p, b->engine, b->stream, pd, call->batch / samples);
    if (status == dnnl_success)
        status = add_tensors(p, pass, &m, pd);
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    mds_destroy(&m);
    return status;
}

static dnnl_status_t make_passes(const comet_backend_onednn *b, const comet_op_call *call, conv_state *s) {
    dnnl_status_t status = make_pass(b, COMET_DNNL_FORWARD, call, &s->forward);
    if (status == dnnl_success && call->training && !(call->unwanted & COMET_BY_INPUT))
        status = make_pass(b, COMET_DNNL_BACKWARD_DATA, call, &s->backward_data);
    if (status == dnnl_success && call->training && !(call->unwanted & COMET_BY_WEIGHT))
        status = make_pass(b, COMET_DNNL_BACKWARD_WEIGHTS, call, &s->backward_weights);
    return status;
}

static void conv_forget(void *state) {
    conv_state *s = state;
    if (!s)
        return;
    comet_pass_destroy(&s->forward);
    comet_pass_destroy(&s->backward_data);
    comet_pass_destroy(&s->backward_weights);
    comet_memory_give(s->allocator, s, sizeof *s);
}

static size_t parameter_bytes(const comet_op_call *call, int place) {
    const comet_parameter *p = comet_node_parameter(call->graph, call->node, place);
    return p ? (size_t)p->count * sizeof(float) : 0;
}

static int bias_is_apart(const comet_op_call *call) {
    return (call->accumulate || call->unwanted & COMET_BY_BIAS) && !(call->unwanted & COMET_BY_WEIGHT);
}

static comet_status conv_prepare(const comet_op_call *call, void **state) {
    const comet_backend_onednn *b = (const comet_backend_onednn *)call->backend;
    conv_state *s = comet_memory_take(b->allocator, sizeof *s);
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->allocator = b->allocator;
    if (call->accumulate && !(call->unwanted & COMET_BY_WEIGHT))
        s->weight_bytes = (parameter_bytes(call, COMET_PARAMETER_WEIGHT) + 63) / 64 * 64;
    if (bias_is_apart(call))
        s->bias_bytes = parameter_bytes(call, COMET_PARAMETER_BIAS);
    comet_onednn_enter(b);
    dnnl_status_t status = make_passes(b, call, s);
    if (status != dnnl_success) {
        conv_forget(s);
        return comet_onednn_status(status);
    }
    *state = s;
    return COMET_OK;
}

static size_t conv_scratch(const comet_op_call *call, int backward) {
    const conv_state *s = call->state;
    size_t added = (s->weight_bytes + s->bias_bytes + 63) / 64 * 64;
    size_t data = s->backward_data.scratch_bytes, weights = s->backward_weights.scratch_bytes + added;
    return !backward ? s->forward.scratch_bytes : data > weights ? data : weights;
}

static float *value_of(const comet_op_call *call, int place) {
    comet_parameter *p = comet_node_parameter(call->graph, call->node, place);
    return p ? p->value : NULL;
}

static comet_status conv_forward(const comet_op_call *call) {
    const conv_state *s = call->state;
    comet_onednn_enter((const comet_backend_onednn *)call->backend);
    void *data[] = {(void *)call->x[0], value_of(call, COMET_PARAMETER_WEIGHT), call->y,
                    value_of(call, COMET_PARAMETER_BIAS)};
    return comet_onednn_status(comet_pass_run(&s->forward, data, call->scratch));
}

/* Into the gradients, or beside and added. */
static dnnl_status_t backward_weights(const comet_op_call *call, const conv_state *s) {
    comet_backend *b = call->backend;
    comet_parameter *w = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_WEIGHT);
    comet_parameter *bias = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
    const int wants_bias = bias && !(call->unwanted & COMET_BY_BIAS);
    char *scratch = call->scratch;
    float *dw = call->accumulate ? (float *)scratch : w->gradient;
    char *db_apart = scratch + (call->accumulate ? s->weight_bytes : 0);
    float *db = !bias ? NULL : call->accumulate || !wants_bias ? (float *)db_apart : bias->gradient;
    if (call->accumulate || (bias && !wants_bias))
        scratch += (s->weight_bytes + s->bias_bytes + 63) / 64 * 64;
    void *data[] = {(void *)call->x[0], dw, (void *)call->dy, db};
    dnnl_status_t status = comet_pass_run(&s->backward_weights, data, scratch);
    if (status != dnnl_success || !call->accumulate)
        return status;
    b->add(b, w->gradient, w->gradient, dw, w->count);
    if (wants_bias)
        b->add(b, bias->gradient, bias->gradient, db, bias->count);
    return status;
}

/* Where the weights stay as they are: it needs nothing of the input. */
static void backward_bias(const comet_op_call *call) {
    const comet_parameter *bias = comet_node_parameter(call->graph, call->node, COMET_PARAMETER_BIAS);
    const comet_shape *out = comet_value_shape(call->graph, call->node->output);
    if (bias && !(call->unwanted & COMET_BY_BIAS))
        comet_cpu_sum_rows(bias->gradient, call->dy, (int64_t)out->height * out->width * call->batch, out->channels,
                           call->accumulate);
}

static comet_status conv_backward(const comet_op_call *call) {
    const conv_state *s = call->state;
    comet_onednn_enter((const comet_backend_onednn *)call->backend);
    dnnl_status_t status = dnnl_success;
    if (!(call->unwanted & COMET_BY_WEIGHT))
        status = backward_weights(call, s);
    else
        backward_bias(call);
    if (status == dnnl_success && call->dx[0]) {
        void *data[] = {call->dx[0], value_of(call, COMET_PARAMETER_WEIGHT), (void *)call->dy};
        status = comet_pass_run(&s->backward_data, data, call->scratch);
    }
    return comet_onednn_status(status);
}

const comet_op_kernel comet_onednn_conv = {.prepare = conv_prepare,
                                           .forget = conv_forget,
                                           .scratch = conv_scratch,
                                           .forward = conv_forward,
                                           .backward = conv_backward};

int comet_onednn_conv_supports(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch,
                               int training) {
    const comet_backend_onednn *b = (const comet_backend_onednn *)backend;
    conv_mds m;
    comet_onednn_enter(b);
    dnnl_status_t status = mds_make(&m, g, node, batch);
    for (int pass = 0; status == dnnl_success && pass < (training ? 3 : 1); pass++) {
        dnnl_primitive_desc_t pd = NULL;
        status = make_pd(b, (comet_dnnl_pass)pass, &m, training, &pd);
        if (pd)
            dnnl_primitive_desc_destroy(pd);
    }
    mds_destroy(&m);
    return status == dnnl_success;
}
