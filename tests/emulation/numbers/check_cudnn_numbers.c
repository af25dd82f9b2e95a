/* SPDX-License-Identifier: Apache-2.0 */
/* Are the stand-in's numbers those of cuDNN's own header? Compiled where there is one; never run. */
#include <cudnn_graph.h>

#include "emulation/train/cudnn_numbers.h"

#if CUDNN_MAJOR < 9
#error "this is no cuDNN 9"
#endif

#define CHECK_NUMBER(name, number) _Static_assert(name == number, #name " is not " #number);
#define CHECK_NUMBERS(type)        NUMBERS_OF_##type(CHECK_NUMBER)
CUDNN_ENUMERATIONS(CHECK_NUMBERS)

typedef int comet_iso_c_wants_a_declaration;
