// SPDX-License-Identifier: Apache-2.0
// The backward pass of a batch normalisation: numbers of channels, and the values of a tile.
//
// All is done with w, which is u with the sign of gamma: a channel is on above its threshold then, and no rounding
// changes.
#ifndef COMET_CODEC_CUDA_NORM_VALUES_CUH
#define COMET_CODEC_CUDA_NORM_VALUES_CUH

#include "codec/cuda/eb/eb_walk.cuh"
#include "codec/cuda/norm/norm_args.cuh"

// What all of these kernels have in shared memory.
struct NormShared {
    DecompressShared codec;
    quantiser y_q; // of the stream of y, where there is one
    StreamView y_view;
};

template <int REACH, bool AHEAD> struct NormBackwardShared : NormShared {
    // Numbers of channels. Where channels come last a warp finds the same ones in all of its tiles, and in the end the
    // first words are its lanes' sums.
    alignas(16) float tables[GROUP_TILES][2 * table_words(REACH)];
    alignas(16) uint2 ahead[AHEAD ? GROUP_TILES : 1][AHEAD ? AHEAD_PAIRS : 1]; // dy

    __device__ __forceinline__ float2 *sums_of(u32 warp) {
        return (float2 *)tables[warp];
    }
};

// ---- numbers of channels ----

// {scale, shift, threshold, sign}: w = fma(m, scale, shift), m being a code + 192, or x; on is w > threshold.
template <int FROM>
__device__ __forceinline__ float4 norm_numbers(const NormBackwardArgs &args, const quantiser_class &c, u32 channel) {
    const NormTables &t = args.tables;
    const float gamma = __ldg(t.gamma + channel), threshold = __ldg(t.threshold + channel);
    const float sign = gamma < 0.0f ? -1.0f : 1.0f;
    const float scale = FROM == NORM_FROM_X ? __ldg(t.scale + channel) : c.step;
    const float shift = FROM == NORM_FROM_X ? __ldg(t.shift + channel) : quantiser_grid(&c, threshold, gamma).base;
    return make_float4(__fmul_rn(sign, scale), __fmul_rn(sign, shift), __fmul_rn(sign, threshold), sign);
}

// How codes of up to +-64 say whether their channel is on, four of them at once: the top bits of the bytes of
// (code + 64) * factor + summand. No byte of that carries into the next. In tables the summand stands in place of the
// sign, the factor behind the coefficients.
struct NormSide {
    u32 factor, summand;
};

__device__ __forceinline__ NormSide norm_side(const quantiser_class &c, float threshold, float gamma) {
    const bool is_down = gamma < 0.0f; // on below the threshold
    const int code = quantiser_grid(&c, threshold, gamma).code;
    int above = threshold > 0.0f || (is_down && threshold != threshold) ? 128 : 0; // codes + 64 from here on
    if (quantiser_is_near(&c, threshold))
        above = min(max(code + 64, 0), 128);
    return {is_down ? ~0u : 1u, 0x01010101u * (u32)(is_down ? 127 + above : 128 - above)};
}

// Puts what a pass needs of a tile's channels into its warp's tables; SIDES: how codes say what is on, as well. False:
// there are too many maps.
template <int REACH, int FROM, int PASS, bool SIDES = false>
__device__ __forceinline__ bool norm_make_tables(const NormBackwardArgs &args, const quantiser_class &c,
                                                 const TileStart &s, u32 lane, float *table, TileMaps &maps) {
    const Geometry &g = args.codec.geometry;
    const ChannelMap &map = args.codec.channel_map;
    auto side = [&](u32 channel) {
        return norm_side(c, __ldg(args.tables.threshold + channel), __ldg(args.tables.gamma + channel));
    };
    if (!make_table<REACH>(g, map, s, lane, table, maps, [&](u32 channel) {
            float4 n = norm_numbers<FROM>(args, c, channel);
            if (SIDES)
                n.w = __uint_as_float(side(channel).summand);
            return n;
        }))
        return false;
    if (PASS == NORM_DX || SIDES)
        fill_table<REACH>(g, map, s, lane, table + table_words(REACH), maps, [&](u32 channel) {
            float4 k = {};
            if (PASS == NORM_DX)
                k = __ldg(args.sums.coefficients + channel);
            if (SIDES)
                k.w = __uint_as_float(side(channel).factor);
            return k;
        });
    return true;
}

// ---- values of a tile without padding ----

// Codes of a tile as words, one byte a value (word_of, byte_of). False: it is of another form, or not valid.
template <int REACH, class Accept>
__device__ __forceinline__ bool norm_words(const TileSource &source, u32 lane, u32 (&words)[8], Accept accept) {
    u32 u[8];
    if (!narrow_codes<REACH>(source, lane, u, accept))
        return false;
    exchange_back<REACH>(u, lane, (u32 *)source.stage, words);
    return true;
}

// Whether codes of u can be decoded here, and how they become values.
__device__ __forceinline__ bool norm_accepts(const quantiser &q, const TileHead &head, Form &form) {
    form = head.class_index ? FORM_FAR : FORM_GRID;
    return head.class_index <= 1 && q.classes[0].step != 0.0f;
}

// Those of u.
template <int REACH>
__device__ __forceinline__ bool norm_decode(const quantiser &q, const TileSource &source, u32 lane, u32 (&words)[8],
                                            Form &form) {
    form = FORM_GRID;
    return norm_words<REACH>(source, lane, words, [&](const TileHead &head) { return norm_accepts(q, head, form); });
}

// Four biased codes of up to +-64 as codes + 64.
__device__ __forceinline__ u32 norm_near(u32 word) {
    return word - 0x40404040u;
}

