// SPDX-License-Identifier: Apache-2.0
// From a thread's values to codes, and from the order in which threads read values to the order of the format: lane l
// of a warp has the columns of lane l of the tile, four codes a word.
#ifndef COMET_CODEC_CUDA_EB_CODES_CUH
#define COMET_CODEC_CUDA_EB_CODES_CUH

#include "codec/cuda/eb/eb_args.cuh"
#include "codec/cuda/tile/survey.cuh"

// ---- the exchange ----

// A thread's biased codes, byte k of word `unit` e, into the exchange; then this lane's words u[m].
template <int REACH> __device__ __forceinline__ void exchange_codes(u32 (&w)[8], u32 lane, u32 *exchange, u32 (&u)[8]) {
    uint4 *units = (uint4 *)exchange;
    if (REACH == REACH_LAST1) {
#pragma unroll
        for (int m = 0; m < 8; m++)
            u[m] = w[m];
        return;
    }
    if (REACH == REACH_FLAT) { // w[j]: four columns of one row
#pragma unroll
        for (int j = 0; j < 8; j++)
            exchange[(32 * j + lane) ^ ((j & 1) << 2)] = w[j];
        __syncwarp();
        const u32 pair = unit_place(2 * lane);
        uint4 a = units[pair], b = units[pair ^ 1]; // rows 0 to 3, both halves of each
        u[0] = a.x, u[1] = a.z, u[2] = b.x, u[3] = b.z, u[4] = a.y, u[5] = a.w, u[6] = b.y, u[7] = b.w;
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
    } else { // w[4 i + e]: four rows of one column
        const u32 unit = REACH == REACH_LAST4 ? lane : unit_place(lane), pair = unit_place(2 * lane);
        units[unit] = make_uint4(w[0], w[1], w[2], w[3]);
        units[unit + 32] = make_uint4(w[4], w[5], w[6], w[7]);
        __syncwarp();
        if (REACH == REACH_LAST4) { // [m][channel]
#pragma unroll
            for (int m = 0; m < 8; m++)
                u[m] = exchange[32 * m + lane];
        } else {
            uint4 a = units[pair], b = units[pair ^ 1];
            u[0] = a.x, u[1] = a.y, u[2] = a.z, u[3] = a.w, u[4] = b.x, u[5] = b.y, u[6] = b.z, u[7] = b.w;
        }
    }
    __syncwarp();
}

// Packs codes of a thread's values into words for the exchange; `pack` takes the places of four of them.
template <int REACH, class Pack> __device__ __forceinline__ void pack_words(u32 (&w)[8], Pack pack) {
    if (REACH == REACH_FLAT || REACH == REACH_LAST1) {
#pragma unroll
        for (int j = 0; j < 8; j++)
            w[j] = pack(j, 0, j, 1, j, 2, j, 3);
    } else {
#pragma unroll
        for (int i = 0; i < 2; i++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[4 * i + e] = pack(4 * i, e, 4 * i + 1, e, 4 * i + 2, e, 4 * i + 3, e);
    }
}

// Biased codes of values(a, e), as bits(x, magic) makes them: pack_values.
template <int REACH, class Values, class Bits>
__device__ __forceinline__ void codes_of(Values values, Bits bits, u32 (&words)[8]) {
    pack_words<REACH>(words, [&](int a0, int e0, int a1, int e1, int a2, int e2, int a3, int e3) {
        return pack_values(values(a0, e0), values(a1, e1), values(a2, e2), values(a3, e3), bits);
    });
}

#endif
