/* SPDX-License-Identifier: Apache-2.0 */
/* Which instruction sets this machine has. */
#ifndef COMET_CODEC_ISA_H
#define COMET_CODEC_ISA_H

#include "comet/codec.h"

/* AUTO becomes the best one here; any other is itself, or COMET_ERROR_UNSUPPORTED. */
comet_status comet_isa_resolve(comet_isa wanted, comet_isa *isa);

#endif
