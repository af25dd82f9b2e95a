// SPDX-License-Identifier: Apache-2.0
// What one look at a tile's values finds: their range, which decides how they are coded, and the statistics, summed in
// the order of docs/format.md, section 5.
#ifndef COMET_CODEC_CUDA_TILE_SURVEY_CUH
#define COMET_CODEC_CUDA_TILE_SURVEY_CUH

#include "codec/cuda/tile/values.cuh"

struct Survey {
    u32 magnitude;   // bit pattern of the largest |value|; above 0x7f7fffff: a NaN or an infinity is there
    int least, most; // of the finite values, in an order of integers (ordered()); most < least: there are none
    u32 nonzero, positive, nonfinite;
    double sum; // lane 0: of |value|; lane SQUARES_LANE: of the squares
};

enum { SQUARES_LANE = 16 };

constexpr u32 LARGEST_FINITE = 0x7f7fffffu;

// Floats as integers in the same order; its own inverse.
__device__ __forceinline__ int ordered(float v) {
    int bits = __float_as_int(v);
    return bits ^ (bits >> 31 & 0x7fffffff);
}
__device__ __forceinline__ float unordered(int i) {
    return __int_as_float(i ^ (i >> 31 & 0x7fffffff));
}

// ---- sums ----

__device__ __forceinline__ float magnitude_of(float x) {
    return fabsf(x);
}
__device__ __forceinline__ double magnitude_of(double x) {
    return fabs(x);
}
__device__ __forceinline__ float add_abs(float sum, float x) {
    return __fadd_rn(sum, fabsf(x));
}
__device__ __forceinline__ float add_square(float sum, float x) {
    return __fmaf_rn(x, x, sum);
}
__device__ __forceinline__ float first_square(float x) {
    return __fmul_rn(x, x);
}
__device__ __forceinline__ float plus(float a, float b) {
    return __fadd_rn(a, b);
}
__device__ __forceinline__ double add_abs(double sum, double x) {
    return __dadd_rn(sum, fabs(x));
}
__device__ __forceinline__ double add_square(double sum, double x) {
    return __dadd_rn(sum, __dmul_rn(x, x)); // the product of two fp32 is exact
}
__device__ __forceinline__ double first_square(double x) {
    return __dmul_rn(x, x);
}
__device__ __forceinline__ double plus(double a, double b) {
    return __dadd_rn(a, b);
}

// Both sums over a warp at once: the lower half of the lanes gets that of |value|, the upper one that of the squares.
// Pairs of lanes are added at distance 16, 8, 4, 2, 1, where reach says that they differ. Other work goes well between
// the steps, each of which has to wait for the one before.
template <int REACH, class Number> struct TileSums {
    Number mine, coming;

    __device__ __forceinline__ void start(Number sum_abs, Number sum_squares, u32 lane) {
        const bool upper = lane & SQUARES_LANE;
        mine = upper ? sum_squares : sum_abs;
        coming = __shfl_xor_sync(ALL_LANES, upper ? sum_abs : sum_squares, 16);
    }
    template <int DISTANCE> __device__ __forceinline__ void next() {
        if (REACH == REACH_LAST1 && DISTANCE < 4)
            return;
        mine = plus(mine, coming);
        coming = __shfl_xor_sync(ALL_LANES, mine, DISTANCE);
    }
    __device__ __forceinline__ Number end() {
        return plus(mine, coming);
    }
    __device__ __forceinline__ Number rest() {
        next<8>(), next<4>(), next<2>(), next<1>();
        return end();
    }
};

