/* SPDX-License-Identifier: Apache-2.0 */
#include "study/inject.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/philox.h"
#include "train/graph/graph_impl.h"
#include "train/graph/pattern.h"
#include "train/models/initialise.h"

enum { INJECT_PURPOSE = 17 << 16 }; /* others have theirs: cpu/drop.c, base/random.h */

typedef struct rule {
    char pattern[COMET_NAME_BYTES];
    double sigma;
    int is_uniform, in_activation;
} rule;

struct comet_inject {
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    uint64_t seed;
    int count;
    rule rules[];
};

/* ---- reading ---- */

static int count_rules(const char *text) {
    int count = 1;
    for (; *text; text++)
        count += *text == ',';
    return count;
}

static size_t bytes_of(int count) {
    return sizeof(comet_inject) + (size_t)count * sizeof(rule);
}

static int is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* A word behind the deviation; 0: it is none. */
static int read_word(const char *text, size_t length, rule *r) {
    if (is_word(text, length, "uniform") || is_word(text, length, "normal"))
        r->is_uniform = text[0] == 'u';
    else if (is_word(text, length, "activation") || is_word(text, length, "gradient"))
        r->in_activation = text[0] == 'a';
    else
        return 0;
    return 1;
}

/* `length` bytes of the text are one rule; 0: they are not. */
static int read_rule(const char *text, size_t length, rule *r) {
    const char *end = text + length, *colon = memchr(text, ':', length);
    char *after;
    const size_t name = colon ? (size_t)(colon - text) : 0;
    if (name == 0 || name >= sizeof r->pattern)
        return 0;
    *r = (rule){.is_uniform = 0};
    memcpy(r->pattern, text, name);
    r->sigma = strtod(colon + 1, &after);
    if (after == colon + 1 || after > end || !(r->sigma > 0) || !isfinite(r->sigma))
        return 0;
    while (after < end) {
        const char *word = after + 1;
        const size_t rest = (size_t)(end - word), size = strcspn(word, ":") < rest ? strcspn(word, ":") : rest;
        if (*after != ':' || !read_word(word, size, r))
            return 0;
        after = (char *)word + size;
    }
    return 1;
}

comet_status comet_inject_new(const char *text, uint64_t seed, const comet_allocator *allocator, comet_inject **inject,
                              comet_message *message) {
    const int count = count_rules(text);
    comet_inject *in = comet_memory_take(allocator, bytes_of(count));
    if (!in)
        return comet_message_memory(message);
    memset(in, 0, bytes_of(count));
    in->allocator = comet_memory_hold(&in->allocator_copy, allocator);
    in->seed = seed;
    in->count = count;
    for (int i = 0; i < count; i++) {
        const size_t length = strcspn(text, ",");
        if (!read_rule(text, length, &in->rules[i])) {
            comet_inject_free(in);
            return comet_message_set(
                message, COMET_ERROR_ARGUMENT,
                "'%.*s' is no error to inject: LAYER:SIGMA[:uniform|normal][:gradient|activation], "
                "as in layer1.*:0.1",
                length < 80 ? (int)length : 80, text);
        }
        text += length + (text[length] == ',');
    }
    *inject = in;
    return COMET_OK;
}

void comet_inject_free(comet_inject *in) {
    if (!in)
        return;
    comet_memory_give(in->allocator, in, bytes_of(in->count));
}

/* ---- whom it concerns ---- */

/* The last rule that fits. */
static const rule *rule_for(const comet_inject *in, const char *layer, int in_activation) {
    for (int i = in->count - 1; i >= 0; i--)
        if (in->rules[i].in_activation == in_activation && comet_pattern_fits(in->rules[i].pattern, layer))
            return &in->rules[i];
    return NULL;
}

/* Of frozen weights there is no gradient. */
static int has_trained_weights(const comet_graph *g, const comet_node *node) {
    const comet_parameter *weight = comet_node_parameter(g, node, COMET_PARAMETER_WEIGHT);
    return weight && comet_parameter_is_trained(weight);
}

static int names_something(const rule *r, const comet_graph *g, const comet_plan *plan) {
    for (int i = 0; !r->in_activation && i < g->node_count; i++)
        if (has_trained_weights(g, &g->nodes[i]) && comet_pattern_fits(r->pattern, g->nodes[i].name))
            return 1;
    for (int i = 0; r->in_activation && i < comet_plan_entries(plan); i++)
        if (comet_plan_in_store(comet_plan_get_entry(plan, i)) &&
            comet_pattern_fits(r->pattern, comet_plan_get_entry(plan, i)->name))
            return 1;
    return 0;
}

comet_status comet_inject_check(const comet_inject *in, const comet_plan *plan, comet_message *message) {
    for (int i = 0; i < in->count; i++) {
        const rule *r = &in->rules[i];
        if (!names_something(r, comet_plan_graph(plan), plan))
            return comet_message_set(message, COMET_ERROR_ARGUMENT,
                                     r->in_activation ? "no tensor of '%s' is in the store, where an error can be put "
                                                        "into it; --codec eb:0 stores without loss"
                                                      : "no layer with trained weights is called '%s'",
                                     r->pattern);
    }
    return COMET_OK;
}

/* ---- errors ---- */

static double rms_of_nonzeros(const float *x, int64_t count) {
    double squares = 0, nonzeros = 0;
    for (int64_t i = 0; i < count; i++) {
        squares += (double)x[i] * (double)x[i];
        nonzeros += x[i] != 0;
    }
    return nonzeros > 0 ? sqrt(squares / nonzeros) : 0;
}

