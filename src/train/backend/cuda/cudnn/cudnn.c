/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cudnn/cudnn.h"

#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/cudnn/cudnn_impl.h"

/* ---- the library and a handle ---- */

comet_status comet_cudnn_new(const comet_backend_cuda *backend, comet_cudnn **cudnn, comet_message *message) {
    const comet_backend_cuda_options *options = &backend->options;
    comet_cudnn *c = comet_memory_take(backend->allocator, sizeof *c);
    if (!c)
        return comet_message_memory(message);
    memset(c, 0, sizeof *c);
    c->allocator = comet_memory_hold(&c->allocator_copy, backend->allocator);
    c->queue = backend->queue;
    c->exact = options->exact_products != 0;
    c->deterministic = options->deterministic != 0;
    c->workspace_bytes = options->workspace_bytes;
    comet_status status = comet_cudnn_library_open(options->loader, &c->library, message);
    if (status == COMET_OK) {
        const comet_cudnn_functions *call = &c->library.call;
        status = comet_cudnn_status(call, "a handle", call->create(&c->handle));
        if (status == COMET_OK)
            status = comet_cudnn_status(call, "its stream", call->set_stream(c->handle, c->queue));
        if (status != COMET_OK)
            comet_message_set(message, status, "%s", comet_last_error());
    }
    if (status != COMET_OK) {
        comet_cudnn_free(c);
        return status;
    }
    *cudnn = c;
    return COMET_OK;
}

static void entry_free(comet_cudnn *c, comet_cudnn_entry *e) {
    comet_cudnn_plan_clear(&c->library.call, &e->plan);
    comet_cudnn_clear(&e->config);
    comet_cudnn_clear(&e->graph);
    comet_memory_give(c->allocator, e, sizeof *e);
}

void comet_cudnn_free(comet_cudnn *cudnn) {
    if (!cudnn)
        return;
    const comet_allocator *allocator = cudnn->allocator;
    for (size_t i = 0; i < cudnn->entry_count; i++)
        entry_free(cudnn, cudnn->entries[i]);
    comet_memory_give(allocator, cudnn->entries, cudnn->entry_room * sizeof *cudnn->entries);
    comet_memory_give(allocator, cudnn->known, cudnn->known_room * sizeof *cudnn->known);
    if (cudnn->handle)
        cudnn->library.call.destroy(cudnn->handle);
    comet_cudnn_library_close(&cudnn->library);
    comet_memory_give(allocator, cudnn, sizeof *cudnn);
}

size_t comet_cudnn_version(const comet_cudnn *cudnn) {
    return cudnn->library.version;
}

int comet_cudnn_timed(const comet_cudnn *cudnn) {
    return cudnn->timed;
}

int comet_cudnn_planned(const comet_cudnn *cudnn) {
    return (int)cudnn->entry_count;
}

/* ---- plans ---- */

comet_cudnn_key comet_cudnn_key_of(const comet_cudnn *cudnn, const comet_cudnn_conv *conv) {
    const size_t kib = cudnn->workspace_bytes >> 10;
    return (comet_cudnn_key){.conv = *conv,
                             .exact = cudnn->exact,
                             .deterministic = cudnn->deterministic,
                             .workspace_kib = kib > INT32_MAX ? INT32_MAX : (int32_t)kib};
}

/* Engines on tensor cores round fp32 to TF32; 16-bit values they take as they are. */
static comet_cudnn_limits limits_of(const comet_cudnn *c, const comet_cudnn_conv *conv) {
    const uint32_t rounded = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                             1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION;
    return (comet_cudnn_limits){.refused = (c->exact && conv->dtype == COMET_F32 ? rounded : 0) |
                                           (c->deterministic ? 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC : 0),
                                .workspace = c->workspace_bytes};
}

/* The fastest of several; the others are cleared. */
static comet_status choose(comet_cudnn *c, comet_cudnn_entry *e, cudnnBackendDescriptor_t graph,
                           const comet_cudnn_limits *limits) {
    enum { MOST_PLANS = 6, MOST_COMPILED = 2 };
    comet_cudnn_plan plans[MOST_PLANS];
    comet_cudnn_plan_list list = {.plans = plans, .most = MOST_PLANS, .most_compiled = MOST_COMPILED};
    int fastest = 0;
    comet_cudnn_plans_find(&c->library.call, c->handle, graph, limits, &list);
    if (list.count == 0)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s", *list.reason ? list.reason : "cuDNN: no engine");
    comet_status status = list.count > 1 ? comet_cudnn_time(c, &e->key.conv, plans, list.count, &fastest) : COMET_OK;
    if (status == COMET_ERROR_MEMORY) {
        fastest = 0;
        status = COMET_OK;
    }
    for (int i = 0; i < list.count; i++)
        if (status == COMET_OK && i == fastest)
            e->plan = plans[i];
        else
            comet_cudnn_plan_clear(&c->library.call, &plans[i]);
    return comet_end(status);
}

