/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The indices that a max-pool keeps for its backward pass, in 1, 2, 4 or 8 bits each, without loss.
 *
 *     comet_pool_window window = COMET_POOL_WINDOW_INIT;
 *     window.batch = 32, window.channels = 64, window.layout = COMET_NCHW;
 *     window.input[0] = window.input[1] = 112, window.output[0] = window.output[1] = 56;
 *     window.kernel[0] = window.kernel[1] = 3, window.stride[0] = window.stride[1] = 2;
 *     window.padding[0] = window.padding[1] = 1;
 *     comet_indices_bytes(&window, &bytes);
 *     comet_indices_pack(&window, indices, packed);        // forward; `indices` may then be freed
 *     comet_indices_unpack(&window, packed, indices);      // backward
 *
 * A framework keeps an int64 for every output value: the place of the greatest value of its window, as an offset
 * row * width + column in the input map of its image and channel, whatever the layout. That place is one of kernel[0] *
 * kernel[1], so its number in the window is enough: an index becomes the fewest bits of 1, 2, 4 and 8 that hold
 * kernel[0] * kernel[1] - 1. docs/codecs.md, section 7, specifies the bytes; the CPU and a GPU write the same.
 *
 * Output value (row, column) has the window that begins at row * stride - padding (the same for columns) and goes on in
 * steps of `dilation`; places outside of the input map are none. Pooling along one dimension is the same with input,
 * output and kernel of 1 for the rows. Windows that are not all alike (adaptive and fractional pooling) do not fit.
 *
 * All functions are thread-safe: they keep no state between calls and touch only what they are given.
 */
#ifndef COMET_INDICES_H
#define COMET_INDICES_H

#include <stddef.h>
#include <stdint.h>

#include "comet/export.h"
#include "comet/init.h"
#include "comet/status.h"
#include "comet/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What was pooled, and how. Pairs are rows, then columns. */
typedef struct comet_pool_window {
    size_t size;             /* sizeof(comet_pool_window) */
    int64_t batch, channels; /* 0 or more: there may be no values at all */
    int64_t input[2];        /* extents of an input map */
    int64_t output[2];       /* and of an output map, which has an index at each place */
    int32_t kernel[2];       /* places of a window: 256 in all at most */
    int32_t stride[2];
    int32_t padding[2];  /* at most half of what a window spans: (kernel - 1) * dilation + 1 */
    int32_t dilation[2]; /* 1: the places of a window are side by side */
    comet_layout layout; /* the order of the indices in memory, without gaps: COMET_NCHW or COMET_NHWC */
} comet_pool_window;

#define COMET_POOL_WINDOW_INIT                                                                                         \
    COMET_INIT(comet_pool_window, COMET_FIELD(batch) = 1, COMET_FIELD(channels) = 1, COMET_FIELD(input[0]) = 1,        \
               COMET_FIELD(input[1]) = 1, COMET_FIELD(output[0]) = 1, COMET_FIELD(output[1]) = 1,                      \
               COMET_FIELD(kernel[0]) = 1, COMET_FIELD(kernel[1]) = 1, COMET_FIELD(stride[0]) = 1,                     \
               COMET_FIELD(stride[1]) = 1, COMET_FIELD(dilation[0]) = 1, COMET_FIELD(dilation[1]) = 1,                 \
               COMET_FIELD(layout) = COMET_NCHW)

/*
 * The bytes of the packed indices: a multiple of 16, and 0 without values.
 *
 * This and all calls below: COMET_ERROR_ARGUMENT: a NULL (but for no values), an extent, kernel, stride or dilation
 * below 1, a padding that is negative or more than half of a window, a last window that begins behind the input, an
 * unknown layout, or more indices than 2^48. COMET_ERROR_UNSUPPORTED: a window of more than 256 places; channels, a
 * map, a stride or what a window spans of more than 2^28.
 */
COMET_API comet_status comet_indices_bytes(const comet_pool_window *window, size_t *bytes);

/*
 * Packs `indices` into `packed`, of comet_indices_bytes, which needs no alignment. COMET_ERROR_ARGUMENT also if an
 * index is not a place of its window and of the input map; nothing useful is in `packed` then.
 */
COMET_API comet_status comet_indices_pack(const comet_pool_window *window, const int64_t *indices, void *packed);

/*
 * Gives the indices back. COMET_ERROR_CORRUPT: `packed` holds what packing does not write: a number that is not one of
 * the window's places, a place outside of the input map, or a bit behind the last index. Every index is written all the
 * same, and whatever `packed` holds it is inside of the map: what adds up gradients at these places stays in its
 * memory. (A number that is too high is taken as the window's last place; of a place outside, row and column are each
 * brought to the nearest inside.)
 */
COMET_API comet_status comet_indices_unpack(const comet_pool_window *window, const void *packed, int64_t *indices);

/*
 * The same in device memory, on a queue (a cudaStream_t; NULL is the default one) of the current device, for CUDA
 * graphs too, as the calls of comet/cuda.h. `indices` is aligned to 8 bytes (16 are faster), `packed` to 16. An index
 * that is not a place of its window is packed as the window's first, and `status`, in device memory, is set to
 * COMET_ERROR_ARGUMENT unless it is already something else than COMET_OK. It is never set back, so that one word can
 * watch over many calls. COMET_ERROR_NO_DEVICE: there is no GPU, or this library was built without CUDA.
 */
COMET_API comet_status comet_cuda_indices_pack(const comet_pool_window *window, const int64_t *indices, void *packed,
                                               int32_t *status, void *queue);

/* As on the CPU; what packing does not write is not reported, but every index is inside of the map and the CPU's. */
COMET_API comet_status comet_cuda_indices_unpack(const comet_pool_window *window, const void *packed, int64_t *indices,
                                                 void *queue);

#ifdef __cplusplus
}
#endif

#endif
