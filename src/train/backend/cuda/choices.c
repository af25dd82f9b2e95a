/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which kernels were chosen by measuring them, as text: the GPU's name in a line, then cuDNN's choices. cuBLASLt's are
 * the first of its heuristics, the same in every run.
 */
#include <stdio.h>
#include <string.h>

#include "base/fail.h"
#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/cudnn/cudnn.h"

static const char title[] = "gpu ";

/* "gpu NVIDIA H200\n" */
static comet_status gpu_line(const comet_backend_cuda *b, char line[300]) {
    struct cudaDeviceProp properties;
    COMET_TRY(comet_cuda_status(cudaGetDeviceProperties(&properties, b->options.device)));
    (void)snprintf(line, 300, "%s%s\n", title, properties.name);
    return COMET_OK;
}

size_t comet_cuda_choices(const comet_backend *backend, char *text, size_t room) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)backend;
    char line[300];
    if (gpu_line(b, line) != COMET_OK)
        return 0;
    const size_t length = strlen(line);
    if (length < room)
        memcpy(text, line, length + 1);
    return length +
           comet_cudnn_choices_write(b->cudnn, length < room ? text + length : NULL, length < room ? room - length : 0);
}

comet_status comet_cuda_set_choices(comet_backend *backend, const char *text) {
    const comet_backend_cuda *b = (const comet_backend_cuda *)backend;
    const char *end = strchr(text, '\n');
    char line[300];
    COMET_TRY(gpu_line(b, line));
    if (!end || strncmp(text, title, strlen(title)) != 0)
        return comet_fail(COMET_ERROR_CORRUPT, "no text of chosen kernels");
    if (strncmp(text, line, strlen(line)) != 0)
        return comet_fail(COMET_ERROR_MISMATCH, "kernels were chosen on another GPU, %.*s",
                          (int)(end - text - (ptrdiff_t)strlen(title)), text + strlen(title));
    return comet_cudnn_choices_read(b->cudnn, end + 1);
}
