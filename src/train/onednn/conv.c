/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions. Activations are NHWC on both sides, which oneDNN computes as they are with most implementations; weights come in as
 * OIHW and are reordered to what the primitive prefers. Where NHWC would mean oneDNN's reference code, blocked activations are tried:
 * two reorders are cheaper than that.
 */
#include <string.h>

#include "base/memory.h"
#include "train/onednn/onednn.h"
#include "train/onednn/pass.h"

typedef struct conv_state {
    const comet_allocator *allocator;
    comet_pass forward, backward_data, backward_weights;
    size_t weight_bytes, bias_bytes; /* of the user's, in scratch when gradients are added up */
} conv_state;

/* Descriptors of one convolution: the user's, and what is asked for. */
typedef struct conv_mds {
    comet_dnnl_own_md x, w, b, y; /* the user's */
    comet_dnnl_own_md any_x, any_w, any_y;
    int has_bias;
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
    m->has_bias = node->as.conv.bias;
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

/* The primitive for NHWC, unless that is the reference code and another layout is not. */
static dnnl_status_t choose_pd(const comet_backend_onednn *b, comet_dnnl_pass pass, const conv_mds *m,
                               const comet_conv2d *c, int training, dnnl_primitive_desc_t hint,
                               dnnl_primitive_desc_t *pd) {
    comet_dnnl_conv conv = {.src = comet_dnnl_md_read(&m->x),
                            .weights = comet_dnnl_md_read(&m->any_w),
                            .bias = m->has_bias && pass != COMET_DNNL_BACKWARD_DATA ? comet_dnnl_md_read(&m->b) : NULL,
                            .dst = comet_dnnl_md_read(&m->y),
                            .strides = {c->stride, c->stride},
                            .padding = {c->padding, c->padding_width},
                            .training = training};
    dnnl_primitive_desc_t blocked = NULL;
    dnnl_status_t status = comet_dnnl_conv_pd(pd, b->engine, pass, &conv, hint, b->attr);
    if (status == dnnl_success && !is_reference(*pd))
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
        dnnl_status_t status = comet_pass_add(p, argument[pass][i], i == output[pass], comet_dnnl_md_read(user[i]),
                                              dnnl_primitive_desc_query_md(pd, query[pass][i], 0));
        if (status != dnnl_success)
            return status;
    }
    if (!m->has_bias || pass == COMET_DNNL_BACKWARD_DATA)
        return dnnl_success;
    return comet_pass_add(p, argument[pass][3], pass == COMET_DNNL_BACKWARD_WEIGHTS, comet_dnnl_md_read(&m->b),
                          comet_dnnl_md_read(&m->b));
}

static dnnl_status_t make_pass(const comet_backend_onednn *b, comet_dnnl_pass pass, const conv_mds *m,
                               const comet_op_call *call, dnnl_primitive_desc_t hint, comet_pass *p) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = choose_pd(b, pass, m, &call->node->as.conv, call->training, hint, &pd);
    if (status != dnnl_success)
        return status;
    status = comet_pass_make(p, b->engine, b->stream, pd);
    if (status == dnnl_success)
        status = add_tensors(p, pass, m, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

static dnnl_status_t make_passes(const comet_backend_onednn *b, const conv_mds *m, const comet_op_call *call,
                                 conv_state *s) {
    dnnl_primitive_desc_t hint = NULL;
    dnnl_status_t status = choose_pd(b, COMET_DNNL_FORWARD, m, &call->node->as.conv, call->training, NULL, &hint);
    if (status != dnnl_success)
        return status;
    status = make_pass(b, COMET_DNNL_FORWARD, m, call, NULL, &s->forward);
    if (status == dnnl_success && call->training)
        status = make_pass(b, COMET_DNNL_BACKWARD_DATA, m, call, hint, &s->backward_data);
    if (status == dnnl_success && call->training)
        status = make_pass(b, COMET_DNNL_BACKWARD_WEIGHTS, m, call, hint, &s->backward_weights);
    dnnl_primitive_desc_destroy(hint);
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

static comet_status conv_prepare(const comet_op_call *call, void **state) {
    const comet_backend_onednn *b = (const comet_backend_onednn *)call->backend;
    conv_state *s = comet_memory_take(b->allocator, sizeof *s);
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->allocator = b->allocator;
    conv_mds m;
    comet_onednn_enter(b);
    dnnl_status_t status = mds_make(&m, call->graph, call->node, call->batch);
    if (status == dnnl_success)
        status = make_passes(b, &m, call, s);
    if (status == dnnl_success && call->accumulate) {
        s->weight_bytes = (dnnl_memory_desc_get_size(comet_dnnl_md_read(&m.w)) + 63) / 64 * 64;
        s->bias_bytes = m.has_bias ? dnnl_memory_desc_get_size(comet_dnnl_md_read(&m.b)) : 0;
    }
    mds_destroy(&m);
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
    char *scratch = call->scratch;
    float *dw = call->accumulate ? (float *)scratch : w->gradient;
    float *db = !bias ? NULL : call->accumulate ? (float *)(scratch + s->weight_bytes) : bias->gradient;
    if (call->accumulate)
        scratch += (s->weight_bytes + s->bias_bytes + 63) / 64 * 64;
    void *data[] = {(void *)call->x[0], dw, (void *)call->dy, db};
    dnnl_status_t status = comet_pass_run(&s->backward_weights, data, scratch);
    if (status != dnnl_success || !call->accumulate)
        return status;
    b->add(b, w->gradient, w->gradient, dw, w->count);
    if (bias)
        b->add(b, bias->gradient, bias->gradient, db, bias->count);
    return status;
}

static comet_status conv_backward(const comet_op_call *call) {
    const conv_state *s = call->state;
    comet_onednn_enter((const comet_backend_onednn *)call->backend);
    dnnl_status_t status = backward_weights(call, s);
    if (status == dnnl_success && call->dx[0]) {
        void *data[] = {call->dx[0], value_of(call, COMET_PARAMETER_WEIGHT), (void *)call->dy};
        status = comet_pass_run(&s->backward_data, data, call->scratch);
    }
    return comet_onednn_status(status);
}

const comet_op_kernel comet_onednn_conv = {conv_prepare, conv_forget, conv_scratch, conv_forward, conv_backward};

int comet_onednn_conv_supports(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch,
                               int training) {
    const comet_backend_onednn *b = (const comet_backend_onednn *)backend;
    conv_mds m;
    dnnl_primitive_desc_t pd[3] = {NULL, NULL, NULL};
    comet_onednn_enter(b);
    dnnl_status_t status = mds_make(&m, g, node, batch);
    for (int pass = 0; status == dnnl_success && pass < (training ? 3 : 1); pass++)
        status = choose_pd(b, (comet_dnnl_pass)pass, &m, &node->as.conv, training, pass ? pd[0] : NULL, &pd[pass]);
    for (int pass = 0; pass < 3; pass++)
        if (pd[pass])
            dnnl_primitive_desc_destroy(pd[pass]);
    mds_destroy(&m);
    return status == dnnl_success;
}
