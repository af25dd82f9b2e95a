// SPDX-License-Identifier: Apache-2.0
// Codes to the bytes of a code tile, in two steps: plan (how large it is, which columns are stored how) and write.
// Between them the block learns where its tiles go. The planes wait in shared memory.
#ifndef COMET_CODEC_CUDA_TILE_ENCODE_CUH
#define COMET_CODEC_CUDA_TILE_ENCODE_CUH

#include "codec/cuda/tile/bits.cuh"
#include "codec/cuda/tile/exact.cuh"

// The most bytes of a narrow code tile are 1,066; the rest is for alignment.
enum { NARROW_SLOT = 1088 };

// What write_narrow has of a tile's columns: two words of each, and behind them their states.
enum { COLUMN_STATES = 64, COLUMN_WORDS = 72 };

// What a plan leaves for the write.
struct TilePlan {
    u32 entry;     // of the table: bytes and kind; 0: no bytes
    bool wide;     // codes of 16 bits
    u32 head;      // the tile's first byte,
    u32 n, sign;   // narrow: and how many magnitude planes it speaks of, and whether of a sign
    u32 header;    // bytes in front of the data
    u32 firsts;    // C > 1: firsts_of
    u32 first;     // C > 1: byte `lane` of the planes of firsts (wide: plane `lane`); else the first code
    u32 state;     // narrow: how column `lane` (plane * 4 + k) is stored,
    u32 ballot;    // which of its bytes are; for a single bit, the byte that says which
    u32 before;    // and the bytes of data before it, | ballots before it << 16
    u32 planes[8]; // narrow: magnitude 0 to 6, sign
};

// ---- firsts ----

// The byte in front of firsts that have n planes and perhaps a sign, | bytes of these << 8.
__device__ __forceinline__ u32 firsts_of(u32 n, u32 sign) {
    return n | sign << 4 | (n + sign) << 10;
}

// Folded first codes of 8 bits, one a lane, as planes: `byte` is the one that comes `lane` behind the planes' start.
// room: 32 bytes of the warp's own.
__device__ __forceinline__ u32 plan_narrow_firsts(u32 folded, u32 lane, u8 *room, u32 &byte) {
    const u32 any = __reduce_or_sync(ALL_LANES, folded), n = bit_width(any & 0x7f);
    room[lane] = (u8)folded;
    __syncwarp();
    const uint2 codes = ((const uint2 *)room)[lane & 3]; // of eight lanes, whose bits make up a byte
    const u32 plane = lane >> 2, bit = plane == n ? 7 : plane;
    // the products move bit 8 i to bit 24 + i, or 28 + i; nothing else comes there, nothing carries
    byte = ((codes.x >> bit & 0x01010101u) * 0x01020408u + (codes.y >> bit & 0x01010101u) * 0x10204080u) >> 24;
    return firsts_of(n, any >> 7);
}

// The same of 16 bits; lane b of `plane` has plane b.
__device__ __forceinline__ u32 plan_wide_firsts(u32 folded, u32 lane, u32 &plane) {
    const u32 any = __reduce_or_sync(ALL_LANES, folded), n = bit_width(any & 0x7fff), sign = any >> 15;
    plane = 0;
#pragma unroll 1
    for (u32 b = 0; b < n + sign; b++) {
        const u32 ballot = __ballot_sync(ALL_LANES, folded >> (b == n ? 15 : b) & 1);
        if (lane == b)
            plane = ballot;
    }
    return firsts_of(n, sign);
}

// ---- columns ----

// How a column is stored, from its ballot: the state, and its bytes of data | ballots << 16. A single bit's ballot
// becomes its byte. By the whole warp.
__device__ __forceinline__ u32 column_state(const u8 *plane_byte, u32 &ballot, u32 &bytes) {
    const u32 count = __popc(ballot), some = min(count, 1u);
    u32 state = count >= FULL_FROM ? (u32)COLUMN_FULL : some * COLUMN_SOME;
    bytes = count >= FULL_FROM ? 32 : count + (some << 16);
    if (__any_sync(ALL_LANES, count == 1)) {
        const u32 lane = highest_bit(ballot | 1), byte = plane_byte[4 * lane];
        const bool is_single = count == 1 && (byte & (byte - 1)) == 0;
        ballot = is_single ? 8 * lane + highest_bit(byte) : ballot;
        bytes = is_single ? 1 : bytes;
        state = is_single ? (u32)COLUMN_SINGLE : state;
    }
    return state;
}

