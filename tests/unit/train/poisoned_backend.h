/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oneDNN's backend with memory that nobody else can look into: it is mapped without access, and opened only while one
 * of the backend's own calls runs. Whoever reads an activation, a weight or a gradient by himself ends with a signal.
 * What a holder tells its watchers is told with the memory closed.
 */
#ifndef TESTS_POISONED_BACKEND_H
#define TESTS_POISONED_BACKEND_H

#include "support/assert_ok.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/pages.h"
#include "train/backend/backend.h"

enum { POISONED_MOST = 64 };

typedef struct poisoned_block {
    void *memory;
    size_t bytes;
} poisoned_block;

/* One at a time: a test's process has no other. */
static struct {
    comet_backend backend;
    comet_space space;
    comet_backend *inner;
    comet_op_kernel kernels[COMET_OP_KINDS];
    comet_backend_statistics statistics;
    comet_backend_errors errors;
    poisoned_block blocks[POISONED_MOST];
    int depth; /* of calls under way */
    int64_t calls;
} poisoned;

/* ---- memory ---- */

static inline void poisoned_protect(int access) {
    for (int i = 0; i < POISONED_MOST; i++)
        if (poisoned.blocks[i].memory)
            assert_int_equal(mprotect(poisoned.blocks[i].memory, poisoned.blocks[i].bytes, access), 0);
}

static inline void poisoned_open(void) {
    poisoned.calls++;
    if (poisoned.depth++ == 0)
        poisoned_protect(PROT_READ | PROT_WRITE);
}

static inline comet_status poisoned_close(comet_status status) {
    if (--poisoned.depth == 0)
        poisoned_protect(PROT_NONE);
    return status;
}

static inline comet_status poisoned_take(comet_space *space, size_t bytes, void **memory) {
    (void)space;
    const size_t rounded = comet_pages_round(bytes + 1);
    void *block =
        mmap(NULL, rounded, poisoned.depth ? PROT_READ | PROT_WRITE : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < POISONED_MOST && block != MAP_FAILED; i++)
        if (!poisoned.blocks[i].memory) {
            poisoned.blocks[i] = (poisoned_block){block, rounded};
            *memory = block;
            return COMET_OK;
        }
    return COMET_ERROR_MEMORY;
}

static inline void poisoned_give(comet_space *space, void *memory, size_t bytes) {
    (void)space;
    for (int i = 0; i < POISONED_MOST && memory; i++)
        if (poisoned.blocks[i].memory == memory) {
            assert_int_equal(poisoned.blocks[i].bytes, comet_pages_round(bytes + 1));
            munmap(memory, poisoned.blocks[i].bytes);
            poisoned.blocks[i].memory = NULL;
        }
}

static inline comet_space *poisoned_inner_space(void) {
    return poisoned.inner->space;
}

static inline comet_status poisoned_write(comet_space *space, void *memory, const void *host, size_t bytes) {
    (void)space;
    poisoned_open();
    return poisoned_close(poisoned_inner_space()->write(poisoned_inner_space(), memory, host, bytes));
}

static inline comet_status poisoned_read(comet_space *space, void *host, const void *memory, size_t bytes) {
    (void)space;
    poisoned_open();
    return poisoned_close(poisoned_inner_space()->read(poisoned_inner_space(), host, memory, bytes));
}

static inline comet_status poisoned_copy(comet_space *space, void *to, const void *from, size_t bytes) {
    (void)space;
    poisoned_open();
    return poisoned_close(poisoned_inner_space()->copy(poisoned_inner_space(), to, from, bytes));
}

static inline comet_status poisoned_fill(comet_space *space, float *values, int64_t count, float value) {
    (void)space;
    poisoned_open();
    return poisoned_close(poisoned_inner_space()->fill(poisoned_inner_space(), values, count, value));
}

static inline comet_status poisoned_find(comet_space *space, const comet_span *spans, int count, int *first) {
    (void)space;
    poisoned_open();
    return poisoned_close(poisoned_inner_space()->find_nonfinite(poisoned_inner_space(), spans, count, first));
}

/* ---- kernels: the inner backend is not to know of the outer one ---- */

static inline comet_op_call poisoned_call(const comet_op_call *call) {
    comet_op_call inner = *call;
    inner.backend = poisoned.inner;
    return inner;
}

