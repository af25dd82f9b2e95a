/* SPDX-License-Identifier: Apache-2.0 */
/* Round trips on a CUDA device, and the calls they are made of: host memory in, host memory out. */
#ifndef TESTS_SUPPORT_CUDA_BACKEND_H
#define TESTS_SUPPORT_CUDA_BACKEND_H

#include "comet/cuda.h"
#include "support/codec/backend.h"
#include "support/cuda/cuda_memory.h"

enum { CUDA_ALIGNMENT = 256 }; /* of streams in a slot */

/* The backend of device 0, alone in a list. Uses one workspace for trips of any shape and parameters up to `most`. */
backend_list cuda_backend_new(int64_t most);
void cuda_backend_free(backend_list *list);

/* ---- pieces ---- */

/* Parameters with the grid's tables in device memory. Points into itself: not to be copied. */
typedef struct cuda_params {
    comet_codec_params p;
    comet_codec_grid grid;
    cuda_block tables[4];
} cuda_params;

void cuda_params_new(cuda_params *c, const comet_codec_params *host);
void cuda_params_free(cuda_params *c);

comet_tensor cuda_view(const test_shape *shape, comet_dtype dtype, void *data);
size_t cuda_view_bytes(const test_shape *shape, comet_dtype dtype);

/* A workspace of just the size that calls with these need; `queue` is where it is made. */
cuda_block cuda_workspace_new(const comet_tensor *t, const comet_codec_params *p, cudaStream_t queue);

/* Also checks that calls left it ready for the next one. */
void cuda_workspace_free(cuda_block *workspace);
comet_codec_exec cuda_exec(const cuda_block *workspace, cudaStream_t queue);

/* ---- calls that wait ---- */

/* Where to compress to. */
typedef struct cuda_place {
    size_t capacity, behind; /* so many bytes more are allocated, and must stay as they are */
    uint64_t start;
    int start_on_device; /* slot.start is used even for 0 */
} cuda_place;

/* What is then in the slot: place.capacity + place.behind bytes, to be freed. */
typedef struct cuda_written {
    unsigned char *memory;
    size_t bytes;
    comet_cuda_result result;
} cuda_written;

/*
 * Compresses the trip's values with `p`, whose grid is in host memory (device_bound and device_stats are not). A
 * `workspace` of NULL: one of its own. Checks what must stay as it was. The call's status in *status.
 */
int cuda_compress_to(const trip *t, const comet_codec_params *p, const cuda_place *place, const cuda_block *workspace,
                     comet_status *status, cuda_written *w, failure *f);

/* What to decompress, into what. */
typedef struct cuda_reading {
    test_shape shape;
    comet_dtype dtype;                   /* of the output */
    const comet_codec_params *params;    /* the grid in host memory */
    const comet_cuda_epilogue *epilogue; /* NULL: none; pointers to device memory */
    const cuda_block *workspace;         /* NULL: one of its own */
    const uint64_t *start;               /* in host memory; NULL: none */
    const comet_cuda_result *result;     /* the same */
    int32_t word;                        /* the status word, before and after */
} cuda_reading;

/* Decompresses `memory`. *patterns is the output, to be freed; poisoned where nothing was written. */
comet_status cuda_decompress_from(cuda_reading *d, const void *memory, size_t capacity, void **patterns);

/* Blocks and threads in an order of their own from now on, where the device is emulated; 0: as usual. */
void cuda_shuffle(uint64_t seed);

#endif
