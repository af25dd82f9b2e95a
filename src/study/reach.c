/* SPDX-License-Identifier: Apache-2.0 */
/* Errors on their way back to the input. */
#include "study/reach.h"

#include <math.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "study/blocks.h"
#include "study/inject.h"
#include "train/graph/pattern.h"
#include "train/plan/plan_impl.h"

/* Of inject.c's numbers, those that are for this. */
enum { NOISE = 0x40000000 };

typedef struct reach_layer {
    int node;
    const comet_parameter *weights;
    float *flow, *gradient; /* without errors: of the output, and of the weights */
    int64_t count;          /* of the former, of the batch */
} reach_layer;

/* Sums over batches, of squares of errors over squares of what there is. */
typedef struct sums {
    double flow, weights;
} sums;

struct comet_reach {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    comet_reach_options options;
    comet_trainer *trainer;
    const comet_graph *graph;
    const comet_control_tensor *tensors;
    int32_t tensor_count;
    reach_layer *layers;
    int layer_count;
    int *sources; /* layers, then tensors */
    int gradient_count, source_count;
    comet_control_bound_value *bounds;
    double *rms; /* of tensors */
    sums *all;   /* sources x layers */
    int64_t batches;
    int source; /* of the pass; -1: there are no errors */
    comet_blocks blocks;
};

/* ---- memory ---- */

void comet_reach_free(comet_reach *r) {
    if (!r)
        return;
    comet_blocks_give(&r->blocks);
    comet_memory_give(r->allocator, r, sizeof *r);
}

static int is_layer(const comet_node *node) {
    return node->kind == COMET_OP_CONV || node->kind == COMET_OP_LINEAR;
}

static int is_chosen(const comet_reach *r, const char *name) {
    return !r->options.layers || comet_pattern_fits(r->options.layers, name);
}

/* Room for what flows and for gradients of weights, one layer behind the other. */
static comet_status take_gradients(comet_reach *r, comet_message *message) {
    size_t values = 0;
    for (int i = 0; i < r->layer_count; i++)
        values += (size_t)(r->layers[i].count + r->layers[i].weights->count);
    float *memory = comet_blocks_take(&r->blocks, values, sizeof *memory);
    for (int i = 0; memory && i < r->layer_count; i++) {
        reach_layer *l = &r->layers[i];
        l->flow = memory;
        l->gradient = memory + l->count;
        memory += l->count + l->weights->count;
    }
    return values == 0 || memory ? COMET_OK : comet_message_memory(message);
}

static void list_layers(comet_reach *r, int batch) {
    for (int i = 0; i < r->graph->node_count; i++) {
        const comet_node *node = &r->graph->nodes[i];
        if (is_layer(node))
            r->layers[r->layer_count++] =
                (reach_layer){.node = i,
                              .weights = comet_node_parameter(r->graph, node, COMET_PARAMETER_WEIGHT),
                              .count = batch * comet_shape_count(*comet_value_shape(r->graph, node->output))};
    }
}

static void list_sources(comet_reach *r) {
    for (int i = 0; i < r->layer_count; i++)
        if (is_chosen(r, r->graph->nodes[r->layers[i].node].name))
            r->sources[r->source_count++] = i;
    r->gradient_count = r->source_count;
    for (int i = 0; i < r->tensor_count; i++)
        if (r->tensors[i].use_count > 0 && is_chosen(r, r->tensors[i].name))
            r->sources[r->source_count++] = i;
}

static comet_status take_all(comet_reach *r, int batch, comet_message *message) {
    const size_t nodes = (size_t)r->graph->node_count, tensors = (size_t)r->tensor_count;
    r->layers = comet_blocks_take(&r->blocks, nodes, sizeof *r->layers);
    r->sources = comet_blocks_take(&r->blocks, nodes + tensors, sizeof *r->sources);
    r->bounds = comet_blocks_take(&r->blocks, tensors, sizeof *r->bounds);
    r->rms = comet_blocks_take(&r->blocks, tensors, sizeof *r->rms);
    if (!r->layers || !r->sources || !r->bounds || !r->rms)
        return comet_message_memory(message);
    list_layers(r, batch);
    list_sources(r);
    if (r->source_count == 0)
        return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                 "no layer and no stored tensor is called '%.60s'; `comet plan` lists tensors",
                                 r->options.layers ? r->options.layers : "");
    r->all = comet_blocks_take(&r->blocks, (size_t)r->source_count * (size_t)r->layer_count, sizeof *r->all);
    return r->all ? take_gradients(r, message) : comet_message_memory(message);
}

comet_status comet_reach_new(comet_trainer *trainer, const comet_reach_options *options,
                             const comet_allocator *allocator, comet_reach **reach, comet_message *message) {
    const comet_plan *plan = comet_trainer_plan(trainer);
    *reach = NULL;
    if (plan->backend->device.kind != COMET_CPU)
        return comet_message_set(message, COMET_ERROR_UNSUPPORTED, "how far errors reach is measured on the CPU alone");
    comet_reach *r = comet_memory_take(allocator, sizeof *r);
    if (!r)
        return comet_message_memory(message);
    *r = (comet_reach){.options = *options, .trainer = trainer, .graph = comet_trainer_graph(trainer)};
    r->allocator = r->blocks.allocator = comet_memory_hold(&r->allocator_copy, allocator);
    r->tensors = comet_probe_tensors(trainer, &r->tensor_count);
    const comet_status status = take_all(r, plan->options.batch, message);
    if (status != COMET_OK)
        comet_reach_free(r);
    else
        *reach = r;
    return status;
}

/* ---- passes ---- */

