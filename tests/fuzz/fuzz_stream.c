/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile stream: inspect it, and decompress it into a tensor of the shape its header claims, if that is small. Every
 * instruction set gives the same answer. The input is the stream; its checksum and length are put right first, as no
 * fuzzer would find them. A grid gets thresholds from the stream's own bytes.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "comet/codec.h"
#include "common/expect.h"
#include "support/codec/isas.h"

enum { MOST_VALUES = 1 << 16, MOST_CHANNELS = 1 << 12 };

static void mend(uint8_t *stream, size_t size) {
    uint64_t length = size;
    if (size < 128)
        return;
    if (stream[127] & 1) /* one time in two; the byte must be 0 in a stream of fewer than 8 dimensions */
        stream[127] ^= 1;
    else
        memcpy(stream + 16, &length, sizeof length);
    memset(stream + 24, 0, 4);
    if (stream[10] & 1) {
        uint64_t whole;
        memcpy(&whole, stream + 16, sizeof whole);
        uint32_t crc = whole <= size ? (uint32_t)crc32_z(0, stream, (size_t)whole) : 0;
        memcpy(stream + 24, &crc, sizeof crc);
    }
}

static int64_t channels_of(const comet_codec_info *info) {
    if (info->layout == COMET_NHWC && info->ndim >= 1)
        return info->shape[info->ndim - 1];
    return info->layout == COMET_NCHW && info->ndim >= 3 ? info->shape[1] : 1;
}

/* Thresholds from the stream's bytes, slopes of both signs. Returns NULL where there is no grid. */
static const comet_codec_grid *grid_of(const comet_codec_info *info, const uint8_t *stream, size_t size,
                                       comet_codec_grid *grid) {
    static float threshold[MOST_CHANNELS], slope[MOST_CHANNELS];
    if (!info->has_grid || channels_of(info) > MOST_CHANNELS)
        return NULL;
    for (int64_t c = 0; c < channels_of(info); c++) {
        memcpy(&threshold[c], stream + (size_t)c * 4 % (size - 3), sizeof *threshold);
        slope[c] = stream[(size_t)c % size] & 1 ? -1.0f : 1.0f;
    }
    *grid = (comet_codec_grid){channels_of(info), NULL, NULL, threshold, slope};
    return grid;
}

static void decode_with_all(const comet_codec_info *info, const uint8_t *stream, size_t size) {
    isa_list isas = isa_list_get();
    comet_codec_grid grid;
    size_t bytes = (size_t)info->count * comet_dtype_size(info->dtype);
    void *memory[2] = {malloc(bytes ? bytes : 1), malloc(bytes ? bytes : 1)};
    comet_status expected = COMET_OK;
    EXPECT(memory[0] && memory[1]);
    for (int i = 0; i < isas.count; i++) {
        comet_tensor t;
        comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
        exec.isa = isas.isa[i];
        memset(memory[i != 0], 0, bytes);
        EXPECT(comet_tensor_init(&t, memory[i != 0], info->dtype, info->layout, info->ndim, info->shape) == COMET_OK);
        comet_status status = comet_codec_decompress(stream, size, grid_of(info, stream, size, &grid), &exec, &t);
        if (i == 0)
            expected = status;
        EXPECT(status == expected);
        EXPECT(i == 0 || status != COMET_OK || bytes == 0 || memcmp(memory[0], memory[1], bytes) == 0);
    }
    free(memory[0]);
    free(memory[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint8_t *stream = malloc(size ? size : 1);
    comet_codec_info info = COMET_CODEC_INFO_INIT;
    EXPECT(stream);
    if (size)
        memcpy(stream, data, size);
    mend(stream, size);
    comet_status status = comet_codec_inspect(stream, size, &info);
    if (status == COMET_OK && info.count <= MOST_VALUES)
        decode_with_all(&info, stream, size);
    free(stream);
    return 0;
}
