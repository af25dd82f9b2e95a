/* SPDX-License-Identifier: Apache-2.0 */
/* The two halves of the error-bounded codec; zvc is the same with a bound of 0. */
#ifndef COMET_CODEC_EB_H
#define COMET_CODEC_EB_H

#include "codec/codec_impl.h"

comet_status comet_eb_compress(const codec_compress_job *job);
comet_status comet_eb_decompress(const codec_decompress_job *job);
comet_status comet_eb_inspect(const stream_header *header, const uint8_t *body, size_t body_bytes,
                              comet_codec_info *info);
comet_status comet_eb_serialise(const stream_header *header, const uint8_t *body, uint8_t *out, size_t capacity,
                                size_t *used);
size_t comet_eb_workspace(const comet_tensor *tensor, const comet_codec_params *params, unsigned threads);

#endif