// Ballots of a plane's four columns to columns[4 slot ..], the plane itself to planes[32 slot ..].
__device__ __forceinline__ void put_plane(u32 w, u32 slot, u32 lane, u32 *planes, u32 *columns) {
    uint4 ballots;
    ballots.x = __ballot_sync(ALL_LANES, (w & 0xffu) != 0);
    ballots.y = __ballot_sync(ALL_LANES, (w & 0xff00u) != 0);
    ballots.z = __ballot_sync(ALL_LANES, (w & 0xff0000u) != 0);
    ballots.w = __ballot_sync(ALL_LANES, (w & 0xff000000u) != 0);
    if (lane == 0)
        *(uint4 *)(columns + 4 * slot) = ballots;
    planes[32 * slot + lane] = w;
}

// ---- narrow: plan ----

// What transpose_bits makes of bit 7, the sign: w[7].
__device__ __forceinline__ u32 sign_plane(const u32 (&w)[8]) {
    u32 pairs[4];
#pragma unroll
    for (int i = 0; i < 4; i++)
        pairs[i] = choose(SIGN_BITS, w[2 * i + 1], w[2 * i] >> 1);
    const u32 low = choose(0xc0c0c0c0u, pairs[1], pairs[0] >> 2), high = choose(0xc0c0c0c0u, pairs[3], pairs[2] >> 2);
    return choose(0xf0f0f0f0u, high, low >> 4);
}

// transpose_bits, as far as the tile has planes: w[0] to w[n - 1], and w[7] if there is a sign. Most have no more than
// four, for which half of the work will do.
__device__ __forceinline__ void planes_of(u32 n, u32 sign, u32 (&w)[8]) {
    if (n > 4) {
        transpose_bits(w);
        return;
    }
    const u32 signs = sign ? sign_plane(w) : 0;
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = choose(0x0f0f0f0fu, w[i], w[i + 4] << 4);
    exchange_bits<2, 0x33333333u>(w[0], w[2]);
    exchange_bits<2, 0x33333333u>(w[1], w[3]);
    exchange_bits<1, 0x55555555u>(w[0], w[1]);
    exchange_bits<1, 0x55555555u>(w[2], w[3]);
    w[7] = signs;
}

// Calls visit(b) for the magnitude planes of a narrow tile. Almost all have one, which is visited without asking; who
// visits the sign afterwards, as plane n, sets right what that does where there is none.
template <class Visit> __device__ __forceinline__ void for_planes(u32 n, Visit visit) {
#pragma unroll
    for (u32 b = 0; b < 7 && (b < 1 || b < n); b++)
        visit(b);
}

// Column m's residuals of biased codes u, folded; `previous`: what column 0 is predicted from. The residual of padding
// (PADDED: `real` has 0xff where there is none) is 0.
template <bool PADDED>
__device__ __forceinline__ u32 predicted_column(const u32 (&u)[8], const u32 (&real)[8], int m, u32 previous) {
    u32 above = permute<0x2104>(u[m], m ? u[m - 1] : previous); // the row above; above row 0 the column to the left
    u32 residuals = u[m] - above + SIGN_BITS;                   // biased; what a digit cannot hold carries on
    if (PADDED)
        residuals = choose(real[m], residuals, SIGN_BITS);
    return fold_biased_bytes(residuals);
}

// Residuals of biased codes u, folded the way the format takes; `any` gets the bits that occur.
template <int REACH, bool PADDED>
__device__ __forceinline__ bool fold_residuals(u32 lane, const u32 (&u)[8], const u32 (&real)[8], u32 (&w)[8],
                                               u32 &any) {
    int gain = 0;
#pragma unroll
    for (int m = 1; m < 8; m += 5) // two columns speak for all
        gain += __popc(fold_biased_bytes(u[m])) - __popc(predicted_column<PADDED>(u, real, m, 0));
    const bool predict = __reduce_add_sync(ALL_LANES, gain) > PREDICTION_COST / 4;
    any = 0;
    if (predict) {
        u32 previous = u[0];
        if (!reach_is_last(REACH)) {
            previous = __shfl_up_sync(ALL_LANES, u[7], 1);
            previous = lane == 0 ? u[0] : previous;
        }
#pragma unroll
        for (int m = 0; m < 8; m++)
            any |= w[m] = predicted_column<PADDED>(u, real, m, previous);
    } else {
#pragma unroll
        for (int m = 0; m < 8; m++)
            any |= w[m] = fold_biased_bytes(u[m]);
    }
    any = __reduce_or_sync(ALL_LANES, any);
    any |= any >> 16;
    any = (any | any >> 8) & 0xff;
    return predict;
}

