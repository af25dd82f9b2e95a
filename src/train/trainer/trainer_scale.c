/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fp16 has few small numbers: gradients are multiplied by a power of two on their way, so that small ones do not become
 * zero. An update whose gradients are too large for fp16 is not made, and the next ones are multiplied by half of it;
 * after many that were made it is doubled.
 */
#include <stdio.h>

#include "train/trainer/trainer_impl.h"

enum { CALM = 2000 }; /* updates, before more is tried */

static const double first_scale = 0x1p16, most_scale = 0x1p24;

static int is_scaled(const comet_trainer *t) {
    return t->parts.backend->dtype == COMET_F16;
}

double comet_trainer_scale_now(const comet_trainer *t) {
    if (!is_scaled(t))
        return 1;
    return t->scale.now > 0 ? t->scale.now : first_scale;
}

int comet_trainer_scale_less(comet_trainer *t) {
    const double now = comet_trainer_scale_now(t);
    if (!is_scaled(t) || now <= 1)
        return 0;
    t->scale = (comet_trainer_scale){.now = now / 2};
    return 1;
}

void comet_trainer_scale_made(comet_trainer *t) {
    const double now = comet_trainer_scale_now(t);
    if (!is_scaled(t) || ++t->scale.calm < CALM)
        return;
    t->scale = (comet_trainer_scale){.now = now < most_scale ? 2 * now : now};
}

/* ---- checkpoints ---- */

size_t comet_trainer_get_scale(const comet_trainer *t, char *text, size_t room) {
    if (!is_scaled(t))
        return 0;
    return (size_t)snprintf(text, room, "%.0f %lld", comet_trainer_scale_now(t), (long long)t->scale.calm);
}

void comet_trainer_set_scale(comet_trainer *t, const char *text) {
    double now;
    long long calm;
    if (sscanf(text, "%lf %lld", &now, &calm) == 2 && now >= 1 && now <= most_scale && calm >= 0)
        t->scale = (comet_trainer_scale){now, calm};
}
