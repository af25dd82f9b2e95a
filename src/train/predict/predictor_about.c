/* SPDX-License-Identifier: Apache-2.0 */
/* What a file of weights is of: what it says, what it is said to be, and what its tensors' shapes tell. */
#include <stdio.h>
#include <string.h>

#include "train/models/model.h"
#include "train/predict/predictor.h"

/* The first convolution's inputs are the image's channels; the last linear layer's outputs are the classes. */
static comet_status look_at_shapes(const comet_safetensors *file, const comet_model *model, comet_about *a,
                                   comet_message *message) {
    comet_graph *graph;
    const comet_parameter *first = NULL, *last = NULL;
    if (comet_graph_new(a->allocator, &graph) != COMET_OK)
        return comet_message_memory(message);
    comet_status status = comet_model_build(graph, model->name, 10, model->image, model->image, 3, message);
    for (int i = 0; status == COMET_OK && i < comet_graph_parameters(graph); i++) {
        const comet_parameter *p = comet_graph_parameter(graph, i);
        first = !first && p->kind == COMET_CONV_WEIGHT ? p : first;
        last = p->kind == COMET_LINEAR_WEIGHT ? p : last;
    }
    const comet_safetensors_entry *conv = first ? comet_safetensors_find(file, first->name) : NULL,
                                  *linear = last ? comet_safetensors_find(file, last->name) : NULL;
    if (status == COMET_OK && (!conv || !linear || conv->ndim != 4 || linear->ndim != 2))
        status = comet_message_set(message, COMET_ERROR_MISMATCH, "it has no '%s' or no '%s': it is of another network",
                                   first ? first->name : "", last ? last->name : "");
    if (status == COMET_OK) {
        a->channels = conv->shape[1] == 1 ? 1 : 3;
        a->classes = linear->shape[0] < (1 << 24) ? (int)linear->shape[0] : 0;
    }
    comet_graph_free(graph);
    return status;
}

static comet_status settle_model(const comet_safetensors *file, const char *path, const char *wanted, comet_about *a,
                                 comet_message *message) {
    const comet_model *model, *other;
    if (!wanted && !a->model[0])
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "'%.300s' does not say which network it is of: give --model", path);
    comet_status status = comet_model_find(wanted ? wanted : a->model, &model, message);
    if (status == COMET_OK && wanted && a->model[0] && comet_model_find(a->model, &other, NULL) == COMET_OK &&
        other != model)
        status = comet_message_set(message, COMET_ERROR_ARGUMENT, "'%.300s' is of %s, not of %s", path, a->model,
                                   model->name);
    if (status != COMET_OK || a->model[0])
        return status;
    snprintf(a->model, sizeof a->model, "%s", model->name);
    a->height = a->width = model->image;
    return look_at_shapes(file, model, a, message);
}

/* As photographs are, where it does not say. */
static void settle_images(const comet_predictor_wishes *wanted, comet_about *a) {
    static const comet_normalisation imagenet = {{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};
    if (wanted->image)
        a->height = a->width = wanted->image;
    if (a->is_normalised)
        return;
    a->normalisation = comet_normalisation_for(&imagenet, 3, a->channels);
    a->centre = 0.875;
}

comet_status comet_predictor_about(const char *path, const comet_predictor_wishes *wanted,
                                   const comet_allocator *allocator, comet_about *a, comet_message *message) {
    comet_safetensors *file;
    comet_status status = comet_safetensors_open(path, allocator, &file, message);
    if (status != COMET_OK)
        return status;
    status = comet_about_read(file, allocator, a);
    if (status != COMET_OK) {
        comet_safetensors_close(file);
        return comet_message_memory(message);
    }
    status = settle_model(file, path, wanted->model, a, message);
    comet_safetensors_close(file);
    if (status == COMET_OK)
        settle_images(wanted, a);
    else
        comet_about_free(a);
    return status;
}
