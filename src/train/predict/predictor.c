/* SPDX-License-Identifier: Apache-2.0 */
#include "train/predict/predictor.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/half.h"
#include "base/memory.h"
#include "train/checkpoint/weights.h"
#include "train/models/model.h"
#include "train/step/step.h"

struct comet_predictor {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    int batch, classes;
    comet_normalisation normalisation;
    comet_graph *graph;
    comet_backend *backend;
    comet_plan *plan;
    comet_step *step;
    const comet_step_sight *sight;
    int32_t *labels; /* none is known: all 0 */
    void *logits;    /* of the backend's dtype, the host's */
    size_t labels_bytes, logits_bytes;
};

/* ---- making one ---- */

static comet_status make_network(comet_predictor *p, const comet_about *about, const comet_predictor_options *o,
                                 comet_message *message) {
    const comet_plan_options evaluation = {.batch = o->batch, .input_bytes = 1};
    if (comet_graph_new(p->allocator, &p->graph) != COMET_OK)
        return comet_message_memory(message);
    comet_status status = comet_model_build(p->graph, about->model, about->classes, about->height, about->width,
                                            about->channels, message);
    if (status == COMET_OK)
        status = comet_backend_new(&o->place, o->threads, p->allocator, &p->backend, message);
    if (status == COMET_OK)
        status = comet_plan_new(p->graph, p->backend, &evaluation, p->allocator, &p->plan, message);
    if (status == COMET_OK && comet_graph_allocate(p->graph, p->backend->space, 0) != COMET_OK)
        status = comet_message_memory(message);
    return status;
}

static comet_status take_memory(comet_predictor *p, comet_message *message) {
    p->labels_bytes = (size_t)p->batch * sizeof *p->labels;
    p->logits_bytes = (size_t)p->batch * (size_t)p->classes * sizeof(float);
    p->labels = comet_memory_take(p->allocator, p->labels_bytes);
    p->logits = comet_memory_take(p->allocator, p->logits_bytes);
    if (!p->labels || !p->logits)
        return comet_message_memory(message);
    memset(p->labels, 0, p->labels_bytes);
    return COMET_OK;
}

comet_status comet_predictor_new(const char *path, const comet_about *about, const comet_predictor_options *options,
                                 const comet_allocator *allocator, comet_predictor **predictor,
                                 comet_message *message) {
    const comet_step_parts parts = {NULL};
    *predictor = NULL;
    comet_predictor *p = comet_memory_take(allocator, sizeof *p);
    if (!p)
        return comet_message_memory(message);
    *p = (comet_predictor){.batch = options->batch, .classes = about->classes, .normalisation = about->normalisation};
    p->allocator = comet_memory_hold(&p->allocator_copy, allocator);
    comet_status status = make_network(p, about, options, message);
    if (status == COMET_OK)
        status = comet_weights_read(path, comet_graph_parameter(p->graph, 0), comet_graph_parameters(p->graph),
                                    COMET_WEIGHTS_EXACT, NULL, p->allocator, message);
    if (status == COMET_OK)
        status = comet_step_new(p->plan, &parts, p->allocator, &p->step, message);
    if (status == COMET_OK)
        status = take_memory(p, message);
    if (status != COMET_OK)
        comet_predictor_free(p);
    else
        *predictor = p;
    return status;
}

void comet_predictor_free(comet_predictor *p) {
    if (!p)
        return;
    const comet_allocator *allocator = p->allocator;
    comet_memory_give(allocator, p->labels, p->labels_bytes);
    comet_memory_give(allocator, p->logits, p->logits_bytes);
    comet_step_free(p->step);
    comet_plan_free(p->plan);
    comet_graph_free(p->graph); /* its memory is the backend's */
    comet_backend_free(p->backend);
    comet_memory_give(allocator, p, sizeof *p);
}

comet_graph *comet_predictor_graph(comet_predictor *p) {
    return p->graph;
}

comet_backend *comet_predictor_backend(comet_predictor *p) {
    return p->backend;
}

void comet_predictor_show(comet_predictor *p, const comet_step_sight *sight) {
    p->sight = sight;
}

/* ---- classifying ---- */

static double logit_at(const comet_predictor *p, int64_t i) {
    switch (p->backend->dtype) {
    case COMET_F16:
        return (double)comet_f16_to_f32(((const uint16_t *)p->logits)[i]);
    case COMET_BF16:
        return (double)comet_bf16_to_f32(((const uint16_t *)p->logits)[i]);
    default:
        return (double)((const float *)p->logits)[i];
    }
}

/* Their softmax. */
static void put_probabilities(const comet_predictor *p, int image, double *probabilities) {
    const int64_t first = (int64_t)image * p->classes;
    double greatest = -INFINITY, total = 0;
    for (int k = 0; k < p->classes; k++)
        greatest = fmax(greatest, logit_at(p, first + k));
    for (int k = 0; k < p->classes; k++)
        total += probabilities[k] = exp(logit_at(p, first + k) - greatest);
    for (int k = 0; k < p->classes; k++)
        probabilities[k] /= total;
}

comet_status comet_predictor_run(comet_predictor *p, const uint8_t *pixels, int count, double *probabilities,
                                 comet_message *message) {
    const comet_step_options options = {
        .bytes = pixels, .normalisation = &p->normalisation, .labels = p->labels, .count = count, .sight = p->sight};
    const size_t size = p->backend->dtype == COMET_F32 ? sizeof(float) : sizeof(uint16_t);
    comet_step_result result;
    comet_space *space = p->backend->space;
    if (count < 1 || count > p->batch)
        return comet_message_set(message, COMET_ERROR_ARGUMENT, "%d images do not fit a batch of %d", count, p->batch);
    comet_status status = comet_step_run(p->step, &options, &result, message);
    if (status != COMET_OK)
        return status;
    status = space->read(space, p->logits, comet_step_logits(p->step), (size_t)count * (size_t)p->classes * size);
    if (status != COMET_OK)
        return comet_message_set(message, status, "the logits: %s", comet_status_string(status));
    for (int i = 0; i < count; i++)
        put_probabilities(p, i, probabilities + (int64_t)i * p->classes);
    return COMET_OK;
}
