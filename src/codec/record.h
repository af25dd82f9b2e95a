/* SPDX-License-Identifier: Apache-2.0 */
/* Between the fixed form of what compressing made and the one that can grow. */
#ifndef COMET_CODEC_RECORD_H
#define COMET_CODEC_RECORD_H

#include "comet/codec.h"

static inline comet_codec_record comet_codec_record_of(const comet_codec_result *r) {
    return (comet_codec_record){.bytes = r->bytes,
                                .bound = r->bound,
                                .tiles = r->tiles,
                                .tiles_exact = r->tiles_exact,
                                .tiles_wide = r->tiles_wide,
                                .stats = r->stats};
}

static inline comet_codec_result comet_codec_result_of(const comet_codec_record *r) {
    return (comet_codec_result){.size = sizeof(comet_codec_result),
                                .bytes = r->bytes,
                                .bound = r->bound,
                                .tiles = r->tiles,
                                .tiles_exact = r->tiles_exact,
                                .tiles_wide = r->tiles_wide,
                                .stats = r->stats};
}

#endif
