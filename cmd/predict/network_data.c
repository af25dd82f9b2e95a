/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/predict/network_data.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/train/train_options.h"

int network_data_open(const network *n, const char *given, const char **name, comet_dataset **data) {
    comet_message message;
    *name = given ? given : n->about.data;
    if (!(*name)[0])
        return misuse("the weights do not say what they were trained on: give --data");
    comet_status status = comet_dataset_open(*name, NULL, data, &message);
    if (status != COMET_OK && !given)
        return fail("%s; --data says where it is now", message.text);
    if (status != COMET_OK)
        return train_fail(status, &message);
    if (comet_dataset_get_info(*data)->note)
        note("%s", comet_dataset_get_info(*data)->note);
    return DONE;
}

static int find_class(const comet_about *about, const char *name) {
    for (int k = 0; k < about->classes; k++)
        if (strcmp(comet_about_label(about, k), name) == 0)
            return k;
    return -1;
}

int network_data_classes(const network *n, const comet_dataset *data, const char *name, int32_t **classes) {
    const comet_dataset_info *info = comet_dataset_get_info(data);
    const comet_about *about = &n->about;
    *classes = calloc((size_t)info->classes, sizeof **classes);
    if (!*classes)
        return fail_memory();
    if (!about->labels && about->classes != info->classes)
        return fail("'%s' has %d classes, the network %d, and its weights do not name them", name, info->classes,
                    about->classes);
    for (int32_t c = 0; c < info->classes; c++) {
        const char *called = comet_dataset_class_name(data, c);
        (*classes)[c] = about->labels ? find_class(about, called) : c;
        if ((*classes)[c] < 0)
            return fail("'%s' has a class '%s', which the network does not know", name, called);
    }
    return DONE;
}
