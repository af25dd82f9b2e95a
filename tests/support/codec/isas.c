/* SPDX-License-Identifier: Apache-2.0 */
#include "support/codec/isas.h"

#include <stdio.h>

static const comet_isa all[] = {COMET_ISA_REFERENCE, COMET_ISA_AVX2, COMET_ISA_AVX512};

const char *isa_name(comet_isa isa) {
    static const char *const names[] = {"auto", "reference", "avx2", "avx512"};
    return (unsigned)isa < sizeof names / sizeof *names ? names[isa] : "?";
}

/* Without SIMD code in the build there is nothing to compare, whatever the machine has. */
static int is_built(comet_isa isa) {
#if defined(COMET_X86_64)
    (void)isa;
    return 1;
#else
    return isa == COMET_ISA_REFERENCE;
#endif
}

isa_list isa_list_get(void) {
    isa_list list = {.count = 0};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (is_built(all[i]) && comet_isa_supported(all[i]))
            list.isa[list.count++] = all[i];
    return list;
}

void isa_list_print(void) {
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        const char *why = !is_built(all[i])              ? "skipped: not built for this machine"
                          : !comet_isa_supported(all[i]) ? "skipped: this CPU does not have it"
                                                         : "tested";
        printf("instruction set %s: %s\n", isa_name(all[i]), why);
    }
    fflush(stdout);
}
