/* SPDX-License-Identifier: Apache-2.0 */
/* Weights in the type of the activations, and the end of what the backend keeps from call to call. */
#include "base/fail.h"
#include "base/memory.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/base/space.h"
#include "train/backend/cuda/kernels/update.h"

const void *comet_cuda_weights(const comet_backend_cuda *b, const comet_parameter *p) {
    if (b->base.dtype == COMET_F32)
        return p->value;
    return (const char *)b->weights + (size_t)(p->value - b->weights_of) * comet_dtype_size(b->base.dtype);
}

/* For the values of this graph, whose places the copies have. */
static comet_status take_copies(comet_backend_cuda *b, const comet_graph *g) {
    const size_t bytes = g->memory_bytes - g->gradient_bytes;
    const int64_t count = (int64_t)(bytes / sizeof(float));
    if (b->weights && b->weights_of == g->memory && b->weights_count == count)
        return COMET_OK;
    b->weights = NULL;
    COMET_TRY(comet_cuda_buffer_reserve(&b->kept.weights, (size_t)count * comet_dtype_size(b->base.dtype)));
    b->weights = b->kept.weights.memory;
    b->weights_of = g->memory;
    b->weights_count = count;
    b->weights_stale = 1;
    comet_cuda_space_watch(b->space, g->memory, bytes);
    return COMET_OK;
}

/* Running statistics behind the weights are turned, too, and nobody asks for them. */
comet_status comet_cuda_weights_begin(comet_backend_cuda *b, const comet_graph *g) {
    if (b->base.dtype == COMET_F32)
        return COMET_OK;
    COMET_TRY(take_copies(b, g));
    if (!b->weights_stale)
        return COMET_OK;
    COMET_TRY(comet_cuda_status(
        comet_cuda_launch_narrow(b->weights_of, b->weights_count, b->weights, b->base.dtype, b->queue)));
    b->weights_stale = 0;
    return COMET_OK;
}

void comet_cuda_parts_free(comet_backend_cuda *b) {
    comet_cuda_kept *k = &b->kept;
    comet_cuda_upload *const uploads[] = {&k->labels, &k->rules, &k->words, &k->squared, &k->update.entries};
    comet_cuda_record *const records[] = {&k->loss, &k->updated, &k->norm_parts};
    comet_cuda_buffer *const buffers[] = {&k->samples,       &k->partial_sums, &k->weights, &k->statistics_workspace,
                                          &k->plain_weights, &k->refused};
    comet_cuda_batch_bytes_free(&k->batch_bytes);
    comet_cuda_marks_free(&k->marks);
    for (size_t i = 0; i < sizeof uploads / sizeof *uploads; i++)
        comet_cuda_upload_free(uploads[i]);
    for (size_t i = 0; i < sizeof records / sizeof *records; i++)
        comet_cuda_record_free(records[i]);
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        comet_cuda_buffer_free(buffers[i]);
    comet_cuda_late_free(&k->late, b->allocator);
    k->update.made_of = 0;
    b->weights = NULL;
}
