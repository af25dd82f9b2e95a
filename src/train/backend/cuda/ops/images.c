/* SPDX-License-Identifier: Apache-2.0 */
/* Images from the host: bytes come over as they are, and become values on the device. */
#include "train/backend/cuda/kernels/images.h"
#include "train/backend/cuda/base/backend_cuda.h"

#include "base/fail.h"

comet_status comet_cuda_images(const comet_images_call *call) {
    comet_backend_cuda *b = (comet_backend_cuda *)call->backend;
    const int64_t an_image = call->pixels * call->channels;
    comet_cuda_images_job job = {.normalisation = *call->normalisation,
                                 .channels = call->channels,
                                 .values = call->values,
                                 .used = call->count * an_image,
                                 .count = call->batch * an_image};
    const uint8_t *source = call->again ? NULL : call->bytes;
    const comet_cuda_step_words *words = comet_cuda_recorded_words(b);
    if (words) {
        job.bytes_at = &words->bytes;
        return comet_cuda_status(comet_cuda_launch_images(&job, b->base.dtype, b->queue));
    }
    COMET_TRY(comet_cuda_batch_bytes_begin(&b->kept.batch_bytes, source, (size_t)job.used, b->queue, &job.bytes));
    COMET_TRY(comet_cuda_status(comet_cuda_launch_images(&job, b->base.dtype, b->queue)));
    return comet_cuda_batch_bytes_end(&b->kept.batch_bytes, b->queue);
}

comet_status comet_cuda_images_ahead(comet_backend *backend, const uint8_t *bytes, int64_t count) {
    return comet_cuda_batch_bytes_ahead(&((comet_backend_cuda *)backend)->kept.batch_bytes, bytes, (size_t)count);
}
