// SPDX-License-Identifier: Apache-2.0
// A tile of short rows in the order of memory. Its columns are whole bands, which lie side by side, and parts of one
// before and one behind them; a sweep goes over all quads that hold a value of the tile, and those of the two parts
// hold values of other tiles, too. So memory is read and written in whole sectors, whatever the length of rows.
#ifndef COMET_CODEC_CUDA_TILE_SWEEP_CUH
#define COMET_CODEC_CUDA_TILE_SWEEP_CUH

#include "codec/cuda/tile/bits.cuh"
#include "codec/cuda/tile/quads.cuh"

// Rows up to this long, and the most quads of a tile of them.
enum { SWEPT_ROW = 44, SWEPT_QUADS = 324 };

// Rows up to this long are swept even if pieces of four can be read.
enum { SWEPT_ROW4 = 20 };

static_assert(4 * SWEPT_QUADS >= 1024 + 6 * (SWEPT_ROW - 1) + 6,
              "the first and the last quad may be others' but for one");

// How a tensor on a grid is reached; inner: values of a map, or 0 if that is not known. Long rows into which pieces of
// four do not fit are seldom: they are read one by one.
static inline Reach grid_reach_of(const tile_geometry *g, u64 inner) {
    const Reach reach = reach_of(g);
    if (!reach_is_row(reach))
        return reach;
    if (g->row <= (reach == REACH_ROW4 ? (int)SWEPT_ROW4 : (int)SWEPT_ROW) && inner && inner % (u64)g->row == 0)
        return REACH_SWEEP;
    return reach == REACH_ROW4 ? REACH_ROW4 : REACH_ROW1;
}

struct SweptQuads {
    // Of each lane: a tile has 256 quads or more, and rarely more than 288.
    enum { ROUNDS = 9, WHOLE_ROUNDS = 8, CODES_AT = 4 * SWEPT_QUADS };
    u64 first;               // index of the first quad
    u32 quads;               // how many there are
    u32 lead;                // values of its band before the first quad
    u32 column, last_column; // the first of the first band, and the last of the last one
    u32 last;                // values before the last band, counted like `lead`
    u32 skip;                // values of the first map before the first quad: take()

    __device__ __forceinline__ SweptQuads(const Geometry &g, const TileStart &s) {
        const u32 bands = g.by_row(s.column + 255);
        column = s.column, last_column = s.column + 255 - bands * g.row;
        last = 4 * bands * g.row;
        lead = column & ~3u;
        first = s.position + lead;
        quads = (last + 3 * g.row + last_column - lead) / 4 + 1;
    }
    __device__ __forceinline__ void take(const TileMaps &maps) {
        skip = maps.skip - column % 4; // of the same row
    }

    // The first band is 4 * SWEPT_ROW values at most, and what lies before the last one at least 1,024 less that many.
    static __device__ __forceinline__ constexpr QuadEnd end_of(int round) {
        return 128 * round < 4 * SWEPT_ROW ? END_FIRST : 128 * (round + 1) > 1024 - 4 * SWEPT_ROW ? END_LAST : END_NONE;
    }
    __device__ __forceinline__ u32 count() const {
        return quads;
    }

    // The quads of whole bands, between the tile's ends; there are some, as a tile has far more columns than a row.
    __device__ __forceinline__ u32 whole_from(const Geometry &g) const {
        return g.row - lead / 4;
    }
    __device__ __forceinline__ u32 whole_to() const {
        return (last - lead) / 4;
    }

    // Which values of a quad are the tile's, a bit each. Rows have more than 8 values.
    template <QuadEnd END> __device__ __forceinline__ u32 mine(const Geometry &g, u32 quad) const {
        const u32 at = lead + 4 * quad;
        if (END == END_NONE || (END == END_FIRST ? at >= 4 * g.row : at < last))
            return 15;
        const u32 low = END == END_FIRST ? column : 0, high = END == END_FIRST ? g.row - 1 : last_column;
        return columns_between(g, at, low, high);
    }
    // Of a quad anywhere.
    __device__ __forceinline__ u32 mine_of_any(const Geometry &g, u32 quad) const {
        return lead + 4 * quad < last ? mine<END_FIRST>(g, quad) : mine<END_LAST>(g, quad);
    }
    __device__ __forceinline__ u32 columns_between(const Geometry &g, u32 at, u32 low, u32 high) const {
        u32 c = at - g.by_row(at) * g.row, bits = 0;
#pragma unroll
        for (int e = 0; e < 4; e++) {
            bits |= (u32)(c - low <= high - low) << e;
            c = c + 1 == g.row ? 0 : c + 1;
        }
        return bits;
    }

