/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/predict/tally.h"

#include <math.h>
#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/predict/classify.h"

enum { TOP = 5 };

int tally_init(tally *t, int classes) {
    const size_t count = (size_t)classes;
    *t = (tally){.classes = classes,
                 .confusion = calloc(count * count, sizeof *t->confusion),
                 .of_class = calloc(count, sizeof *t->of_class),
                 .right = calloc(count, sizeof *t->right)};
    if (t->confusion && t->of_class && t->right)
        return DONE;
    tally_free(t);
    return fail_memory();
}

void tally_free(tally *t) {
    free(t->confusion);
    free(t->of_class);
    free(t->right);
    *t = (tally){0};
}

int tally_add(tally *t, int label, const double *probabilities) {
    int best[TOP];
    const int count = t->classes < TOP ? t->classes : TOP, is_number = !isnan(probabilities[0]);
    classify_best(probabilities, t->classes, count, best);
    t->images++;
    t->of_class[label]++;
    t->loss -= log(fmax(probabilities[label], 1e-300));
    if (!is_number)
        return -1;
    for (int i = 0; i < count; i++)
        t->top5 += best[i] == label;
    t->top1 += best[0] == label;
    t->right[label] += best[0] == label;
    t->confusion[(int64_t)label * t->classes + best[0]]++;
    return best[0];
}

double tally_part(int64_t part, int64_t whole) {
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

int tally_confused(const tally *t, int label) {
    const int64_t *row = t->confusion + (int64_t)label * t->classes;
    int most = -1;
    for (int k = 0; k < t->classes; k++)
        if (k != label && row[k] > 0 && (most < 0 || row[k] > row[most]))
            most = k;
    return most;
}
