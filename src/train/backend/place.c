/* SPDX-License-Identifier: Apache-2.0 */
/* The backend for a place, and what all backends have. */
#include "train/backend/backend.h"
#include "train/backend/cuda.h"

const char *comet_place_numbers(const comet_place *place) {
    if (place->device.kind == COMET_CUDA && place->dtype == COMET_F32 && !place->exact_products)
        return "tf32";
    return comet_dtype_name(place->dtype);
}

static comet_status new_on_cpu(const comet_place *place, unsigned threads, const comet_allocator *allocator,
                               comet_backend **backend, comet_message *message) {
    if (place->dtype != COMET_F32)
        return comet_message_set(message, COMET_ERROR_UNSUPPORTED, "a CPU computes in fp32, not in %s",
                                 comet_place_numbers(place));
    comet_status status = comet_backend_onednn_new(threads, allocator, backend);
    return status == COMET_OK ? COMET_OK
                              : comet_message_set(message, status, "oneDNN: %s", comet_status_string(status));
}

comet_status comet_backend_new(const comet_place *place, unsigned threads, const comet_allocator *allocator,
                               comet_backend **backend, comet_message *message) {
    if (place->device.kind == COMET_CPU)
        return new_on_cpu(place, threads, allocator, backend, message);
    const comet_backend_cuda_options options = {.device = place->device.index,
                                                .dtype = place->dtype,
                                                .exact_products = place->exact_products,
                                                .deterministic = place->deterministic,
                                                .unrecorded = place->unrecorded,
                                                .threads = threads};
    return comet_backend_cuda_new(&options, allocator, backend, message);
}

void comet_backend_free(comet_backend *backend) {
    if (backend)
        backend->free(backend);
}

void comet_holder_free(comet_holder *holder) {
    if (holder)
        holder->free(holder);
}
