/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What oneDNN takes for itself. It cannot be asked, and what the system says of it differs a little from run to run,
 * which would make plans differ. So it is a rule, made from measurements of oneDNN 2.6 with AVX-512, where its code is
 * largest; a test compares it with what the system says.
 */
#include "train/backend/onednn/onednn.h"

enum {
    PROCESS = 5 << 20, /* its data, and the code of all kinds of matrix products, which the first of them makes */
    EACH_THREAD = 128 << 10,
    /* a convolution in one direction: its code, descriptions and reorders, and our plans' share */
    EACH_PASS = 34 << 10,
    PASSES = 4,             /* training: forward and two backward; evaluation has its own forward */
    PACKED_DEPTH = 384,     /* a product packs its factors in blocks of at most so many columns, */
    PACKED_ROWS = 9984,     /* each thread so many rows of the larger one, */
    PACKED_OTHER_ROWS = 384 /* and so many of the other */
};

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

static size_t packed(size_t rows, size_t other_rows, size_t depth, size_t threads) {
    return least(depth, PACKED_DEPTH) * sizeof(float) *
           (least(rows, threads * PACKED_ROWS) + threads * least(other_rows, PACKED_OTHER_ROWS));
}

/* The largest of a linear layer's three products. */
static size_t linear_bytes(const comet_graph *g, const comet_node *node, size_t batch, size_t threads) {
    const size_t in = (size_t)comet_value_shape(g, node->input[0])->channels,
                 out = (size_t)comet_value_shape(g, node->output)->channels;
    const size_t each[] = {packed(out, batch, in, threads), packed(in, out, batch, threads),
                           packed(in, batch, out, threads)};
    size_t most = 0;
    for (size_t i = 0; i < sizeof each / sizeof *each; i++)
        most = each[i] > most ? each[i] : most;
    return most;
}

size_t comet_onednn_library_once(unsigned threads) {
    return PROCESS + (size_t)threads * EACH_THREAD;
}

size_t comet_onednn_library_bytes(const comet_backend *backend, const comet_graph *g, int batch) {
    const unsigned threads = ((const comet_backend_onednn *)backend)->count;
    size_t passes = 0, product = 0;
    for (int i = 0; i < g->node_count; i++) {
        const comet_node *node = &g->nodes[i];
        passes += node->kind == COMET_OP_CONV ? PASSES : 0;
        const size_t own = node->kind == COMET_OP_LINEAR ? linear_bytes(g, node, (size_t)batch, threads) : 0;
        product = own > product ? own : product;
    }
    return comet_onednn_library_once(threads) + passes * EACH_PASS + product;
}

/* Primitives that are in use stay; the others are in its cache alone. */
void comet_onednn_trim(comet_backend *backend) {
    int capacity = 0;
    (void)backend;
    if (dnnl_get_primitive_cache_capacity(&capacity) != dnnl_success)
        return;
    (void)dnnl_set_primitive_cache_capacity(0);
    (void)dnnl_set_primitive_cache_capacity(capacity);
}