template <int REACH, bool PADDED>
__device__ __forceinline__ void plan_narrow(u32 lane, const u32 (&u)[8], const u32 (&real)[8], u32 class_index,
                                            u32 *planes, u32 *columns, TilePlan &plan) {
    u32(&w)[8] = plan.planes, any;
    bool predicted = fold_residuals<REACH, PADDED>(lane, u, real, w, any);
    plan.wide = false;
    plan.entry = 0;
    if (any == 0 && !predicted && class_index == 0)
        return;
    const u32 n = bit_width(any & 0x7f), sign = any >> 7, count = n + sign;
    planes_of(n, sign, w);
    for_planes(n, [&](u32 b) { put_plane(w[b], b, lane, planes, columns); });
    if (sign)
        put_plane(w[7], n, lane, planes, columns);
    __syncwarp();
    u32 mine;
    plan.ballot = lane < 4 * count ? columns[lane] : 0;
    plan.state = column_state((const u8 *)planes + 128 * (lane >> 2) + (lane & 3), plan.ballot, mine);
    const u32 all = __reduce_add_sync(ALL_LANES, mine);
    plan.before = inclusive_sum(mine, lane) - mine;
    plan.head = n | sign * HEAD_SIGN | class_index << HEAD_CLASS_SHIFT | (predicted ? HEAD_PREDICTED : 0);
    u32 firsts = 0;
    if (predicted && reach_is_last(REACH)) {
        plan.firsts = plan_narrow_firsts(fold_biased_bytes(u[0]) & 0xff, lane, (u8 *)(columns + 32), plan.first);
        firsts = 1 + (plan.firsts >> 8);
    } else if (predicted) {
        plan.first = __shfl_sync(ALL_LANES, u[0], 0) ^ 0x80; // its low byte
        firsts = 1;
    }
    plan.n = n, plan.sign = sign;
    plan.header = 1 + count + firsts + 4 * (all >> 16);
    plan.entry = plan.header + (all & 0xffff);
}

// ---- narrow: write ----

// Writes what stands in front of the ballots but for the columns' states; returns where those start.
template <int REACH, bool WIDE>
__device__ __forceinline__ u32 write_front(const TilePlan &plan, u32 lane, u32 count, u8 *out) {
    u32 next = 1 + count;
    if (lane == 0)
        out[0] = (u8)plan.head;
    if (!(plan.head & HEAD_PREDICTED))
        return next;
    if (!reach_is_last(REACH)) {
        constexpr u32 bytes = WIDE ? 2 : 1;
        if (lane < bytes)
            out[next + lane] = (u8)(plan.first >> 8 * lane);
        return next + bytes;
    }
    if (lane == 0)
        out[next] = (u8)plan.firsts;
    const u32 bytes = plan.firsts >> 8;
    if (WIDE && 4 * lane < bytes)
        put_bytes(out + next + 1 + 4 * lane, plan.first, 4);
    if (!WIDE && lane < bytes)
        out[next + 1 + lane] = (u8)plan.first;
    return next + 1 + bytes;
}

// One column's bytes: w's lowest byte if the top bit of `mine` is set, which has as many bits as lanes store one up to
// this.
__device__ __forceinline__ void put_column(u8 *out, u32 mine, u32 before, u32 w) {
    if ((int)mine < 0)
        out[before + __popc(mine)] = (u8)w;
}

// A plane's bytes; places: two columns each, as {stored, before}.
__device__ __forceinline__ void put_columns(u8 *out, const uint4 *places, u32 up, u32 w) {
    uint4 a = places[0], b = places[1];
    put_column(out, a.x << up, a.y, w);
    put_column(out, a.z << up, a.w, w >> 8);
    put_column(out, b.x << up, b.y, w >> 16);
    put_column(out, b.z << up, b.w, w >> 24);
}

