// SPDX-License-Identifier: Apache-2.0
// Matrix products in plain loops: products and sums in fp64, rounded once.
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "cublaslt_model.h"

namespace {

size_t value_bytes(cudaDataType_t type) {
    return type == CUDA_R_32F ? 4 : 2;
}

float read_value(cudaDataType_t type, const void *values, size_t i) {
    if (type == CUDA_R_32F)
        return ((const float *)values)[i];
    const uint16_t bits = ((const uint16_t *)values)[i];
    return type == CUDA_R_16F ? comet_f16_to_f32(bits) : comet_bf16_to_f32(bits);
}

void write_value(cudaDataType_t type, void *values, size_t i, float v) {
    if (type == CUDA_R_32F)
        ((float *)values)[i] = v;
    else
        ((uint16_t *)values)[i] = type == CUDA_R_16F ? comet_f16_of_f32(v) : comet_bf16_of_f32(v);
}

// To the 10 bits of mantissa that tensor cores take, to nearest.
float tf32_of(float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u)
        bits = (bits + 0x1000u) & ~0x1fffu;
    memcpy(&v, &bits, 4);
    return v;
}

double factor(const cublaslt_job &job, const cublaslt_matrix &m, int32_t turn, uint64_t row, uint64_t column) {
    const uint64_t leading = (uint64_t)m.layout.leading;
    const float v =
        read_value(m.layout.type, m.memory, turn == CUBLAS_OP_T ? row * leading + column : column * leading + row);
    const bool rounds = m.layout.type == CUDA_R_32F && job.operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    return (double)(rounds ? tf32_of(v) : v);
}

float result(const cublaslt_job &job, uint64_t row, uint64_t column) {
    const cublaslt_operation &o = job.operation;
    const uint64_t inner = o.turn_a == CUBLAS_OP_T ? job.a.layout.rows : job.a.layout.columns;
    double sum = 0;
    for (uint64_t k = 0; k < inner; k++)
        sum += factor(job, job.a, o.turn_a, row, k) * factor(job, job.b, o.turn_b, k, column);
    sum *= (double)job.alpha;
    if (job.beta != 0) // what is there is not read otherwise
        sum += (double)job.beta *
               (double)read_value(job.c.layout.type, job.c.memory, column * (uint64_t)job.c.layout.leading + row);
    if (o.epilogue == CUBLASLT_EPILOGUE_BIAS)
        sum += (double)read_value(job.d.layout.type, o.bias, row);
    return (float)sum;
}

void compute(void *data) {
    const cublaslt_job &job = *(const cublaslt_job *)data;
    const cublaslt_layout &d = job.d.layout;
    if (job.workspace_bytes)
        memset(job.workspace, 0xfe, job.workspace_bytes); // nobody else may keep anything there
    for (uint64_t column = 0; column < d.columns; column++)
        for (uint64_t row = 0; row < d.rows; row++)
            write_value(d.type, job.d.memory, column * (uint64_t)d.leading + row, result(job, row, column));
}

} // namespace

size_t cublaslt_bytes(const cublaslt_layout &l) {
    return ((size_t)l.leading * (l.columns - 1) + l.rows) * value_bytes(l.type);
}

cudaError_t cublaslt_issue(const cublaslt_job &job, cudaStream_t stream) {
    static std::vector<std::unique_ptr<cublaslt_job>> jobs; // graphs may come back to them
    cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &capturing);
    if (error != cudaSuccess)
        return error;
    jobs.push_back(std::make_unique<cublaslt_job>(job));
    const cudaError_t issued = cudaLaunchHostFunc(stream, compute, jobs.back().get());
    if (capturing == cudaStreamCaptureStatusNone) // it was done at once
        jobs.pop_back();
    return issued;
}
