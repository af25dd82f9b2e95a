/* SPDX-License-Identifier: Apache-2.0 */
/* What forms are made of: for reading them and for choosing. */
#ifndef COMET_TRAIN_FORMS_IMPL_H
#define COMET_TRAIN_FORMS_IMPL_H

#include "train/plan/forms.h"

/* One wish: a form for all tensors to which it can be applied. */
typedef struct comet_wish {
    comet_store_form form;
    int offload;
    int fixed; /* with a number of its own: eb:0.1 */
    comet_codec_params codec;
} comet_wish;

typedef struct comet_form_rule {
    char pattern[COMET_NAME_BYTES];
    comet_wish wish;
} comet_form_rule;

struct comet_forms {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_wish all;
    int rules;
    comet_form_rule rule[];
};

/* Rules in a text, and all of them, for which there is room. */
int comet_forms_count(const char *text);
comet_status comet_forms_read_rules(comet_forms *forms, const char *text, double error_rel, comet_message *message);
comet_status comet_forms_read_wish(const char *text, double error_rel, comet_wish *w, comet_message *message);

#endif
