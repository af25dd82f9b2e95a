/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/base/marks.h"

#include "base/fail.h"
#include "codec/cuda/runtime.h"

comet_status comet_cuda_marks_set(comet_cuda_marks *marks, int index, cudaStream_t queue) {
    COMET_REQUIRE(index >= 0 && index < COMET_CUDA_MARKS, "mark %d of %d", index, COMET_CUDA_MARKS);
    cudaEvent_t *event = &marks->events[index];
    if (!*event)
        COMET_TRY(comet_cuda_status(cudaEventCreate(event)));
    return comet_cuda_status(cudaEventRecord(*event, queue));
}

comet_status comet_cuda_marks_read(const comet_cuda_marks *marks, int count, double *ms) {
    COMET_REQUIRE(count > 0 && count <= COMET_CUDA_MARKS, "%d marks of %d", count, COMET_CUDA_MARKS);
    COMET_TRY(comet_cuda_status(cudaEventSynchronize(marks->events[count - 1])));
    for (int i = 0; i < count; i++) {
        float since = 0;
        COMET_TRY(comet_cuda_status(cudaEventElapsedTime(&since, marks->events[0], marks->events[i])));
        ms[i] = since;
    }
    return COMET_OK;
}

void comet_cuda_marks_free(comet_cuda_marks *marks) {
    for (int i = 0; i < COMET_CUDA_MARKS; i++)
        if (marks->events[i])
            (void)cudaEventDestroy(marks->events[i]);
    *marks = (comet_cuda_marks){{NULL}};
}
