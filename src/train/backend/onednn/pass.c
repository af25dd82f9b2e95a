/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/onednn/pass.h"

#include <string.h>

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        dnnl_status_t try_status = (call);                                                                             \
        if (try_status != dnnl_success)                                                                                \
            return try_status;                                                                                         \
    } while (0)

static size_t rounded(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static dnnl_status_t take_scratch(comet_pass *pass, comet_dnnl_md md, dnnl_memory_t *memory, size_t *offset) {
    *offset = pass->scratch_bytes;
    pass->scratch_bytes += rounded(dnnl_memory_desc_get_size(md));
    return dnnl_memory_create(memory, md, pass->engine, DNNL_MEMORY_NONE);
}

dnnl_status_t comet_pass_make(comet_pass *pass, dnnl_engine_t engine, dnnl_stream_t stream,
                              const_dnnl_primitive_desc_t pd, int pieces) {
    memset(pass, 0, sizeof *pass);
    pass->pieces = pieces;
    pass->engine = engine;
    pass->stream = stream;
    size_t first; /* the scratchpad lies at the start */
    TRY(take_scratch(pass, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), &pass->scratchpad, &first));
    return dnnl_primitive_create(&pass->primitive, pd);
}

static dnnl_status_t make_reorder(comet_pass *pass, comet_pass_tensor *t, comet_dnnl_md user, comet_dnnl_md wanted) {
    dnnl_primitive_desc_t pd;
    comet_dnnl_md from = t->is_output ? wanted : user, to = t->is_output ? user : wanted;
    TRY(dnnl_reorder_primitive_desc_create(&pd, from, pass->engine, to, pass->engine, NULL));
    dnnl_status_t status = dnnl_primitive_create(&t->reorder, pd);
    dnnl_primitive_desc_destroy(pd);
    return status;
}

dnnl_status_t comet_pass_add(comet_pass *pass, int argument, int is_output, int has_samples, comet_dnnl_md user,
                             comet_dnnl_md wanted) {
    comet_pass_tensor *t = &pass->tensors[pass->count++];
    t->argument = argument;
    t->is_output = is_output;
    t->stride = has_samples ? dnnl_memory_desc_get_size(user) : 0;
    TRY(dnnl_memory_create(&t->user, user, pass->engine, DNNL_MEMORY_NONE));
    if (dnnl_memory_desc_equal(user, wanted))
        return dnnl_success;
    TRY(make_reorder(pass, t, user, wanted));
    return take_scratch(pass, wanted, &t->own, &t->offset);
}

void comet_pass_destroy(comet_pass *pass) {
    for (int i = 0; i < pass->count; i++) {
        dnnl_primitive_destroy(pass->tensors[i].reorder);
        dnnl_memory_destroy(pass->tensors[i].own);
        dnnl_memory_destroy(pass->tensors[i].user);
    }
    dnnl_memory_destroy(pass->scratchpad);
    dnnl_primitive_destroy(pass->primitive);
    memset(pass, 0, sizeof *pass);
}

static dnnl_status_t reorder(const comet_pass *pass, const comet_pass_tensor *t) {
    dnnl_exec_arg_t arguments[] = {{DNNL_ARG_FROM, t->is_output ? t->own : t->user},
                                   {DNNL_ARG_TO, t->is_output ? t->user : t->own}};
    return dnnl_primitive_execute(t->reorder, pass->stream, 2, arguments);
}

/* What all pieces share is reordered for the first. */
static dnnl_status_t run_piece(const comet_pass *pass, void *const *data, int piece) {
    dnnl_exec_arg_t arguments[COMET_PASS_TENSORS + 1];
    for (int i = 0; i < pass->count; i++) {
        const comet_pass_tensor *t = &pass->tensors[i];
        TRY(dnnl_memory_set_data_handle(t->user, (char *)data[i] + (size_t)piece * t->stride));
        if (t->own && !t->is_output && (piece == 0 || t->stride > 0))
            TRY(reorder(pass, t));
        arguments[i] = (dnnl_exec_arg_t){t->argument, t->own ? t->own : t->user};
    }
    arguments[pass->count] = (dnnl_exec_arg_t){DNNL_ARG_SCRATCHPAD, pass->scratchpad};
    TRY(dnnl_primitive_execute(pass->primitive, pass->stream, pass->count + 1, arguments));
    for (int i = 0; i < pass->count; i++)
        if (pass->tensors[i].own && pass->tensors[i].is_output)
            TRY(reorder(pass, &pass->tensors[i]));
    return dnnl_success;
}

dnnl_status_t comet_pass_run(const comet_pass *pass, void *const *data, void *scratch) {
    TRY(dnnl_memory_set_data_handle(pass->scratchpad, scratch));
    for (int i = 0; i < pass->count; i++)
        if (pass->tensors[i].own)
            TRY(dnnl_memory_set_data_handle(pass->tensors[i].own, (char *)scratch + pass->tensors[i].offset));
    for (int piece = 0; piece < pass->pieces; piece++)
        TRY(run_piece(pass, data, piece));
    return dnnl_stream_wait(pass->stream);
}