// The tile's bytes at all_out[at ..]; columns: words of the warp's own.
template <int REACH>
__device__ __forceinline__ void write_narrow(const TilePlan &plan, u32 lane, u32 *columns, u8 *all_out, u32 at) {
    const u32 n = plan.n, sign = plan.sign, count = n + sign;
    u8 *out = all_out + at;
    const u32 data = at + plan.header + (plan.before & 0xffff);
    u32 next = write_front<REACH, false>(plan, lane, count, out);
    if (plan.state == COLUMN_SOME)
        put_bytes(out + next + 4 * (plan.before >> 16), plan.ballot, 4);
    if (plan.state == COLUMN_SINGLE)
        all_out[data] = (u8)plan.ballot;
    u32 stored = plan.state == COLUMN_SOME ? plan.ballot : plan.state == COLUMN_FULL ? ALL_LANES : 0;
    ((uint2 *)columns)[lane] = make_uint2(stored, data - 1);
    ((u8 *)(columns + COLUMN_STATES))[lane] = (u8)plan.state;
    __syncwarp();
    if (lane < count) // four states side by side: the product brings them to the top
        out[1 + lane] = (u8)(columns[COLUMN_STATES + lane] * 0x01041040u >> 24);
    const uint4 *places = (const uint4 *)columns;
    for_planes(n, [&](u32 b) { put_columns(all_out, places + 2 * b, 31 - lane, plan.planes[b]); });
    if (sign)
        put_columns(all_out, places + 2 * n, 31 - lane, plan.planes[7]);
}

// ---- wide ----

// The planes of a tile of 16-bit codes: 0-7 in `low`, the rest in `high`, 256 words each.
struct WideStore {
    u32 *low, *high;
};

__device__ __forceinline__ u8 *wide_plane_byte(const WideStore &store, u32 column) {
    u32 slot = column >> 2;
    return (u8 *)((slot < 8 ? store.low : store.high) + 32 * (slot & 7)) + (column & 3);
}

// This lane's columns of a wide tile: `lane` and lane + 32.
struct WideColumns {
    u32 state[2], ballot[2], before[2], all;
};

__device__ __forceinline__ void wide_columns(const WideStore &store, const u32 *columns, u32 lane, u32 count,
                                             WideColumns &c) {
    c.all = 0;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 column = lane + 32 * h, mine;
        c.ballot[h] = column < 4 * count ? columns[column] : 0;
        c.state[h] = column_state(wide_plane_byte(store, column), c.ballot[h], mine);
        u32 sum = inclusive_sum(mine, lane);
        c.before[h] = c.all + sum - mine;
        c.all += __shfl_sync(ALL_LANES, sum, 31);
    }
}

// Codes of rows, two columns a word, from their bytes: byte k of low[m] and high[m] is of row k, column m.
__device__ __forceinline__ void halves_of_bytes(const u32 (&low)[8], const u32 (&high)[8], u32 (&q)[4][4]) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
        u32 a = permute<0x5140>(low[2 * j], high[2 * j]), b = permute<0x5140>(low[2 * j + 1], high[2 * j + 1]);
        u32 c = permute<0x7362>(low[2 * j], high[2 * j]), d = permute<0x7362>(low[2 * j + 1], high[2 * j + 1]);
        q[0][j] = permute<0x5410>(a, b), q[1][j] = permute<0x7632>(a, b);
        q[2][j] = permute<0x5410>(c, d), q[3][j] = permute<0x7632>(c, d);
    }
}

// Residuals of codes q folded, both ways counted; q[k] gets the chosen ones.
template <int REACH>
__device__ __forceinline__ bool fold_wide_residuals(u32 lane, const u32 (&real)[8], u32 (&q)[4][4]) {
    constexpr bool CHAINED = !reach_is_last(REACH);
    u32 d[4][4], previous = q[0][0] << 16;
    if (CHAINED) {
        previous = __shfl_up_sync(ALL_LANES, q[0][3], 1);
        previous = lane == 0 ? q[0][0] << 16 : previous;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
        d[0][j] = subtract_halves(q[0][j], __funnelshift_l(j ? q[0][j - 1] : previous, q[0][j], 16));
#pragma unroll
        for (int k = 1; k < 4; k++)
            d[k][j] = subtract_halves(q[k][j], q[k - 1][j]);
    }
    int gain = 0;
#pragma unroll
    for (int j = 0; j < 4; j++) {
#pragma unroll
        for (int k = 0; k < 4; k++) { // the residual of padding is 0
            const u32 bytes = permute<0x4400>(real[2 * j] >> 8 * k, real[2 * j + 1] >> 8 * k);
            q[k][j] = fold_halves(q[k][j]);
            d[k][j] = fold_halves(d[k][j] & bytes);
            gain += __popc(q[k][j]) - __popc(d[k][j]);
        }
    }
    bool predict = __reduce_add_sync(ALL_LANES, gain) > PREDICTION_COST;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            q[k][j] = predict ? d[k][j] : q[k][j];
    return predict;
}

