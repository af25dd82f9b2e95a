/* SPDX-License-Identifier: Apache-2.0 */
/* Are the stand-in's numbers those of cuBLASLt's own header? Compiled where there is one; never run. */
#include <cublasLt.h>

#include "emulation/train/cublaslt_numbers.h"

#define CHECK_NUMBER(name, number) _Static_assert(name == number, #name " is not " #number);
#define CHECK_NUMBERS(type)        NUMBERS_OF_##type(CHECK_NUMBER)
CUBLASLT_ENUMERATIONS(CHECK_NUMBERS)

/* Sizes of what is handed over by value, and of what attributes are written with. */
_Static_assert(sizeof(cublasLtMatmulAlgo_t) == 64, "an algorithm is 64 bytes");
_Static_assert(sizeof(cublasLtMatmulHeuristicResult_t) == 96, "a result is 96 bytes");
_Static_assert(sizeof(cublasLtEpilogue_t) == 4, "an epilogue is 4 bytes");

typedef int comet_iso_c_wants_a_declaration;
