/* SPDX-License-Identifier: Apache-2.0 */
/* The update of all parameters: a table of them on the device, and each step's rules beside it. */
#include "train/backend/cuda/kernels/update.h"
#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"

static comet_backend_cuda *backend_of(const comet_update_call *call) {
    return (comet_backend_cuda *)call->backend;
}

/* ---- the table ---- */

static int64_t chunks_of(const comet_parameter *p) {
    return (p->count + COMET_CUDA_UPDATE_CHUNK - 1) / COMET_CUDA_UPDATE_CHUNK;
}

/* Of FNV's kind: of all that the table is made of. */
static uint64_t hash_with(uint64_t hash, uint64_t word) {
    for (int i = 0; i < 64; i += 8)
        hash = (hash ^ (word >> i & 0xff)) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_of(const comet_update_call *call, const void *weights) {
    uint64_t hash = hash_with(0xcbf29ce484222325u, (uintptr_t)call->state);
    hash = hash_with(hash, (uintptr_t)weights);
    hash = hash_with(hash, (uint64_t)comet_optimiser_arrays(call->optimiser));
    for (int i = 0; i < call->count; i++) {
        const comet_parameter *p = &call->parameters[i];
        if (!comet_parameter_is_trained(p))
            continue;
        hash = hash_with(hash, (uintptr_t)p->value);
        hash = hash_with(hash, (uintptr_t)p->gradient);
        hash = hash_with(hash, (uint64_t)p->count);
    }
    return hash ? hash : 1;
}

static void count_up(const comet_update_call *call, comet_cuda_update_table *t) {
    t->count = 0;
    t->chunks = 0;
    for (int i = 0; i < call->count; i++)
        if (comet_parameter_is_trained(&call->parameters[i])) {
            t->count++;
            t->chunks += chunks_of(&call->parameters[i]);
        }
}

/* Entries, then the owners of chunks. */
static void describe(const comet_update_call *call, const comet_cuda_update_table *t, comet_cuda_updated *entries) {
    const int arrays = comet_optimiser_arrays(call->optimiser);
    const int64_t total = comet_optimiser_count(call->parameters, call->count);
    const comet_backend_cuda *b = backend_of(call);
    int32_t *owners = (int32_t *)(entries + t->count), chunk = 0, entry = 0;
    int64_t first = 0;
    for (int i = 0; i < call->count; i++) {
        const comet_parameter *p = &call->parameters[i];
        if (!comet_parameter_is_trained(p))
            continue;
        comet_cuda_updated *e = &entries[entry];
        *e = (comet_cuda_updated){.value = p->value,
                                  .gradient = p->gradient,
                                  .count = p->count,
                                  .first_chunk = chunk,
                                  .chunks = (int32_t)chunks_of(p)};
        if (b->base.dtype != COMET_F32 && b->weights)
            e->copy = (void *)comet_cuda_weights(b, p);
        for (int a = 0; a < arrays; a++)
            e->state[a] = call->state + a * total + first;
        for (int32_t k = 0; k < e->chunks; k++)
            owners[chunk++] = entry;
        first += p->count;
        entry++;
    }
}

static comet_status make_table(const comet_update_call *call) {
    comet_backend_cuda *b = backend_of(call);
    comet_cuda_update_table *t = &b->kept.update;
    const uint64_t hash = hash_of(call, b->weights);
    void *host;
    if (t->made_of == hash)
        return COMET_OK;
    t->made_of = 0;
    count_up(call, t);
    COMET_REQUIRE(t->chunks <= INT32_MAX, "more parameters than can be updated at once");
    const size_t bytes = (size_t)t->count * sizeof(comet_cuda_updated) + (size_t)t->chunks * sizeof(int32_t);
    COMET_TRY(comet_cuda_upload_begin(&t->entries, bytes, &host));
    describe(call, t, host);
    COMET_TRY(comet_cuda_upload_end(&t->entries, bytes, b->queue));
    t->made_of = hash;
    return COMET_OK;
}

/* ---- a step ---- */

static comet_status upload_rules(const comet_update_call *call) {
    comet_backend_cuda *b = backend_of(call);
    const size_t bytes = (size_t)b->kept.update.count * sizeof(comet_optimiser_rule);
    void *host;
    COMET_TRY(comet_cuda_upload_begin(&b->kept.rules, bytes, &host));
    comet_optimiser_rule *next = host;
    for (int i = 0; i < call->count; i++)
        if (comet_parameter_is_trained(&call->parameters[i]))
            *next++ = comet_optimiser_rule_of(call->optimiser, call->step, &call->parameters[i]);
    return comet_cuda_upload_end(&b->kept.rules, bytes, b->queue);
}

static size_t result_bytes(const comet_backend_cuda *b) {
    return (size_t)b->kept.update.count * sizeof(comet_cuda_update_result);
}

comet_status comet_cuda_update_issue(comet_update_call *call) {
    comet_backend_cuda *b = backend_of(call);
    const comet_cuda_update_table *t = &b->kept.update;
    COMET_TRY(make_table(call));
    COMET_TRY(upload_rules(call));
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.partial_sums, (size_t)t->chunks * sizeof(comet_cuda_update_chunk)));
    COMET_TRY(comet_cuda_record_reserve(&b->kept.updated, result_bytes(b)));
    const comet_cuda_updated *entries = t->entries.device.memory;
    const comet_cuda_update_job job = {.parameters = entries,
                                       .rules = b->kept.rules.device.memory,
                                       .owners = (const int32_t *)(entries + t->count),
                                       .count = t->count,
                                       .chunks = t->chunks,
                                       .kind = call->optimiser->kind,
                                       .wants_means = call->means != NULL,
                                       .refused = call->guarded ? b->kept.refused.memory : NULL,
                                       .partial = b->kept.partial_sums.memory,
                                       .results = b->kept.updated.device.memory};
    COMET_TRY(comet_cuda_status(comet_cuda_launch_update(&job, b->base.dtype, b->queue)));
    return t->count ? comet_cuda_record_fetch(&b->kept.updated, result_bytes(b), b->queue) : COMET_OK;
}

comet_status comet_cuda_update_await(comet_update_call *call) {
    const comet_backend_cuda *b = backend_of(call);
    const comet_cuda_update_result *next = b->kept.updated.host;
    COMET_TRY(comet_cuda_status(cudaStreamSynchronize(b->queue)));
    call->broken = -1;
    for (int i = 0; i < call->count; i++) {
        const comet_cuda_update_result *r = comet_parameter_is_trained(&call->parameters[i]) ? next++ : NULL;
        if (call->means)
            call->means[i] = r ? r->mean : 0.0;
        if (r && !r->finite && call->broken < 0)
            call->broken = i;
    }
    return COMET_OK;
}

comet_status comet_cuda_update(comet_update_call *call) {
    COMET_TRY(comet_cuda_update_issue(call));
    return call->guarded ? COMET_OK : comet_cuda_update_await(call);
}
