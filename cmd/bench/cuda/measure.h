/* SPDX-License-Identifier: Apache-2.0 */
/* One tensor at one size on a GPU, and codecs measured on it. */
#ifndef COMET_CMD_CUDA_MEASURE_H
#define COMET_CMD_CUDA_MEASURE_H

#include "cmd/bench/cuda/gpu.h"

/* Where the calls read and write: buffer number i lies i strides behind the first. */
typedef struct cuda_bed {
    gpu *gpu;
    const bench_plan *plan;
    const comet_tensor *source; /* on the host, as it was read */
    values_summary values;      /* of these */
    bench_grid grid;            /* for them, and the same with tables in device memory; see cuda_grid_set */
    comet_codec_grid device_grid;
    comet_tensor tensor; /* cut or repeated, in the first input buffer */
    double size;         /* MiB asked for */
    size_t bytes, stride;
    int buffers;
    buffer cpu_input, cpu_stream, serialised; /* host memory, kept from one to the next */
} cuda_bed;

/* Uploads bed->source: before its first size. */
int cuda_bed_upload(cuda_bed *bed);

/* Makes the grid for bed->source and uploads its tables: before the first measurement on a grid. */
int cuda_grid_set(cuda_bed *bed);

/* Fills the inputs with bed->source, cut or repeated to `size` MiB. */
int cuda_bed_fill(cuda_bed *bed, double size);

/* Measures result->base.coder in result->base.mode at result->base.error_rel. */
int cuda_measure(cuda_bed *bed, cuda_result *result);

enum { CUDA_RESULT_STRIDE = 256 }; /* bytes from one comet_cuda_result to the next: they must be aligned */

/* Streams of all buffers, and how to make them. */
typedef struct cuda_codec_bed {
    cuda_bed *bed;
    comet_codec_params params;
    comet_codec_exec exec;
    size_t capacity, stride;
} cuda_codec_bed;

comet_cuda_slot cuda_slot(const cuda_codec_bed *c, int index);
comet_tensor cuda_input(const cuda_bed *bed, int index);
comet_tensor cuda_output(const cuda_bed *bed, int index);

/* Of type gpu_operation: decode to the input's dtype; on a grid: to the output of batch norm and ReLU. */
int cuda_start_decompress(void *context, int index);
int cuda_start_decompress_bn(void *context, int index);

/* Where to decode buffer number `index` without rounding: the values of a grid are fp32. May use all outputs. */
int cuda_output_to_check(cuda_codec_bed *c, int index, comet_tensor *output);

/* Decodes the stream in buffer number `index` and compares: with the input, and if small with the CPU's stream. */
int cuda_verify(cuda_codec_bed *c, int index, cuda_result *result);

#endif
