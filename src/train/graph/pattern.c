/* SPDX-License-Identifier: Apache-2.0 */
#include "train/graph/pattern.h"

#include <stddef.h>

int comet_pattern_fits(const char *pattern, const char *name) {
    const char *star = NULL, *from = name;
    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) { /* the last star takes one more */
            pattern = star;
            name = ++from;
        } else
            return 0;
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == 0;
}