/* Of deviation 1, from a word. */
static double error_of(const rule *r, uint32_t word) {
    const double p = ((double)word + 0.5) * 0x1p-32;
    return r->is_uniform ? (2 * p - 1) * sqrt(3.0) : comet_normal_quantile(p);
}

/* One word for each value: value i has word i % 4 of counter i / 4. */
typedef struct words {
    uint32_t c[4];
    int64_t block;
} words;

static uint32_t word_at(words *w, uint64_t seed, uint64_t step, uint32_t which, int64_t i) {
    if (w->block != i / 4) {
        const uint64_t block = (uint64_t)i / 4;
        w->c[0] = (uint32_t)block;
        w->c[1] = (uint32_t)step;
        w->c[2] = which;
        w->c[3] = (uint32_t)INJECT_PURPOSE | (uint32_t)(block >> 32 & 0xFFFF);
        comet_philox(w->c, seed);
        w->block = i / 4;
    }
    return w->c[i % 4];
}

void comet_inject_gradients(const comet_inject *in, comet_graph *g, uint64_t step) {
    for (int n = 0; n < g->node_count; n++) {
        const comet_node *node = &g->nodes[n];
        const rule *r = has_trained_weights(g, node) ? rule_for(in, node->name, 0) : NULL;
        if (!r)
            continue;
        const comet_parameter *p = comet_node_parameter(g, node, COMET_PARAMETER_WEIGHT);
        const double sigma = r->sigma * rms_of_nonzeros(p->gradient, p->count);
        words w = {.block = -1};
        for (int64_t i = 0; i < p->count; i++)
            p->gradient[i] += (float)(sigma * error_of(r, word_at(&w, in->seed, step, (uint32_t)n, i)));
    }
}

void comet_inject_noise(float *values, int64_t count, double sigma, uint64_t seed, uint64_t step, uint32_t what) {
    const rule normal = {.is_uniform = 0};
    const double deviation = sigma * rms_of_nonzeros(values, count);
    words w = {.block = -1};
    for (int64_t i = 0; i < count; i++)
        if (values[i] != 0)
            values[i] += (float)(deviation * error_of(&normal, word_at(&w, seed, step, what, i)));
}

/* The error, its opposite, or none: whichever leaves the value on its side. */
static float moved(float x, float error, float threshold) {
    if ((x + error > threshold) == (x > threshold))
        return x + error;
    return (x - error > threshold) == (x > threshold) ? x - error : x;
}

/* Where the ReLU behind a norm switches, by channel: at -beta / gamma; without a norm at 0. */
typedef struct edges {
    const float *gamma, *beta; /* NULL: there is no norm */
} edges;

static edges edges_of(const comet_step_loaded *l) {
    const comet_plan_entry *e = l->entry;
    if (e->kind != COMET_SAVED_NORM)
        return (edges){NULL, NULL};
    const comet_node *norm = &l->graph->nodes[e->node];
    return (edges){comet_node_parameter(l->graph, norm, COMET_PARAMETER_WEIGHT)->value,
                   comet_node_parameter(l->graph, norm, COMET_PARAMETER_BIAS)->value};
}

/* NaN: nowhere, it is on or off for all values. */
static float edge_at(const edges *e, int64_t channel) {
    if (!e->gamma)
        return 0;
    return e->gamma[channel] != 0 ? -e->beta[channel] / e->gamma[channel] : NAN;
}

void comet_inject_values(const comet_inject *in, const comet_step_loaded *l) {
    const comet_plan_entry *e = l->entry;
    const rule *r = rule_for(in, e->name, 1);
    if (!r)
        return;
    const edges switches = edges_of(l);
    const double sigma = r->sigma * rms_of_nonzeros(l->values, l->count);
    const uint32_t which = (uint32_t)e->node | (e->kind == COMET_SAVED_NORM ? 0xC0000000u : 0x80000000u);
    words w = {.block = -1};
    for (int64_t i = 0; i < l->count; i++) {
        float *x = &((float *)l->values)[i];
        if (*x == 0 && e->kind == COMET_SAVED_VALUE)
            continue;
        const float error = (float)(sigma * error_of(r, word_at(&w, in->seed, l->step, which, l->first + i)));
        const float edge = e->has_relu ? edge_at(&switches, i % e->shape.channels) : NAN;
        *x = isnan(edge) ? *x + error : moved(*x, error, edge);
    }
}

/* ---- hooks ---- */

static comet_status begin(const char *text, uint64_t seed, const comet_plan *plan, const comet_allocator *allocator,
                          void **context, comet_message *message) {
    comet_inject *in = NULL;
    comet_status status = comet_inject_new(text, seed, allocator, &in, message);
    *context = in;
    return status == COMET_OK ? comet_inject_check(in, plan, message) : status;
}

static comet_status see_loaded(void *context, const comet_step_loaded *loaded) {
    comet_inject_values(context, loaded);
    return COMET_OK;
}

static comet_status see_gradients(void *context, comet_graph *graph, int64_t batches) {
    comet_inject_gradients(context, graph, (uint64_t)batches);
    return COMET_OK;
}

static void end(void *context) {
    comet_inject_free(context);
}

comet_trainer_hooks comet_inject_hooks(const char *rules) {
    if (!rules)
        return (comet_trainer_hooks){0};
    return (comet_trainer_hooks){
        .text = rules, .begin = begin, .loaded = see_loaded, .gradients = see_gradients, .end = end};
}