// take(a, e) gives v[a][e] as a Number.
template <int REACH, class Number, class Take>
__device__ __forceinline__ TileSums<REACH, Number> tile_sums(u32 lane, Take take) {
    TileSums<REACH, Number> sums;
    Number s[4], q[4];
    if (REACH == REACH_LAST1) { // places 32 m + l: a thread has m and m + 4, its neighbours the rest of a quad
#pragma unroll
        for (int m = 0; m < 4; m++) {
            Number half_s[2], half_q[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                Number x = take(m + 4 * h, 0);
                half_s[h] = magnitude_of(x);
                half_q[h] = first_square(x);
#pragma unroll
                for (int k = 1; k < 4; k++) {
                    x = take(m + 4 * h, k);
                    half_s[h] = add_abs(half_s[h], x);
                    half_q[h] = add_square(half_q[h], x);
                }
            }
            s[m] = plus(half_s[0], half_s[1]);
            q[m] = plus(half_q[0], half_q[1]);
#pragma unroll
            for (int d = 1; d <= 2; d *= 2) {
                s[m] = plus(s[m], __shfl_xor_sync(ALL_LANES, s[m], d));
                q[m] = plus(q[m], __shfl_xor_sync(ALL_LANES, q[m], d));
            }
        }
        sums.start(plus(plus(s[0], s[2]), plus(s[1], s[3])), plus(plus(q[0], q[2]), plus(q[1], q[3])), lane);
        return sums;
    }
    constexpr int RUN = REACH == REACH_FLAT ? 8 : 4; // values summed one after the other
#pragma unroll
    for (int e = 0; e < 4; e++) {
        Number half_s[2], half_q[2];
#pragma unroll
        for (int h = 0; h < 8 / RUN; h++) {
            Number x = take(RUN * h, e);
            half_s[h] = magnitude_of(x);
            half_q[h] = first_square(x);
#pragma unroll
            for (int k = 1; k < RUN; k++) {
                x = take(RUN * h + k, e);
                half_s[h] = add_abs(half_s[h], x);
                half_q[h] = add_square(half_q[h], x);
            }
        }
        s[e] = RUN == 8 ? half_s[0] : plus(half_s[0], half_s[8 / RUN - 1]);
        q[e] = RUN == 8 ? half_q[0] : plus(half_q[0], half_q[8 / RUN - 1]);
    }
    sums.start(plus(plus(s[0], s[1]), plus(s[2], s[3])), plus(plus(q[0], q[1]), plus(q[2], q[3])), lane);
    return sums;
}

// ---- range and counts ----

// One more if x > 0: counts start at 2^23, where adding anything in (0, 1], rounded up, adds 1.
__device__ __forceinline__ void count_positive(float &n, float x) {
    n = __fmaf_ru(x, 0x1p-128f, n);
}

// Sums are in fp32 unless a value is so large or small that its square would leave the range of fp32.
__device__ __forceinline__ bool sums_fit_f32(u32 magnitude) {
    return magnitude == 0 || (magnitude >= 0x2b800000u && magnitude <= 0x53800000u); // 2^-40, 2^40
}

// Calls visit(v[a][e], v[a'][e']) for pairs.
template <class Visit> __device__ __forceinline__ void for_pairs(const float (&v)[8][4], Visit visit) {
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e += 2)
            visit(v[a][e], v[a][e + 1]);
}

// The range of a tile, from two orders of bit patterns that the machine compares three at a time: as signed integers
// the greatest is the greatest value (if one is not negative), as unsigned ones it is the least value (if one is
// negative).
struct Range {
    int most; // patterns, not ordered(): see survey_plain
    u32 least;
};

// Of a thread's values as they lie in memory.
__device__ __forceinline__ Range range_of_words(const u32 (&w)[8][4]) {
    Range r = {(int)w[0][0], w[0][0]};
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) {
            r.most = max3(r.most, (int)w[a][e], (int)w[a][e + 1]);
            r.least = max3(r.least, w[a][e], w[a][e + 1]);
        }
    r.most = __reduce_max_sync(ALL_LANES, r.most);
    r.least = __reduce_max_sync(ALL_LANES, r.least);
    return r;
}

__device__ __forceinline__ Range range_of_values(const float (&v)[8][4]) {
    u32 w[8][4];
#pragma unroll
    for (int i = 0; i < 32; i++)
        w[i / 4][i % 4] = __float_as_uint(v[i / 4][i % 4]);
    return range_of_words(w);
}

// The same of values of 16 bits, two at a time.
template <int DTYPE> __device__ __forceinline__ Range range_of_halves(const u32 (&w)[8][2]) {
    u32 most = w[0][0], least = most;
#pragma unroll
    for (int a = 0; a < 8; a++) {
        most = max3_halves_signed(most, w[a][0], w[a][1]);
        least = max3_halves(least, w[a][0], w[a][1]);
    }
    const int both_most = max((int)(int16_t)most, (int)most >> 16);
    const u32 both_least = max(least & 0xffff, least >> 16);
    Range r;
    r.most = __float_as_int(float_of_pattern<DTYPE>((u32)__reduce_max_sync(ALL_LANES, both_most) & 0xffff));
    r.least = __float_as_uint(float_of_pattern<DTYPE>(__reduce_max_sync(ALL_LANES, both_least)));
    return r;
}

template <int DTYPE> __device__ __forceinline__ Range range_of_packed(const u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    if constexpr (DTYPE == COMET_F32)
        return range_of_words(w);
    else
        return range_of_halves<DTYPE>(w);
}

