// SPDX-License-Identifier: Apache-2.0
// Decompressing: a tile that was found, brought into shared memory and decoded.
#ifndef COMET_CODEC_CUDA_EB_SOURCE_CUH
#define COMET_CODEC_CUDA_EB_SOURCE_CUH

#include "codec/cuda/eb/eb_stream.cuh"

// Where a tile was found, and where it is decoded.
struct TileSource {
    const u8 *from; // its bytes
    u32 entry;
    bool is_stageable;
    uint4 unit;   // first_unit of one that is
    u8 *stage;    // STAGE_BYTES of shared memory of the warp's own
    u32 *columns; // 64 words of it
};

// A tile's narrow codes as planes (read_planes), and this lane's first code; of one without bytes they are those of
// zeros. accept(head) says whether the tile is one to be decoded here. False: it is not, or not valid.
template <int REACH, class Accept>
__device__ __forceinline__ bool narrow_planes(const TileSource &source, u32 lane, TileHead &head, u32 (&w)[8],
                                              u32 &first, Accept accept) {
    const u32 size = source.entry;
    head = tile_head(0), first = 0;
    if (!source.is_stageable)
        return false;
    if (size) {
        const u32 at = stage_tile(source.from, size, source.unit, lane, source.stage);
        head = tile_head(source.stage[at]);
        if (!accept(head) || !find_columns<REACH>(source.stage, at, size, head, lane, source.columns, first))
            return false;
    }
    read_planes(source.stage, head, lane, source.columns, w);
    return true;
}

// The same as biased codes, this lane's columns; the stage has been read then.
template <int REACH, class Accept>
__device__ __forceinline__ bool narrow_codes(const TileSource &source, u32 lane, u32 (&u)[8], Accept accept) {
    TileHead head;
    u32 first;
    if (!narrow_planes<REACH>(source, lane, head, u, first, accept))
        return false;
    codes_of_planes<REACH>(u, head, first, lane);
    __syncwarp();
    return true;
}

#endif
