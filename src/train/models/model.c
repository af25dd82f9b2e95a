/* SPDX-License-Identifier: Apache-2.0 */
#include "train/models/model.h"

#include <stdio.h>

#include "base/fail.h"
#include "base/text/nearest.h"
#include "train/models/models_impl.h"

static const comet_model models[] = {
    {"alexnet", "AlexNet (Krizhevsky 2014), 61.1 M parameters", 224, COMET_INITIALISE_DEFAULT, comet_model_alexnet},
    {"vgg16", "VGG-16 (Simonyan & Zisserman 2014), 138.4 M", 224, COMET_INITIALISE_VGG, comet_model_vgg16},
    {"vgg16_bn", "VGG-16 with batch norm, 138.4 M", 224, COMET_INITIALISE_VGG, comet_model_vgg16_bn},
    {"resnet18", "ResNet-18 (He et al. 2015), 11.7 M", 224, COMET_INITIALISE_RESNET, comet_model_resnet18},
    {"resnet34", "ResNet-34, 21.8 M", 224, COMET_INITIALISE_RESNET, comet_model_resnet34},
    {"resnet50", "ResNet-50, 25.6 M", 224, COMET_INITIALISE_RESNET, comet_model_resnet50},
    {"efficientnet_b0", "EfficientNet-B0 (Tan & Le 2019), 5.3 M", 224, COMET_INITIALISE_EFFICIENTNET,
     comet_model_efficientnet_b0},
    {"resnet8", "ResNet-8 for CIFAR (He et al. 2015, n = 1), 0.08 M", 32, COMET_INITIALISE_RESNET, comet_model_resnet8},
    {"resnet20", "ResNet-20 for CIFAR (n = 3), 0.27 M", 32, COMET_INITIALISE_RESNET, comet_model_resnet20},
    {"resnet18-cifar", "ResNet-18 with a 3x3 stem for small images, 11.2 M", 32, COMET_INITIALISE_RESNET,
     comet_model_resnet18_cifar},
};

int comet_model_count(void) {
    return (int)(sizeof models / sizeof *models);
}

const comet_model *comet_model_at(int index) {
    return index >= 0 && index < comet_model_count() ? &models[index] : NULL;
}

static int same_name(const char *a, const char *b) {
    for (; *a && *b; a++, b++)
        if (*a != *b && !((*a == '-' || *a == '_') && (*b == '-' || *b == '_')))
            return 0;
    return *a == *b;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return index < comet_model_count() ? models[index].name : NULL;
}

static comet_status unknown(const char *name, comet_message *message) {
    const char *meant = comet_nearest(name, name_at, NULL);
    char list[320];
    size_t used = 0;
    for (int i = 0; i < comet_model_count() && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", models[i].name);
    return comet_message_set(message, COMET_ERROR_ARGUMENT, "there is no model '%.60s'%s%s%s; there are: %s", name,
                             meant ? " (did you mean " : "", meant ? meant : "", meant ? "?)" : "", list);
}

comet_status comet_model_find(const char *name, const comet_model **model, comet_message *message) {
    *model = NULL;
    for (int i = 0; i < comet_model_count() && !*model; i++)
        if (same_name(name, models[i].name))
            *model = &models[i];
    return *model ? COMET_OK : unknown(name, message);
}

comet_status comet_model_build(comet_graph *g, const char *name, int classes, int height, int width, int channels,
                               comet_message *message) {
    const comet_model *model;
    comet_message why;
    COMET_TRY(comet_model_find(name, &model, message));
    if (classes < 1)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%s needs at least 1 class, not %d", model->name,
                                 classes);
    comet_graph_output(g, model->layers(g, comet_graph_input(g, height, width, channels), classes));
    comet_status status = comet_graph_check(g, &why);
    if (status != COMET_OK)
        return comet_message_set(message, status, "%s for images of %dx%dx%d cannot be built: %s", model->name, height,
                                 width, channels, why.text);
    return COMET_OK;
}
