/* SPDX-License-Identifier: Apache-2.0 */
/* Types, sizes and characters of .safetensors files. */
#include "data/files/safetensors_impl.h"

static const struct {
    const char *name;
    size_t bytes;
    int rank;
} types[COMET_SAFETENSORS_TYPES] = {
    [COMET_SAFETENSORS_F32] = {"F32", 4, 2},   [COMET_SAFETENSORS_F16] = {"F16", 2, 5},
    [COMET_SAFETENSORS_BF16] = {"BF16", 2, 4}, [COMET_SAFETENSORS_F64] = {"F64", 8, 1},
    [COMET_SAFETENSORS_I64] = {"I64", 8, 0},   [COMET_SAFETENSORS_I32] = {"I32", 4, 3},
    [COMET_SAFETENSORS_U8] = {"U8", 1, 6},
};

const char *comet_safetensors_type_name(comet_safetensors_type type) {
    return types[type].name;
}

size_t comet_safetensors_type_bytes(comet_safetensors_type type) {
    return types[type].bytes;
}

int comet_safetensors_type_rank(comet_safetensors_type type) {
    return types[type].rank;
}

int comet_safetensors_size(const comet_safetensors_entry *entry, uint64_t *bytes) {
    uint64_t most = (uint64_t)INT64_MAX, total = types[entry->type].bytes;
    if (entry->ndim < 0 || entry->ndim > COMET_SAFETENSORS_MOST_DIMS)
        return 0;
    for (int32_t d = 0; d < entry->ndim; d++) {
        if (entry->shape[d] < 0 || (entry->shape[d] > 0 && total > most / (uint64_t)entry->shape[d]))
            return 0;
        total *= (uint64_t)entry->shape[d];
    }
    *bytes = total;
    return 1;
}

size_t comet_safetensors_utf8(const char *text, size_t left) {
    const unsigned char *c = (const unsigned char *)text;
    if (c[0] < 0x80)
        return 1;
    size_t length = c[0] >= 0xf0 ? 4 : c[0] >= 0xe0 ? 3 : 2;
    if (c[0] < 0xc2 || c[0] > 0xf4 || left < length)
        return 0;
    for (size_t i = 1; i < length; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    int overlong = (c[0] == 0xe0 && c[1] < 0xa0) || (c[0] == 0xf0 && c[1] < 0x90);
    int outside = (c[0] == 0xed && c[1] >= 0xa0) || (c[0] == 0xf4 && c[1] >= 0x90); /* surrogates; beyond U+10FFFF */
    return overlong || outside ? 0 : length;
}