static comet_status entry_make(comet_cudnn *c, comet_cudnn_entry *e) {
    const comet_cudnn_limits limits = limits_of(c, &e->key.conv);
    const comet_cudnn_known *known = comet_cudnn_known_find(c, &e->key);
    comet_cudnn_begin(&e->graph, &c->library.call);
    comet_cudnn_begin(&e->config, &c->library.call);
    cudnnBackendDescriptor_t graph = comet_cudnn_conv_graph(&e->graph, c->handle, &e->key.conv);
    COMET_TRY(comet_cudnn_report(&e->graph));
    if (known && comet_cudnn_plan_again(&e->config, c->handle, graph, &limits, &known->choice, &e->plan))
        return COMET_OK;
    comet_cudnn_clear(&e->config);
    return choose(c, e, graph, &limits);
}

static const comet_cudnn_entry *entry_find(const comet_cudnn *c, const comet_cudnn_key *key) {
    for (size_t i = 0; i < c->entry_count; i++)
        if (memcmp(&c->entries[i]->key, key, sizeof *key) == 0)
            return c->entries[i];
    return NULL;
}

comet_status comet_cudnn_plan_for(comet_cudnn *cudnn, const comet_cudnn_conv *conv, const comet_cudnn_plan **plan) {
    const comet_cudnn_key key = comet_cudnn_key_of(cudnn, conv);
    const comet_cudnn_entry *found = entry_find(cudnn, &key);
    if (found) {
        *plan = &found->plan;
        return COMET_OK;
    }
    comet_cudnn_entry **entries =
        comet_array_reserve(cudnn->allocator, cudnn->entries, cudnn->entry_count, cudnn->entry_count + 1,
                            &cudnn->entry_room, sizeof *cudnn->entries);
    if (!entries)
        return COMET_ERROR_MEMORY;
    cudnn->entries = entries;
    comet_cudnn_entry *e = comet_memory_take(cudnn->allocator, sizeof *e);
    if (!e)
        return COMET_ERROR_MEMORY;
    *e = (comet_cudnn_entry){.key = key};
    comet_status status = entry_make(cudnn, e);
    if (status != COMET_OK) {
        entry_free(cudnn, e);
        return status;
    }
    entries[cudnn->entry_count++] = e;
    *plan = &e->plan;
    return COMET_OK;
}

/* ---- running ---- */

static comet_status make_pack(comet_cudnn *c, void *const addresses[COMET_CUDNN_TENSORS + 1],
                              cudnnBackendDescriptor_t *pack) {
    int64_t names[COMET_CUDNN_TENSORS];
    comet_cudnn_descriptors d;
    for (int i = 0; i < COMET_CUDNN_TENSORS; i++)
        names[i] = comet_cudnn_tensor_name(i);
    comet_cudnn_begin(&d, &c->library.call);
    cudnnBackendDescriptor_t p = comet_cudnn_make(&d, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    comet_cudnn_set(&d, p, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, COMET_CUDNN_TENSORS, names);
    comet_cudnn_set(&d, p, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, COMET_CUDNN_TENSORS, addresses);
    comet_cudnn_set(&d, p, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, addresses + COMET_CUDNN_TENSORS);
    comet_cudnn_finish(&d, "addresses", p);
    if (comet_cudnn_is_fine(&d))
        *pack = p;
    else
        comet_cudnn_clear(&d);
    return comet_cudnn_report(&d);
}

comet_status comet_cudnn_execute(comet_cudnn *cudnn, const comet_cudnn_plan *plan, comet_cudnn_run *run,
                                 void *const tensors[COMET_CUDNN_TENSORS], void *workspace) {
    const comet_cudnn_functions *call = &cudnn->library.call;
    void *addresses[COMET_CUDNN_TENSORS + 1];
    int at = 0;
    memcpy(addresses, tensors, COMET_CUDNN_TENSORS * sizeof *tensors);
    addresses[COMET_CUDNN_TENSORS] = workspace;
    while (at < COMET_CUDNN_PACKS &&
           (!run->packs[at].pack || memcmp(run->packs[at].addresses, addresses, sizeof addresses) != 0))
        at++;
    if (at == COMET_CUDNN_PACKS) {
        at = run->next;
        run->next = (run->next + 1) % COMET_CUDNN_PACKS;
        if (run->packs[at].pack)
            call->unmake(run->packs[at].pack);
        run->packs[at].pack = NULL;
        memcpy(run->packs[at].addresses, addresses, sizeof addresses);
        COMET_TRY(make_pack(cudnn, addresses, &run->packs[at].pack));
    }
    return comet_cudnn_status(call, "a run", call->execute(cudnn->handle, plan->descriptor, run->packs[at].pack));
}

void comet_cudnn_run_clear(comet_cudnn *cudnn, comet_cudnn_run *run) {
    for (int i = 0; i < COMET_CUDNN_PACKS; i++)
        if (run->packs[i].pack)
            cudnn->library.call.unmake(run->packs[i].pack);
    *run = (comet_cudnn_run){.next = 0};
}