__device__ __forceinline__ u32 magnitude_of(const Range &r) {
    return max((u32)max(r.most, 0), r.least & 0x7fffffffu);
}

// ---- the greatest magnitude alone ----

// All that quantising needs to know: the pattern of the greatest |value|, or the least pattern but 0. The two orders
// are those of a Range.
struct Magnitude {
    int most = 1;
    u32 least = 0;

    __device__ __forceinline__ void add(u32 a, u32 b) {
        most = max3(most, (int)a, (int)b);
        least = max3(least, a, b);
    }
    __device__ __forceinline__ u32 of_warp() const {
        return __reduce_max_sync(ALL_LANES, max((u32)most, least & 0x7fffffffu));
    }
};

// The greater half of a word over a warp, as fp32; halves that are 0 count as 1.
template <int DTYPE> __device__ __forceinline__ u32 greatest_half(u32 halves) {
    const u32 most = __reduce_max_sync(ALL_LANES, max3(halves & 0xffff, halves >> 16, 1u));
    return __float_as_uint(float_of_pattern<DTYPE>(most));
}

template <int DTYPE> __device__ __forceinline__ u32 magnitude_of_packed(const u32 (&w)[8][PIECE_WORDS<DTYPE>]) {
    if constexpr (DTYPE == COMET_F32) {
        Magnitude magnitude;
#pragma unroll
        for (int a = 0; a < 8; a++)
            magnitude.add(w[a][0], w[a][1]), magnitude.add(w[a][2], w[a][3]);
        return magnitude.of_warp();
    } else {
        u32 most = 0, least = 0;
#pragma unroll
        for (int a = 0; a < 8; a++) {
            most = max3_halves_signed(most, w[a][0], w[a][1]);
            least = max3_halves(least, w[a][0], w[a][1]);
        }
        return greatest_half<DTYPE>(max3_halves(most, least & 0x7fff7fffu, 0));
    }
}

// The same of values of which mostly none is negative: then the greatest pattern says all.
template <int DTYPE>
__device__ __forceinline__ u32 magnitude_of_mask(const u32 (&w)[8][PIECE_WORDS<DTYPE>], bool &has_negative) {
    u32 top = 1;
#pragma unroll
    for (int a = 0; a < 8; a++)
#pragma unroll
        for (int i = 0; i < PIECE_WORDS<DTYPE>; i += 2)
            top = DTYPE == COMET_F32 ? max3(top, w[a][i], w[a][i + 1]) : max3_halves(top, w[a][i], w[a][i + 1]);
    top = DTYPE == COMET_F32 ? __reduce_max_sync(ALL_LANES, top) : greatest_half<DTYPE>(top);
    has_negative = top >> 31;
    return has_negative ? magnitude_of_packed<DTYPE>(w) : top;
}

// ---- what statistics need ----

// The least pattern as an unsigned integer: the least value if all are positive, the greatest if all are negative.
__device__ __forceinline__ u32 least_pattern(const float (&v)[8][4]) {
    u32 least = ~0u;
    for_pairs(v, [&](float x, float y) { least = min3(least, __float_as_uint(x), __float_as_uint(y)); });
    return __reduce_min_sync(ALL_LANES, least);
}

// Statistics of a tile without padding whose values are finite and whose sums fit fp32, but for the sums.
__device__ __forceinline__ void survey_plain(const float (&v)[8][4], const Range &r, Survey &s) {
    const bool has_negative = r.least >> 31;
    float positive = 0x1p23f, negative = 0x1p23f;
    for_pairs(v, [&](float x, float y) {
        count_positive(positive, x);
        count_positive(positive, y);
    });
    if (has_negative)
        for_pairs(v, [&](float x, float y) {
            count_positive(negative, -x);
            count_positive(negative, -y);
        });
    u32 counts =
        __reduce_add_sync(ALL_LANES, (__float_as_uint(negative) & 0xffffu) + (__float_as_uint(positive) << 16));
    s.positive = counts >> 16;
    s.nonzero = s.positive + (counts & 0xffffu);
    s.nonfinite = 0;
    u32 most = (u32)r.most, least = has_negative ? r.least : 0;
    if (r.most < 0)
        most = least_pattern(v);
    else if (s.positive == 1024)
        least = least_pattern(v);
    s.most = ordered(__uint_as_float(most));
    s.least = ordered(__uint_as_float(least));
}

template <int REACH> __device__ __forceinline__ TileSums<REACH, float> plain_sums(const float (&v)[8][4], u32 lane) {
    return tile_sums<REACH, float>(lane, [&](int i, int e) { return v[i][e]; });
}

#endif