static inline const comet_op_kernel *poisoned_kernel(const comet_op_call *call) {
    return poisoned.inner->kernels[call->node->kind];
}

static inline comet_status poisoned_prepare(const comet_op_call *call, void **state) {
    const comet_op_call inner = poisoned_call(call);
    return poisoned_kernel(call)->prepare(&inner, state); /* when there are no values yet */
}

static inline size_t poisoned_scratch(const comet_op_call *call, int backward) {
    const comet_op_call inner = poisoned_call(call);
    return poisoned_kernel(call)->scratch(&inner, backward);
}

static inline comet_status poisoned_forward(const comet_op_call *call) {
    const comet_op_call inner = poisoned_call(call);
    poisoned_open();
    return poisoned_close(poisoned_kernel(call)->forward(&inner));
}

static inline comet_status poisoned_forward_again(const comet_op_call *call) {
    const comet_op_call inner = poisoned_call(call);
    poisoned_open();
    return poisoned_close(poisoned_kernel(call)->forward_again(&inner));
}

static inline comet_status poisoned_backward(const comet_op_call *call) {
    const comet_op_call inner = poisoned_call(call);
    poisoned_open();
    return poisoned_close(poisoned_kernel(call)->backward(&inner));
}

static inline void poisoned_wrap_kernels(void) {
    for (int k = 0; k < COMET_OP_KINDS; k++) {
        const comet_op_kernel *inner = poisoned.inner->kernels[k];
        if (!inner)
            continue;
        poisoned.kernels[k] = (comet_op_kernel){.prepare = inner->prepare ? poisoned_prepare : NULL,
                                                .forget = inner->forget,
                                                .scratch = inner->scratch ? poisoned_scratch : NULL,
                                                .forward = inner->forward ? poisoned_forward : NULL,
                                                .forward_again = inner->forward_again ? poisoned_forward_again : NULL,
                                                .backward = inner->backward ? poisoned_backward : NULL};
        poisoned.backend.kernels[k] = &poisoned.kernels[k];
    }
}

/* ---- the rest of the table ---- */

static inline int poisoned_supports(comet_backend *b, const comet_graph *g, const comet_node *node, int batch,
                                    int training) {
    (void)b;
    return poisoned.inner->supports(poisoned.inner, g, node, batch, training);
}

static inline comet_status poisoned_images(const comet_images_call *call) {
    comet_images_call inner = *call;
    inner.backend = poisoned.inner;
    poisoned_open();
    return poisoned_close(poisoned.inner->images(&inner));
}

static inline comet_status poisoned_loss(comet_loss_call *call) {
    call->backend = poisoned.inner;
    poisoned_open();
    return poisoned_close(poisoned.inner->loss(call));
}

static inline comet_status poisoned_update(comet_update_call *call) {
    call->backend = poisoned.inner;
    poisoned_open();
    return poisoned_close(poisoned.inner->update(call));
}

static inline comet_status poisoned_add(comet_backend *b, void *sum, const void *x, const void *y, int64_t count) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->add(poisoned.inner, sum, x, y, count));
}

static inline size_t poisoned_library_bytes(const comet_backend *b, const comet_graph *g, int batch) {
    (void)b;
    return poisoned.inner->library_bytes(poisoned.inner, g, batch);
}

static inline void poisoned_free(comet_backend *b) {
    (void)b;
    comet_backend_free(poisoned.inner);
    for (int i = 0; i < POISONED_MOST; i++) /* all was given back */
        assert_null(poisoned.blocks[i].memory);
}

/* ---- statistics ---- */

static inline comet_status poisoned_see_tensor(comet_backend *b, const comet_tensor_pass *pass,
                                               const comet_stats_exec *exec, comet_stats_tensor *seen) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->see_tensor(poisoned.inner, pass, exec, seen));
}

static inline comet_status poisoned_see_layer(comet_backend *b, const comet_layer_pass *pass,
                                              const comet_stats_exec *exec, comet_stats_layer *seen) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->see_layer(poisoned.inner, pass, exec, seen));
}

static inline comet_status poisoned_see_norm(comet_backend *b, const comet_norm_pass *pass,
                                             const comet_stats_exec *exec, comet_stats_norm *seen) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->see_norm(poisoned.inner, pass, exec, seen));
}

