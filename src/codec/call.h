/* SPDX-License-Identifier: Apache-2.0 */
/* What the public calls on the CPU and on a GPU have in common: taking arguments, and most of the header. */
#ifndef COMET_CODEC_CALL_H
#define COMET_CODEC_CALL_H

#include "codec/codec_impl.h"

enum { CODEC_COUNT = COMET_CODEC_DCT + 1 };

/* By comet_codec. */
extern const codec_vtable *const comet_codecs[CODEC_COUNT];

/* comet_sized_read for the structs that all calls take. `given` may be NULL only for exec. */
comet_status comet_call_params(comet_codec_params *params, const comet_codec_params *given);
comet_status comet_call_exec(comet_codec_exec *exec, const comet_codec_exec *given);

/* Whether the enums in the parameters are ones that exist. */
comet_status comet_call_choices(const comet_codec_params *params);

/* The header before the codec fills in its own fields. */
void comet_call_header(const comet_tensor *tensor, const comet_codec_params *params, stream_header *header);

/* What the header and the size of the body alone can tell of a stream. */
comet_status comet_call_stream(const stream_header *header);

#endif