// m of a thread's values: from words of codes, or from those of x.
template <int REACH, int DTYPE, int FROM> struct NormSource {
    u32 words[FROM == NORM_FROM_STREAM ? 8 : 1];
    u32 x[FROM == NORM_FROM_X ? 8 : 1][PIECE_WORDS<DTYPE>];

    template <int FORM> __device__ __forceinline__ float at(int a, int e) const {
        if constexpr (FROM == NORM_FROM_X) {
            return packed_value<DTYPE>(x, a, e);
        } else {
            const u32 word = words[word_of<REACH>(a, e)];
            const int byte = byte_of<REACH>(a, e);
            return FORM == FORM_GRID ? fine_float(norm_near(word), byte) : far_float(word, byte);
        }
    }
};

// ---- masks of 16-bit values ----

// Values that are off become 0. on: the top bits of bytes, by word_of and byte_of.
template <int REACH> __device__ __forceinline__ void norm_keep_pairs(const u32 (&on)[8], u32 (&w)[8][2]) {
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
        const int a = i / 4, e = i % 4;
        const u32 low = 8 | byte_of<REACH>(a, e), high = 8 | (4 + byte_of<REACH>(a, e + 1));
        w[a][e / 2] &= permute_by(on[word_of<REACH>(a, e)], on[word_of<REACH>(a, e + 1)], 0x11 * low + 0x1100 * high);
    }
}

// ---- any tile, value by value ----

// Tells visit.value(place, channel, w, dz) of every value, between visit.next() and visit.end().
template <int REACH, int DTYPE, int PASS, class Visit> struct NormRare {
    typedef typename Pattern<DTYPE>::Word Word;
    const NormArgs<PASS> &args;
    TileChannels<REACH> channels;
    Visit &visit;
    mutable u32 on; // NORM_MASKED_SUMS: bit 0 says whether the value at hand is on, the others, of the next ones
    // Of the channel of the last value, as the next one mostly has the same; base: of its grid.
    mutable u32 known = ~0u;
    mutable float gamma = 0.0f, threshold = 0.0f, base = 0.0f;

    __device__ __forceinline__ NormRare(const NormArgs<PASS> &a, const TileChannels<REACH> &c, Visit &v, u32 mask)
        : args(a), channels(c), visit(v), on(mask) {}

    __device__ __forceinline__ void next() const {
        visit.next();
    }
    __device__ __forceinline__ void end() const {
        visit.end();
        on >>= 1;
    }
    // c: the class of codes, or NULL if there are none.
    __device__ __forceinline__ u32 know_channel(const RarePlace &place, const quantiser_class *c) const {
        const u32 channel = rare_channel<REACH>(channels, place);
        if (channel != known) {
            known = channel;
            gamma = __ldg(args.tables.gamma + channel), threshold = __ldg(args.tables.threshold + channel);
            if (c)
                base = quantiser_grid(c, threshold, gamma).base;
        }
        return channel;
    }
    __device__ __forceinline__ void take(const RarePlace &place, u32 channel, float u) const {
        u32 dy = read1 < DTYPE,
            PASS == NORM_MASKED_SUMS ? LOAD_WRITTEN : LOAD_AGAIN > ((const Word *)args.dy + place.index);
        if constexpr (PASS == NORM_MASKED_SUMS) {
            dy = on & 1 ? dy : 0;
            ((Word *)args.dz)[place.index] = (Word)dy;
        }
        const bool is_off = norm_is_off(u, threshold, gamma);
        visit.value(place, channel, gamma < 0.0f ? -u : u, is_off ? 0.0f : float_of_pattern<DTYPE>(dy));
    }
    __device__ __forceinline__ void code(const RarePlace &place, int code, const quantiser_class &c) const {
        const u32 channel = know_channel(place, &c);
        take(place, channel, value_of_code(code, c, base));
    }
    __device__ __forceinline__ void pattern(const RarePlace &place, u32 p) const {
        const u32 channel = know_channel(place, NULL);
        take(place, channel, __uint_as_float(p));
    }
    __device__ __forceinline__ void of_x(const RarePlace &place) const {
        const u32 channel = know_channel(place, NULL);
        const float x = float_of_pattern<DTYPE>(read1<DTYPE>((const Word *)args.x + place.index));
        take(place, channel, __fmaf_rn(__ldg(args.tables.scale + channel), x, __ldg(args.tables.shift + channel)));
    }
};

// `on`: see NormRare. False: the tile is not valid.
template <int REACH, int DTYPE, int FROM, int PASS, class Visit>
__device__ __forceinline__ bool norm_visit(const NormArgs<PASS> &args, const quantiser &q, const TileSource &source,
                                           u32 tile, u32 lane, u32 on, Visit &visit) {
    const Geometry &g = args.codec.geometry;
    const TileStart s = tile_start<REACH>(g, tile);
    const NormRare<REACH, DTYPE, PASS, Visit> rare(args, TileChannels<REACH>(args.codec.channel_map, g, s, lane), visit,
                                                   on);
    // lane j asks for what all lanes take as their j-th value, side by side
    const RarePlace line = rare_place_of<REACH>(g, s, rare_index<REACH>(lane, 0));
    if (line.is_real)
        ask_for_line((const typename Pattern<DTYPE>::Word *)args.dy + line.index);
    if constexpr (FROM == NORM_FROM_STREAM) {
        return visit_tile<REACH>(g, q, source, tile, lane, rare);
    } else {
#pragma unroll 1
        for (u32 j = 0; j < 32; j++) {
            const RarePlace place = rare_place_of<REACH>(g, s, rare_index<REACH>(j, lane));
            rare.next();
            if (place.is_real)
                rare.of_x(place);
            rare.end();
        }
        return true;
    }
}

#endif
