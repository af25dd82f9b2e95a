/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, names and lists on the command line. */
#include "cmd/common/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

static const char *const dtype_names[] = {
    [COMET_F32] = "f32", [COMET_F16] = "f16", [COMET_BF16] = "bf16", [COMET_U8] = "u8"};
static const char *const layout_names[] = {[COMET_FLAT] = "flat", [COMET_NCHW] = "nchw", [COMET_NHWC] = "nhwc"};
static const char *const isa_names[] = {[COMET_ISA_AUTO] = "auto",
                                        [COMET_ISA_REFERENCE] = "reference",
                                        [COMET_ISA_AVX2] = "avx2",
                                        [COMET_ISA_AVX512] = "avx512"};

static int find_name(const char *const *names, size_t count, const char *text) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], text) == 0)
            return (int)i;
    return -1;
}

int parse_number(const char *option, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text))
        return misuse("%s: '%s' is not a number", option, text);
    if (!isfinite(*value) || *value < 0)
        return misuse("%s: '%s' is not a finite number of 0 or more", option, text);
    return DONE;
}

int parse_integer(const char *option, const char *text, int64_t low, int64_t high, int64_t *value) {
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text))
        return misuse("%s: '%s' is not an integer", option, text);
    if (errno == ERANGE || number < low || number > high)
        return misuse("%s: %s is not between %lld and %lld", option, text, (long long)low, (long long)high);
    *value = number;
    return DONE;
}

int parse_seed(const char *option, const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 0);
    if (!isdigit((unsigned char)*text) || *end || errno == ERANGE)
        return misuse("%s: '%s' is not a 64-bit number", option, text);
    return DONE;
}

/* What a unit stands for; 0: nothing. */
static double unit_bytes(const char *unit) {
    static const char letters[] = "kmgt";
    const char *letter = *unit ? strchr(letters, tolower((unsigned char)*unit)) : NULL;
    if (!*unit || strcasecmp(unit, "b") == 0)
        return 1;
    if (!letter)
        return 0;
    int decimal = strcasecmp(unit + 1, "b") == 0;
    if (!decimal && unit[1] && strcasecmp(unit + 1, "ib") != 0)
        return 0;
    return pow(decimal ? 1000 : 1024, (double)(letter - letters + 1));
}

int parse_bytes(const char *option, const char *text, size_t *bytes) {
    char *end;
    double number = strtod(text, &end), unit = unit_bytes(end);
    if (end == text || !isdigit((unsigned char)*text) || !isfinite(number) || unit == 0)
        return misuse("%s: '%s' is not a size; write 2GiB, 500MB or a number of bytes", option, text);
    if (!(number * unit >= 1) || number * unit > 0x1p60)
        return misuse("%s: %s is not between 1 byte and 1 EiB", option, text);
    *bytes = (size_t)(number * unit);
    return DONE;
}

int parse_dtype(const char *option, const char *text, comet_dtype *dtype) {
    int found = find_name(dtype_names, sizeof dtype_names / sizeof *dtype_names, text);
    if (found < 0)
        return misuse("%s: '%s' is not one of f32, f16, bf16, u8", option, text);
    *dtype = (comet_dtype)found;
    return DONE;
}

int parse_layout(const char *option, const char *text, comet_layout *layout) {
    int found = find_name(layout_names, sizeof layout_names / sizeof *layout_names, text);
    if (found < 0)
        return misuse("%s: '%s' is not one of nchw, nhwc, flat", option, text);
    *layout = (comet_layout)found;
    return DONE;
}

int parse_isa(const char *option, const char *text, comet_isa *isa) {
    int found = find_name(isa_names, sizeof isa_names / sizeof *isa_names, text);
    if (found < 0)
        return misuse("%s: '%s' is not one of auto, avx512, avx2, reference", option, text);
    *isa = (comet_isa)found;
    return DONE;
}

int parse_list(const char *option, const char *text, text_list *list) {
    list->count = 0;
    if (strlen(text) >= sizeof list->text)
        return misuse("%s: the list is too long", option);
    strcpy(list->text, text);
    for (char *item = list->text; item;) {
        char *comma = strchr(item, ',');
        if (comma)
            *comma++ = '\0';
        if (!*item)
            return misuse("%s: '%s' has an empty entry", option, text);
        if (list->count == LIST_MAX)
            return misuse("%s: more than %d entries", option, LIST_MAX);
        list->items[list->count++] = item;
        item = comma;
    }
    return DONE;
}

int parse_shape(const char *option, const char *text, int32_t *ndim, int64_t *shape) {
    text_list list;
    if (parse_list(option, text, &list) != DONE)
        return MISUSED;
    if (list.count > COMET_MAX_DIMS)
        return misuse("%s: more than %d dimensions", option, COMET_MAX_DIMS);
    for (int d = 0; d < list.count; d++)
        if (parse_integer(option, list.items[d], 0, (int64_t)1 << 48, &shape[d]) != DONE)
            return MISUSED;
    *ndim = list.count;
    return DONE;
}

const char *layout_name(comet_layout layout) {
    return (unsigned)layout < sizeof layout_names / sizeof *layout_names ? layout_names[layout] : "?";
}

const char *isa_name(comet_isa isa) {
    return (unsigned)isa < sizeof isa_names / sizeof *isa_names ? isa_names[isa] : "?";
}

const char *dtype_option(comet_dtype dtype) {
    return (unsigned)dtype < sizeof dtype_names / sizeof *dtype_names ? dtype_names[dtype] : "?";
}