static inline comet_status poisoned_see_silu(comet_backend *b, const comet_silu_pass *pass,
                                             const comet_stats_exec *exec, comet_stats_silu *seen) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->see_silu(poisoned.inner, pass, exec, seen));
}

static inline comet_status poisoned_see_scale(comet_backend *b, const comet_scale_pass *pass,
                                              const comet_stats_exec *exec, comet_stats_scale *seen) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->see_scale(poisoned.inner, pass, exec, seen));
}

static inline comet_status poisoned_squares(comet_backend *b, const comet_span *spans, int count, double *sums) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->statistics->squares(poisoned.inner, spans, count, sums));
}

/* ---- measured errors ---- */

static inline size_t poisoned_errors_workspace(comet_backend *b, int64_t pixels, int width) {
    (void)b;
    return poisoned.inner->errors->workspace(poisoned.inner, pixels, width);
}

static inline comet_status poisoned_keep(comet_backend *b, const comet_tensor *values, const comet_codec_grid *grid,
                                         int first, int width, float *kept) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->errors->keep(poisoned.inner, values, grid, first, width, kept));
}

static inline comet_status poisoned_layer_errors(comet_backend *b, const comet_errors_layer *layer, double *sums) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->errors->layer(poisoned.inner, layer, sums));
}

static inline comet_status poisoned_norm_errors(comet_backend *b, const comet_errors_norm *norm, double *scale) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->errors->norm(poisoned.inner, norm, scale));
}

static inline comet_status poisoned_silu_errors(comet_backend *b, const comet_errors_silu *silu) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->errors->silu(poisoned.inner, silu));
}

static inline comet_status poisoned_scale_errors(comet_backend *b, const comet_errors_scale *scale) {
    (void)b;
    poisoned_open();
    return poisoned_close(poisoned.inner->errors->scale(poisoned.inner, scale));
}

/* ---- the holder ---- */

typedef struct poisoned_holder {
    comet_holder base;
    comet_holder *inner;
    comet_holder_watch watch;
    int depth; /* of the call that a watcher is told from */
} poisoned_holder;

/* A watcher is outside of the backend. */
static inline comet_holder *poisoned_leave(poisoned_holder *h) {
    h->depth = poisoned.depth;
    poisoned.depth = 0;
    poisoned_protect(PROT_NONE);
    return &h->base;
}

static inline comet_status poisoned_return(poisoned_holder *h, comet_status status) {
    poisoned.depth = h->depth;
    poisoned_protect(PROT_READ | PROT_WRITE);
    return status;
}

static inline comet_status poisoned_tell_held(void *context, const comet_held_part *part) {
    poisoned_holder *h = context;
    comet_held_part outer = *part;
    if (!h->base.watch->held)
        return COMET_OK;
    outer.holder = poisoned_leave(h);
    return poisoned_return(h, h->base.watch->held(h->base.watch->context, &outer));
}

static inline comet_status poisoned_tell_loaded(void *context, int slot, int part, void *values) {
    poisoned_holder *h = context;
    if (!h->base.watch->loaded)
        return COMET_OK;
    poisoned_leave(h);
    return poisoned_return(h, h->base.watch->loaded(h->base.watch->context, slot, part, values));
}

static inline comet_holder *poisoned_inside(comet_holder *base) {
    poisoned_holder *h = (poisoned_holder *)base;
    h->watch = (comet_holder_watch){poisoned_tell_held, poisoned_tell_loaded, h};
    h->inner->watch = base->watch ? &h->watch : NULL;
    poisoned_open();
    return h->inner;
}

static inline comet_status poisoned_hold(comet_holder *base, const comet_held *held, const void *values) {
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->hold(inner, held, values));
}

static inline comet_status poisoned_hold_output(comet_holder *base, const comet_held *held, const comet_op_call *call) {
    const comet_op_call given = poisoned_call(call);
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->hold_output(inner, held, &given));
}

static inline comet_status poisoned_hold_norm(comet_holder *base, const comet_held *held, const comet_held *output,
                                              const comet_op_call *call) {
    const comet_op_call given = poisoned_call(call);
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->hold_norm(inner, held, output, &given));
}

static inline comet_status poisoned_load(comet_holder *base, const comet_held *held, void *values) {
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->load(inner, held, values));
}

