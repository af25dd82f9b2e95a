/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/isa.h"

#include "base/fail.h"
#include "base/isa.h"

/* What the kernels of eb need on top: vectors of bytes shifted, permuted, compressed and counted. */
static int has_all_avx512(void) {
#ifdef COMET_X86_64
    return comet_has_avx512() && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2") &&
           __builtin_cpu_supports("avx512bitalg") && __builtin_cpu_supports("avx512vpopcntdq") &&
           __builtin_cpu_supports("gfni");
#else
    return 0;
#endif
}

int comet_isa_supported(comet_isa isa) {
    switch (isa) {
    case COMET_ISA_AUTO:
    case COMET_ISA_REFERENCE:
        return 1;
    case COMET_ISA_AVX2:
        return comet_has_avx2();
    case COMET_ISA_AVX512:
        return has_all_avx512();
    }
    return 0;
}

comet_status comet_isa_resolve(comet_isa wanted, comet_isa *isa) {
    COMET_REQUIRE((unsigned)wanted <= COMET_ISA_AVX512, "exec->isa is %d, which is none", (int)wanted);
    if (!comet_isa_supported(wanted))
        return comet_fail(COMET_ERROR_UNSUPPORTED, "exec->isa is %d, which this machine cannot run", (int)wanted);
    *isa = wanted;
    if (wanted == COMET_ISA_AUTO)
        *isa = has_all_avx512() ? COMET_ISA_AVX512 : comet_has_avx2() ? COMET_ISA_AVX2 : COMET_ISA_REFERENCE;
    return COMET_OK;
}
