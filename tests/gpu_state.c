/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says in one line which GPU the tests run on (exit code 0), or why there is none (77). For make test and make
 * gpu-test.
 */
#include <stdio.h>

#include "comet/cuda.h"

#ifdef COMET_HAVE_CUDA
#include <cuda_runtime.h>

/* A GPU that is listed may still be out of reach; the first allocation tells. */
static cudaError_t try_memory(void) {
    void *memory;
    cudaError_t error = cudaMalloc(&memory, 256);
    if (error == cudaSuccess)
        error = cudaMemset(memory, 0, 256);
    if (error == cudaSuccess)
        error = cudaDeviceSynchronize();
    return error == cudaSuccess ? cudaFree(memory) : error;
}

static int describe(void) {
    struct cudaDeviceProp properties;
    int driver = 0;
    cudaError_t error = cudaGetDeviceProperties(&properties, 0);
    if (error == cudaSuccess)
        error = cudaDriverGetVersion(&driver);
    if (error == cudaSuccess)
        error = try_memory();
    if (error != cudaSuccess) {
        printf("no GPU: %s\n", cudaGetErrorString(error));
        return 77;
    }
    printf("%s (compute capability %d.%d, driver for CUDA %d.%d)\n", properties.name, properties.major,
           properties.minor, driver / 1000, driver % 1000 / 10);
    return 0;
}

static const char *reason(comet_status status) {
    int driver = 0;
    if (status == COMET_ERROR_NO_DEVICE && (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0))
        return "there is no NVIDIA driver";
    return comet_status_string(status);
}
#else
static int describe(void) {
    return 77;
}

static const char *reason(comet_status status) {
    (void)status;
    return "built without CUDA (there was no nvcc, or COMET_CUDA is OFF)";
}
#endif

int main(void) {
    comet_status status = comet_cuda_check(0);
    if (status == COMET_OK)
        return describe();
    printf("no GPU: %s\n", reason(status));
    return 77;
}