// One byte (0: low, 1: high) of the halves of column m, all four rows.
template <int BYTE> __device__ __forceinline__ u32 bytes_of_halves(const u32 (&r)[4][4], int m) {
    constexpr u32 LOW = BYTE ? 0x51 : 0x40, HIGH = BYTE ? 0x73 : 0x62;
    u32 a = m & 1 ? permute<HIGH>(r[0][m / 2], r[1][m / 2]) : permute<LOW>(r[0][m / 2], r[1][m / 2]);
    u32 b = m & 1 ? permute<HIGH>(r[2][m / 2], r[3][m / 2]) : permute<LOW>(r[2][m / 2], r[3][m / 2]);
    return permute<0x5410>(a, b);
}

// Plans a tile of 16-bit codes, given as bytes (0 for padding); leaves its planes in `store`.
template <int REACH>
__device__ __forceinline__ void plan_wide(u32 lane, u32 (&low)[8], u32 (&high)[8], const u32 (&real)[8],
                                          const WideStore &store, u32 *columns, TilePlan &plan) {
    u32 r[4][4];
    const u32 first = (low[0] & 0xff) | (high[0] & 0xff) << 8;
    halves_of_bytes(low, high, r);
    bool predicted = fold_wide_residuals<REACH>(lane, real, r);
    u32 any = 0;
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            any |= r[k][j];
    any = __reduce_or_sync(ALL_LANES, any);
    any = (any | any >> 16) & 0xffff;
    const u32 n = max(bit_width(any & 0x7fff), (u32)WIDE_FROM), sign = any >> 15, count = n + sign;
#pragma unroll
    for (int m = 0; m < 8; m++) {
        low[m] = bytes_of_halves<0>(r, m);
        high[m] = bytes_of_halves<1>(r, m);
    }
    transpose_bits(low);
    transpose_bits(high);
    __syncwarp(); // whatever the store held has been read
#pragma unroll
    for (u32 b = 0; b < 16; b++)
        if (b < 15 ? b < n : sign) {
            u32 slot = b < 15 ? b : n, w = b < 8 ? low[b] : high[b - 8];
            put_plane(w, slot & 7, lane, slot < 8 ? store.low : store.high, columns + (slot & 8) * 4);
        }
    __syncwarp();
    WideColumns c;
    wide_columns(store, columns, lane, count, c);
    plan.wide = true;
    plan.head = n | sign * HEAD_SIGN | (predicted ? HEAD_PREDICTED : 0);
    u32 firsts = 0;
    if (predicted && reach_is_last(REACH)) {
        plan.firsts = plan_wide_firsts(fold_halves(first) & 0xffff, lane, plan.first);
        firsts = 1 + (plan.firsts >> 8);
    } else if (predicted) {
        plan.first = __shfl_sync(ALL_LANES, first, 0);
        firsts = 2;
    }
    plan.header = 1 + count + firsts + 4 * (c.all >> 16);
    plan.entry = plan.header + (c.all & 0xffff);
}

// Writes the tile straight to where it goes; places: 64 words of the warp's own.
template <int REACH>
__device__ __forceinline__ void write_wide(const TilePlan &plan, u32 lane, const WideStore &store, const u32 *columns,
                                           u32 *places, u8 *out) {
    const u32 count = (plan.head & 15) + (plan.head >> 4 & 1), up = 31 - lane;
    WideColumns c;
    wide_columns(store, columns, lane, count, c);
    u32 next = write_front<REACH, true>(plan, lane, count, out);
#pragma unroll
    for (u32 h = 0; h < 2; h++) {
        u32 flags = c.state[h] << 2 * (lane & 3);
        flags |= __shfl_xor_sync(ALL_LANES, flags, 1);
        flags |= __shfl_xor_sync(ALL_LANES, flags, 2);
        if ((lane & 3) == 0 && lane + 32 * h < 4 * count)
            out[1 + (lane >> 2) + 8 * h] = (u8)flags;
        const u32 data = plan.header + (c.before[h] & 0xffff);
        if (c.state[h] == COLUMN_SOME)
            put_bytes(out + next + 4 * (c.before[h] >> 16), c.ballot[h], 4);
        if (c.state[h] == COLUMN_SINGLE)
            out[data] = (u8)c.ballot[h];
        u32 stored = c.state[h] == COLUMN_SOME ? c.ballot[h] : c.state[h] == COLUMN_FULL ? ALL_LANES : 0;
        ((uint2 *)places)[lane] = make_uint2(stored, data - 1);
        __syncwarp();
        const u32 *planes = h ? store.high : store.low;
#pragma unroll 2
        for (u32 b = 0; b < 8 && b + 8 * h < count; b++)
            put_columns(out, (const uint4 *)places + 2 * b, up, planes[32 * b + lane]);
        __syncwarp(); // the places have been read
    }
}

#endif
