/* SPDX-License-Identifier: Apache-2.0 */
/* Which errors a sweep goes through. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/study/sweep.h"
#include "study/inject.h"

/* ---- layers ---- */

/* The plan of such a run: what layers and tensors there are. */
typedef struct ground {
    comet_plan *plan;
    comet_graph *graph;
    comet_backend *backend;
} ground;

static void ground_free(ground *g) {
    comet_plan_free(g->plan);
    comet_backend_free(g->backend);
    comet_graph_free(g->graph);
}

/* With one thread, as no other may be there when runs are forked. */
static int ground_init(ground *g, const comet_run_options *run) {
    comet_trainer_options trainer;
    comet_message message;
    comet_fit fit;
    size_t loader_bytes[COMET_SPLITS];
    comet_status status = comet_run_trainer_options(run, &trainer, loader_bytes, &message);
    trainer.threads = 1;
    trainer.memory_bytes = 0;
    if (status == COMET_OK)
        status = comet_trainer_fit(&trainer, NULL, &fit, &g->plan, &g->graph, &g->backend, &message);
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

static int add_name(sweep_memory *m, int count, const char *name) {
    for (int i = 0; i < count; i++)
        if (strcmp(m->names[i], name) == 0)
            return count;
    snprintf(m->names[count], sizeof m->names[count], "%s", name);
    return count + 1;
}

/* Those whose weights have a gradient. */
static int name_layers(const comet_graph *g, sweep_memory *m) {
    int count = 0;
    for (int i = 0; i < g->node_count; i++) {
        const comet_node *node = &g->nodes[i];
        const int is_layer = node->kind == COMET_OP_CONV || node->kind == COMET_OP_LINEAR;
        if (is_layer && comet_parameter_is_trained(comet_node_parameter(g, node, COMET_PARAMETER_WEIGHT)))
            count = add_name(m, count, node->name);
    }
    return count;
}

static int name_tensors(const comet_plan *p, sweep_memory *m) {
    int count = 0;
    for (int i = 0; i < comet_plan_entries(p); i++)
        if (comet_plan_in_store(comet_plan_get_entry(p, i)))
            count = add_name(m, count, comet_plan_get_entry(p, i)->name);
    return count;
}

static int name_each(const sweep_plan *plan, const ground *on, sweep_memory *m, int *count) {
    m->names = calloc((size_t)(on->graph->node_count + comet_plan_entries(on->plan)), sizeof *m->names);
    if (!m->names)
        return fail_memory();
    *count = plan->on[0] == 'a' ? name_tensors(on->plan, m) : name_layers(on->graph, m);
    return *count ? DONE : misuse("--on activation: no tensor is in the store; --codec eb:0 stores without loss");
}

static int name_listed(const char *layers, sweep_memory *m, int *count) {
    text_list list;
    if (parse_list("--layers", layers, &list) != DONE)
        return MISUSED;
    *count = list.count;
    m->names = calloc((size_t)*count, sizeof *m->names);
    for (int i = 0; m->names && i < *count; i++)
        snprintf(m->names[i], sizeof m->names[i], "%s", list.items[i]);
    return m->names ? DONE : fail_memory();
}

/* ---- variants: rules for --inject-error ---- */

static const char no_error[] = "none";

int sweep_apply(const compare_plan *plan, const char *variant, comet_run_options *run) {
    (void)plan;
    run->trainer.hooks = comet_inject_hooks(strcmp(variant, no_error) == 0 ? NULL : variant);
    return DONE;
}

static int make_variants(sweep_plan *plan, sweep_memory *m, int layers) {
    const int count = 1 + layers * plan->sigma_count;
    m->layers = calloc((size_t)layers, sizeof *m->layers);
    m->rules = calloc((size_t)count, sizeof *m->rules);
    m->variants = calloc((size_t)count, sizeof *m->variants);
    if (!m->layers || !m->rules || !m->variants)
        return fail_memory();
    m->variants[0] = no_error;
    for (int i = 0; i < layers; i++) {
        m->layers[i] = m->names[i];
        for (int s = 0; s < plan->sigma_count; s++) {
            const int v = sweep_variant(plan, i, s);
            snprintf(m->rules[v], sizeof m->rules[v], "%s:%s:%s:%s", m->names[i], plan->sigma_texts[s], plan->shape,
                     plan->on);
            m->variants[v] = m->rules[v];
        }
    }
    plan->layers = m->layers;
    plan->layer_count = layers;
    plan->compare.variants = m->variants;
    plan->compare.variant_count = count;
    return DONE;
}

/* A name that is nobody's is better known now than after the first training. */
static int check_variants(const sweep_plan *plan, const ground *on) {
    comet_message message;
    comet_status status = COMET_OK;
    for (int i = 1; i < plan->compare.variant_count && status == COMET_OK; i++) {
        comet_inject *inject = NULL;
        status = comet_inject_new(plan->compare.variants[i], 0, NULL, &inject, &message);
        if (status == COMET_OK)
            status = comet_inject_check(inject, on->plan, &message);
        comet_inject_free(inject);
    }
    return status == COMET_OK ? DONE : train_fail(status, &message);
}

void sweep_memory_free(sweep_memory *m) {
    free(m->names);
    free(m->layers);
    free(m->rules);
    free(m->variants);
}

int sweep_name_variants(const char *layers, sweep_plan *plan, sweep_memory *m) {
    ground g = {0};
    int count = 0, answer = ground_init(&g, &plan->compare.run);
    if (answer == DONE)
        answer = strcmp(layers, "each") == 0 ? name_each(plan, &g, m, &count) : name_listed(layers, m, &count);
    if (answer == DONE)
        answer = make_variants(plan, m, count);
    if (answer == DONE)
        answer = check_variants(plan, &g);
    ground_free(&g);
    return answer;
}
