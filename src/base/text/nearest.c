/* SPDX-License-Identifier: Apache-2.0 */
#include "base/text/nearest.h"

#include <ctype.h>
#include <string.h>

enum { MOST_LENGTH = 48 }; /* longer names are not compared */

static int lower(char c) {
    return tolower((unsigned char)c);
}

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Three rows of the table are enough: swaps look two rows back. */
size_t comet_edit_distance(const char *a, const char *b, size_t most) {
    const size_t n = strlen(a), m = strlen(b);
    size_t rows[3][MOST_LENGTH + 1];
    if (n > MOST_LENGTH || m > MOST_LENGTH)
        return most + 1;
    for (size_t j = 0; j <= m; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t *row = rows[i % 3];
        const size_t *above = rows[(i + 2) % 3], *before = rows[(i + 1) % 3];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            row[j] = least(least(above[j], row[j - 1]) + 1, above[j - 1] + (lower(a[i - 1]) != lower(b[j - 1])));
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
                row[j] = least(row[j], before[j - 2] + 1);
        }
    }
    return rows[n % 3][m];
}

/* A third of the letters may be wrong, and no more than three. */
const char *comet_nearest(const char *name, const char *(*at)(const void *context, int index), const void *context) {
    const size_t length = strlen(name), part = (length + 1) / 3;
    size_t most = part < 3 ? part : 3;
    const char *found = NULL, *candidate;
    for (int i = 0; (candidate = at(context, i)); i++) {
        const size_t distance = comet_edit_distance(name, candidate, most);
        if (distance > most || (found && distance == most))
            continue;
        found = candidate;
        most = distance;
    }
    return found;
}
