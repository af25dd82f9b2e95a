/* SPDX-License-Identifier: Apache-2.0 */
/* Images from the host: bytes go through page-locked memory, and become values on the device. */
#include <string.h>

#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/kernels/images.h"

/* The host goes on while bytes are on their way: it fills the other one of two places next time. */
static comet_status upload(comet_backend_cuda *b, const uint8_t *bytes, size_t count) {
    void *host;
    COMET_TRY(comet_cuda_upload_begin(&b->kept.image_bytes, count, &host));
    if (count)
        memcpy(host, bytes, count);
    return comet_cuda_upload_end(&b->kept.image_bytes, count, b->queue);
}

comet_status comet_cuda_images(const comet_images_call *call) {
    comet_backend_cuda *b = (comet_backend_cuda *)call->backend;
    const int64_t an_image = call->pixels * call->channels;
    const comet_cuda_images_job job = {.normalisation = *call->normalisation,
                                       .channels = call->channels,
                                       .values = call->values,
                                       .used = call->count * an_image,
                                       .count = call->batch * an_image};
    COMET_TRY(upload(b, call->bytes, (size_t)job.used));
    comet_cuda_images_job with_bytes = job;
    with_bytes.bytes = b->kept.image_bytes.device.memory;
    return comet_cuda_status(comet_cuda_launch_images(&with_bytes, b->base.dtype, b->queue));
}