/* Of errors, in parts of what there is. */
static double part_of(const float *with, const float *without, int64_t count) {
    double errors = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        const double off = (double)with[i] - (double)without[i];
        errors += off * off;
        squares += (double)without[i] * (double)without[i];
    }
    return squares > 0 ? errors / squares : (double)NAN;
}

static sums *sums_of(const comet_reach *r, int source, int layer) {
    return &r->all[(int64_t)source * r->layer_count + layer];
}

static void see_layer(comet_reach *r, int index, float *gradient) {
    const reach_layer *l = &r->layers[index];
    if (r->source < 0) {
        memcpy(l->flow, gradient, (size_t)l->count * sizeof *gradient);
        return;
    }
    if (r->source < r->gradient_count && r->sources[r->source] == index)
        comet_inject_noise(gradient, l->count, r->options.sigma, r->options.seed, (uint64_t)r->batches,
                           NOISE | (uint32_t)l->node);
    sums_of(r, r->source, index)->flow += part_of(gradient, l->flow, l->count);
}

static comet_status came(void *context, comet_value value, void *gradient) {
    comet_reach *r = context;
    for (int i = 0; i < r->layer_count; i++)
        if (r->graph->nodes[r->layers[i].node].output == value)
            see_layer(r, i, gradient);
    return COMET_OK;
}

static void see_weights(comet_reach *r) {
    for (int i = 0; i < r->layer_count; i++) {
        const reach_layer *l = &r->layers[i];
        if (!l->weights->gradient) /* it is not trained */
            continue;
        if (r->source < 0)
            memcpy(l->gradient, l->weights->gradient, (size_t)l->weights->count * sizeof(float));
        else
            sums_of(r, r->source, i)->weights += part_of(l->weights->gradient, l->gradient, l->weights->count);
    }
}

static comet_status see_rms(comet_reach *r, comet_message *message) {
    for (int s = r->gradient_count; s < r->source_count; s++) {
        const comet_control_observation *o = comet_probe_observation(r->trainer, r->sources[s]);
        if (!o)
            return comet_message_set(message, COMET_ERROR_UNSUPPORTED,
                                     "%s: backward showed no statistics of it; leave it out of the layers",
                                     r->tensors[r->sources[s]].name);
        r->rms[r->sources[s]] = o->rms;
    }
    return COMET_OK;
}

static void set_bounds(comet_reach *r) {
    const int tensor = r->source >= r->gradient_count ? r->sources[r->source] : -1;
    for (int i = 0; i < r->tensor_count; i++)
        r->bounds[i] =
            (comet_control_bound_value){COMET_BOUND_ABSOLUTE, i == tensor ? r->options.error_rel * r->rms[i] : 0};
}

static comet_status pass(comet_reach *r, int source, comet_probe *probe, comet_message *message) {
    const comet_step_sight sight = {.came = came, .context = r};
    if (r->options.stop && *r->options.stop)
        return comet_message_set(message, COMET_ERROR_IO, "stopped");
    r->source = source;
    set_bounds(r);
    probe->bounds = r->bounds;
    probe->collect = source < 0;
    probe->sight = &sight;
    comet_status status = comet_trainer_probe(r->trainer, probe, message);
    if (status == COMET_OK && source < 0)
        status = see_rms(r, message);
    if (status != COMET_OK)
        return status;
    see_weights(r);
    if (r->options.progress)
        r->options.progress(r->options.context, source < 0 ? "without errors" : comet_reach_get_source(r, source).name);
    return COMET_OK;
}

int64_t comet_reach_passes(const comet_reach *r) {
    return 1 + (int64_t)r->source_count;
}

comet_status comet_reach_batch(comet_reach *r, const uint8_t *pixels, const int32_t *labels, comet_message *message) {
    comet_probe probe = {.pixels = pixels, .labels = labels};
    comet_status status = COMET_OK;
    for (int source = -1; source < r->source_count && status == COMET_OK; source++)
        status = pass(r, source, &probe, message);
    r->batches++;
    return status;
}

/* ---- figures ---- */

int comet_reach_layers(const comet_reach *r) {
    return r->layer_count;
}

const char *comet_reach_layer_name(const comet_reach *r, int layer) {
    return r->graph->nodes[r->layers[layer].node].name;
}

int comet_reach_sources(const comet_reach *r) {
    return r->source_count;
}

comet_reach_source comet_reach_get_source(const comet_reach *r, int source) {
    const int is_tensor = source >= r->gradient_count, which = r->sources[source];
    return (comet_reach_source){is_tensor ? r->tensors[which].name : comet_reach_layer_name(r, which), is_tensor};
}

void comet_reach_get(const comet_reach *r, int source, int layer, comet_reach_error *error) {
    const sums *s = sums_of(r, source, layer);
    *error = (comet_reach_error){sqrt(s->flow / (double)r->batches), sqrt(s->weights / (double)r->batches)};
}

comet_reach_summary comet_reach_summarise(const comet_reach *r, int source) {
    comet_reach_summary s = {.near = -1, .far = -1, .largest = -1, .growth = (double)NAN};
    for (int i = 0; i < r->layer_count; i++) {
        comet_reach_error e;
        comet_reach_get(r, source, i, &e);
        if (!(e.flow > 0))
            continue;
        if (s.far < 0) {
            s.far = i;
            s.far_flow = e.flow;
        }
        s.near = i;
        s.near_flow = e.flow;
        if (e.flow > s.largest_flow) {
            s.largest = i;
            s.largest_flow = e.flow;
        }
    }
    if (s.near > s.far)
        s.growth = s.far_flow / s.near_flow;
    return s;
}
