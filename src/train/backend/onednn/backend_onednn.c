/* SPDX-License-Identifier: Apache-2.0 */
/* The backend's table, its engine and its threads. */
#include <string.h>
#ifdef COMET_OPENMP
#include <omp.h>
#endif

#include "base/fp_environment.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "train/backend/cpu/kernels.h"
#include "train/backend/onednn/onednn.h"

comet_status comet_onednn_status(dnnl_status_t status) {
    switch (status) {
    case dnnl_success:
        return COMET_OK;
    case dnnl_out_of_memory:
        return COMET_ERROR_MEMORY;
    case dnnl_unimplemented:
        return COMET_ERROR_UNSUPPORTED;
    default:
        return COMET_ERROR_ARGUMENT;
    }
}

#ifdef COMET_OPENMP
void comet_onednn_enter(const comet_backend_onednn *backend) {
    omp_set_num_threads((int)backend->count);
}

/*
 * Our own loops run on the threads that oneDNN uses: its idle ones spin for a while, and others would have to share the
 * cores with them.
 */
static void team(void *team_context, unsigned count, void (*run)(void *context, unsigned worker), void *context) {
    (void)team_context;
#pragma omp parallel num_threads((int)count)
    {
        fenv_t own;
        comet_fp_enter(&own);
        for (unsigned i = (unsigned)omp_get_thread_num(); i < count; i += (unsigned)omp_get_num_threads())
            run(context, i);
        comet_fp_leave(&own);
    }
}

static comet_status make_threads(comet_backend_onednn *b, unsigned threads) {
    return comet_threads_borrow(threads, team, NULL, b->allocator, &b->base.threads);
}
#else
void comet_onednn_enter(const comet_backend_onednn *backend) {
    (void)backend;
}

static comet_status make_threads(comet_backend_onednn *b, unsigned threads) {
    return comet_threads_new(threads, b->allocator, &b->base.threads);
}
#endif

static int supports(comet_backend *backend, const comet_graph *g, const comet_node *node, int batch, int training) {
    if (!backend->kernels[node->kind])
        return 0;
    return node->kind != COMET_OP_CONV || comet_onednn_conv_supports(backend, g, node, batch, training);
}

static void backend_free(comet_backend *backend) {
    comet_backend_onednn *b = (comet_backend_onednn *)backend;
    const comet_allocator *allocator = b->allocator;
    if (b->attr)
        dnnl_primitive_attr_destroy(b->attr);
    if (b->stream)
        dnnl_stream_destroy(b->stream);
    if (b->engine)
        dnnl_engine_destroy(b->engine);
    comet_threads_free(b->base.threads);
    comet_memory_give(allocator, b, sizeof *b);
}

static dnnl_status_t make_engine(comet_backend_onednn *b) {
    dnnl_status_t status = dnnl_engine_create(&b->engine, dnnl_cpu, 0);
    if (status == dnnl_success)
        status = dnnl_stream_create(&b->stream, b->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_create(&b->attr);
    return status == dnnl_success ? dnnl_primitive_attr_set_scratchpad_mode(b->attr, dnnl_scratchpad_mode_user)
                                  : status;
}

comet_status comet_backend_onednn_new(unsigned threads, const comet_allocator *allocator, comet_backend **backend) {
    if (!backend)
        return COMET_ERROR_ARGUMENT;
    if (dnnl_version()->major != DNNL_VERSION_MAJOR)
        return COMET_ERROR_UNSUPPORTED;
    comet_backend_onednn *b = comet_memory_take(allocator, sizeof *b);
    if (!b)
        return COMET_ERROR_MEMORY;
    memset(b, 0, sizeof *b);
    b->allocator = comet_memory_hold(&b->allocator_copy, allocator);
    b->base = (comet_backend){.name = "onednn",
                              .supports = supports,
                              .library_bytes = comet_onednn_library_bytes,
                              .trim = comet_onednn_trim,
                              .free = backend_free};
    comet_cpu_fill(&b->base);
    b->base.kernels[COMET_OP_CONV] = &comet_onednn_conv;
    b->base.kernels[COMET_OP_LINEAR] = &comet_onednn_linear;
    comet_status status = make_threads(b, threads);
    if (status == COMET_OK) {
        b->count = comet_threads_count(b->base.threads);
        b->base.library_once = comet_onednn_library_once(b->count);
        comet_host_space_init(&b->space, b->base.threads, b->allocator);
        b->base.space = &b->space.base;
        comet_onednn_enter(b);
        status = comet_onednn_status(make_engine(b));
    }
    if (status != COMET_OK) {
        backend_free(&b->base);
        return status;
    }
    *backend = &b->base;
    return COMET_OK;
}