    // Where a quad's word of codes lies in a warp's stage: in its upper half, so that twice as long a number of each
    // quad can grow up to them as they are read.
    static __device__ __forceinline__ u32 place(u32 quad) {
        return CODES_AT / 4 + quad;
    }
};

// Writes those values of a quad that are `mine`.
template <int DTYPE>
__device__ __forceinline__ void put_quad(void *tensor, u64 index, const u32 (&w)[PIECE_WORDS<DTYPE>], u32 mine) {
    if (mine == 15)
        store_piece<REACH_FLAT, DTYPE>(tensor, index, 0, w);
    else
        store_some<DTYPE>(tensor, index, w, mine);
}

// ---- codes ----

// Byte k of a, and that of b above it.
__device__ __forceinline__ u32 pair_of_bytes(u32 a, u32 b, int k) {
    return k == 0   ? permute<0x0040>(a, b)
           : k == 1 ? permute<0x0051>(a, b)
           : k == 2 ? permute<0x0062>(a, b)
                    : permute<0x0073>(a, b);
}

// Calls visit(j, k, at) for every WIDTH values of a lane's eight columns j in rows k; at: from the first quad.
template <int WIDTH, class Visit>
__device__ __forceinline__ void for_columns(const Geometry &g, const SweptQuads &sweep, u32 lane, Visit visit) {
    const u32 column = sweep.column + 8 * lane, band = g.by_row(column);
    u32 p = column - band * g.row, at = column + 3 * band * g.row - sweep.lead;
#pragma unroll
    for (int j = 0; j < 8; j += WIDTH) {
#pragma unroll
        for (int k = 0; k < 4; k++)
            visit(j, k, at + k * g.row);
        p += WIDTH, at += WIDTH;
        if (p == g.row)
            p = 0, at += 3 * g.row;
    }
}

// A lane's columns of biased codes, a byte for each row, to 4 * SWEPT_QUADS bytes in the order of memory. Those of
// other tiles are 0, as codes go, so that all bytes of a word can be dealt with at once. By the whole warp.
__device__ __forceinline__ void put_columns(const Geometry &g, const SweptQuads &sweep, u32 lane, u32 (&u)[8],
                                            u8 *bytes) {
    for (u32 i = lane; i < SWEPT_QUADS / 4; i += 32)
        ((uint4 *)bytes)[i] = make_uint4(SIGN_BITS, SIGN_BITS, SIGN_BITS, SIGN_BITS);
    __syncwarp();
    if (g.row % 4 == 0) {
        transpose_bytes(u[0], u[1], u[2], u[3]); // words of rows, bytes of columns
        transpose_bytes(u[4], u[5], u[6], u[7]);
        for_columns<4>(g, sweep, lane, [&](int j, int k, u32 at) { *(u32 *)(bytes + at) = u[j + k]; });
    } else if (g.row % 2 == 0) {
        for_columns<2>(g, sweep, lane,
                       [&](int j, int k, u32 at) { *(u16 *)(bytes + at) = (u16)pair_of_bytes(u[j], u[j + 1], k); });
    } else {
        for_columns<1>(g, sweep, lane, [&](int j, int k, u32 at) { bytes[at] = (u8)(u[j] >> 8 * k); });
    }
    __syncwarp();
}

// The inverse. By the whole warp.
__device__ __forceinline__ void take_columns(const Geometry &g, const SweptQuads &sweep, u32 lane, const u8 *bytes,
                                             u32 (&u)[8]) {
    u32 v[8][4]; // of columns and rows
    __syncwarp();
    if (g.row % 4 == 0) {
        for_columns<4>(g, sweep, lane, [&](int j, int k, u32 at) { u[j + k] = *(const u32 *)(bytes + at); });
        transpose_bytes(u[0], u[1], u[2], u[3]);
        transpose_bytes(u[4], u[5], u[6], u[7]);
    } else if (g.row % 2 == 0) {
        for_columns<2>(g, sweep, lane, [&](int j, int k, u32 at) { v[j][k] = *(const u16 *)(bytes + at); });
#pragma unroll
        for (int j = 0; j < 8; j += 2) {
            const u32 upper = permute<0x5140>(v[j][0], v[j][1]), lower = permute<0x5140>(v[j][2], v[j][3]);
            u[j] = permute<0x5410>(upper, lower), u[j + 1] = permute<0x7632>(upper, lower);
        }
    } else {
        for_columns<1>(g, sweep, lane, [&](int j, int k, u32 at) { v[j][k] = bytes[at]; });
#pragma unroll
        for (int j = 0; j < 8; j++)
            u[j] = permute<0x5410>(permute<0x0040>(v[j][0], v[j][1]), permute<0x0040>(v[j][2], v[j][3]));
    }
    __syncwarp();
}

#endif