static inline comet_status poisoned_load_rebuilt(comet_holder *base, const comet_held *held, const comet_op_call *call,
                                                 comet_rebuild what, void *values) {
    const comet_op_call given = poisoned_call(call);
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->load_rebuilt(inner, held, &given, what, values));
}

static inline comet_status poisoned_norm_backward(comet_holder *base, const comet_held *held, const comet_held *output,
                                                  const comet_op_call *call, int by_parts) {
    const comet_op_call given = poisoned_call(call);
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->norm_backward(inner, held, output, &given, by_parts));
}

static inline comet_status poisoned_load_part(comet_holder *base, const comet_held *held, int part, void *values) {
    comet_holder *inner = poisoned_inside(base);
    return poisoned_close(inner->load_part(inner, held, part, values));
}

static inline void poisoned_release(comet_holder *base, int slot) {
    comet_holder *inner = poisoned_inside(base);
    inner->release(inner, slot);
    (void)poisoned_close(COMET_OK);
}

static inline int poisoned_report(comet_holder *base, int slot, comet_held_report *report) {
    comet_holder *inner = ((poisoned_holder *)base)->inner;
    return inner->report(inner, slot, report);
}

static inline comet_holder_stats poisoned_stats(comet_holder *base) {
    comet_holder *inner = ((poisoned_holder *)base)->inner;
    return inner->stats(inner);
}

static inline void poisoned_holder_free(comet_holder *base) {
    comet_holder_free(((poisoned_holder *)base)->inner);
    free(base);
}

static inline comet_status poisoned_holder_new(comet_backend *b, const comet_holder_options *o, comet_holder **made) {
    poisoned_holder *h = calloc(1, sizeof *h);
    h->base = (comet_holder){.backend = b,
                             .hold = poisoned_hold,
                             .hold_output = poisoned_hold_output,
                             .hold_norm = poisoned_hold_norm,
                             .load = poisoned_load,
                             .load_rebuilt = poisoned_load_rebuilt,
                             .norm_backward = poisoned_norm_backward,
                             .load_part = poisoned_load_part,
                             .release = poisoned_release,
                             .report = poisoned_report,
                             .stats = poisoned_stats,
                             .free = poisoned_holder_free};
    *made = &h->base;
    return poisoned.inner->holder_new(poisoned.inner, o, &h->inner);
}

/* ---- making one: for comet_trainer_options.backend ---- */

static inline comet_status poisoned_backend_new(unsigned threads, const comet_allocator *allocator,
                                                comet_backend **backend) {
    comet_status status = comet_backend_onednn_new(threads, allocator, &poisoned.inner);
    if (status != COMET_OK)
        return status;
    poisoned.space = (comet_space){.take = poisoned_take,
                                   .give = poisoned_give,
                                   .write = poisoned_write,
                                   .read = poisoned_read,
                                   .copy = poisoned_copy,
                                   .fill = poisoned_fill,
                                   .find_nonfinite = poisoned_find};
    poisoned.errors = (comet_backend_errors){.workspace = poisoned_errors_workspace,
                                             .keep = poisoned_keep,
                                             .layer = poisoned_layer_errors,
                                             .norm = poisoned_norm_errors,
                                             .silu = poisoned_silu_errors,
                                             .scale = poisoned_scale_errors};
    poisoned.statistics = (comet_backend_statistics){.see_tensor = poisoned_see_tensor,
                                                     .see_layer = poisoned_see_layer,
                                                     .see_norm = poisoned_see_norm,
                                                     .see_silu = poisoned_see_silu,
                                                     .see_scale = poisoned_see_scale,
                                                     .squares = poisoned_squares};
    poisoned.backend = (comet_backend){.name = "poisoned",
                                       .threads = poisoned.inner->threads,
                                       .dtype = poisoned.inner->dtype,
                                       .measure = poisoned.inner->measure,
                                       .space = &poisoned.space,
                                       .statistics = &poisoned.statistics,
                                       .errors = &poisoned.errors,
                                       .supports = poisoned_supports,
                                       .images = poisoned_images,
                                       .loss = poisoned_loss,
                                       .update = poisoned_update,
                                       .add = poisoned_add,
                                       .holder_new = poisoned_holder_new,
                                       .library_bytes = poisoned_library_bytes,
                                       .free = poisoned_free};
    poisoned_wrap_kernels();
    *backend = &poisoned.backend;
    return COMET_OK;
}

#endif
