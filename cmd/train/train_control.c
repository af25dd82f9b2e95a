/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/train/train_control.h"

#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/parse.h"
#include "train/trainer/control_text.h"

/* eb whose bound nobody has given. */
static int is_open(const train_texts *t, const char *form) {
    return !t->error_rel && (strcmp(form, "eb") == 0 || strcmp(form, "eb+offload") == 0);
}

static comet_status try_forms(const comet_trainer_options *o, const char *overrides, comet_message *message) {
    comet_forms *forms = NULL;
    comet_status status = comet_forms_new(o->codec, o->error_rel, overrides, NULL, &forms, message);
    comet_forms_free(forms);
    return status;
}

/* `named`: what is no form might have been meant as a controller. */
static int check_forms(const comet_trainer_options *o, int named) {
    comet_message message;
    comet_status status = try_forms(o, NULL, &message);
    if (status != COMET_OK && named)
        return misuse("%.500s; or a controller: comet, comet:paper, acgc, fixed:F, budget", message.text);
    if (status == COMET_OK)
        status = try_forms(o, o->forms, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int check_control(const comet_trainer_options *o) {
    const comet_control_methods *methods;
    comet_control_options unused = COMET_CONTROL_OPTIONS_INIT;
    comet_message message;
    comet_status status = o->control ? comet_control_read(o->control, &methods, &unused, &message) : COMET_OK;
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

/* Of those that know one: comet, comet:paper, budget. */
static int read_calibration(const train_texts *t, comet_trainer_options *o) {
    o->calibration = 0;
    if (!t->calibration || !o->control)
        return DONE;
    if (parse_number("--calibration", t->calibration, &o->calibration) != DONE)
        return MISUSED;
    return o->calibration > 0 ? DONE : misuse("--calibration: above 0 (1 is usual)");
}

int train_control_read(const train_texts *t, const char *form, int named, comet_trainer_options *o) {
    const int is_name = named && comet_control_is_named(form);
    o->codec = is_name ? "eb" : form;
    o->control = is_name ? form : is_open(t, form) ? (t->control ? t->control : "comet") : NULL;
    if (t->control && !named && t->error_rel)
        return misuse("--control and --error-rel exclude each other; a fixed bound is --control fixed:%.20s",
                      t->error_rel);
    if (t->control && !named && !o->control)
        return misuse("--control is for --codec eb without a bound, not for '%.60s'", form);
    if (t->calibration && !named && !o->control)
        return misuse("--calibration is for controllers: --codec eb without a bound");
    if (read_calibration(t, o) != DONE)
        return MISUSED;
    int answer = check_control(o);
    return answer == DONE ? check_forms(o, named) : answer;
}
