/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all tensors cause together (docs/measured.md). Now and then the first images of a batch are run forward and
 * backward twice: as compressed as the batch is, and with all that is under the controller held without loss. The
 * second time gradients are taken away from those of the first, so that what is left in them is the error, without a
 * copy of them. Nothing else of the training changes.
 *
 * The memory is that of the step, which is given back meanwhile, or, where streams are in the plan's buffers, these.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/pages.h"
#include "comet/control_methods.h"
#include "train/plan/forms.h"
#include "train/plan/plan_impl.h"
#include "train/trainer/trainer_impl.h"

enum {
    OBSERVATIONS_BETWEEN = 10, /* a measurement for so many collecting updates, first at the third */
    FIRST_OBSERVATION = 2,
    LARGEST_PART = 4,    /* of the batch: a fourth at most; more would cost time for little */
    LEAST_IMAGES = 2,    /* of which there are means at all */
    LEAST_VALUES = 16,   /* that a batch norm's means are of: fewer say nothing of a batch's */
    LEAST_STREAM = 4096, /* bytes beside what grows with the images: headers, tables */
    TRIES = 3            /* of plans, each for fewer images */
};

typedef struct measurement {
    comet_trainer *t;
    int images;
    comet_plan *base, *lossy, *exact;  /* everything kept, for its prepared ops; as in training; without loss */
    comet_learned *learned, *of_exact; /* of the lossy one; of the exact one */
    comet_collect *collect;
    comet_holder *holder;
    size_t room, held; /* for both plans, one after the other; what they took */
    double *squares;   /* by parameter: of the gradient; then of what is left of it; then predicted of that */
    double *sums;      /* for one look at them, and of what */
    comet_span *spans;
    comet_control_joint *seen;
} measurement;

/* ---- when, and of how many images ---- */

static int is_due(const comet_trainer *t) {
    const int64_t iteration = comet_trainer_iteration(t, t->batches), every = t->parts.control_options.every;
    return t->control && t->joint_images >= 0 && comet_control_needs(t->control) & COMET_NEEDS_JOINT &&
           comet_control_wants(t->control, iteration) && iteration / every % OBSERVATIONS_BETWEEN == FIRST_OBSERVATION;
}

/* What a step takes beside what is static: that much is there while none is run. */
static size_t room_of(const comet_trainer *t) {
    const comet_plan_bytes plan = comet_plan_get_bytes(t->parts.plan, t->parts.learned);
    if (t->parts.backend->fused_streams)
        return t->buffer_bytes;
    return t->buffer_bytes + (t->store_limit && t->store_limit < plan.store_bytes ? t->store_limit : plan.store_bytes);
}

static int least_images(const comet_trainer *t) {
    const comet_graph *g = t->parts.graph;
    int least = LEAST_IMAGES;
    for (int i = 0; i < g->node_count; i++) {
        const comet_shape *s = comet_value_shape(g, g->nodes[i].output);
        if (g->nodes[i].kind == COMET_OP_BATCH_NORM && least * s->height * s->width < LEAST_VALUES)
            least = (LEAST_VALUES + s->height * s->width - 1) / (s->height * s->width);
    }
    return least;
}

/* What another batch size takes of the library, beside what it has for this one. */
static size_t library_of(const comet_trainer *t, int images) {
    comet_backend *backend = t->parts.backend;
    return backend->fused_streams ? 0 : backend->library_bytes(backend, t->parts.graph, images) - backend->library_once;
}

/* A batch without loss takes about so much: a part of it, that part. */
static int images_for(const comet_trainer *t, size_t room) {
    const size_t all = comet_plan_get_bytes(t->parts.plan, NULL).saved_raw_bytes + t->buffer_bytes;
    const int batch = t->options.batch, least = least_images(t);
    const size_t library = library_of(t, least);
    const double fit = room > library ? 0.9 * (double)(room - library) / (double)all * batch : 0;
    int images = batch / LARGEST_PART > least ? batch / LARGEST_PART : least;
    if (fit < images)
        images = (int)fit;
    return images >= least && images <= batch ? images : -1;
}

/* ---- plans ---- */

static void choose(void *context, comet_plan_entry *e) {
    comet_trainer_ask_forms(&((const measurement *)context)->t->parts, e);
    if (e->form.form == COMET_FORM_RECOMPUTE && !e->form.always)
        e->form.form = COMET_FORM_KEEP;
    e->form.offload = 0;
}

/* In proportion to the batch's, and a half more; of small ones most is the same for any number of images. */
static size_t seen_of_part(void *context, const comet_plan_entry *e) {
    const measurement *m = context;
    const size_t whole = comet_trainer_most_seen(&m->t->parts, e);
    return whole ? (size_t)(1.5 * (double)whole * m->images / m->t->options.batch) + LEAST_STREAM : 0;
}

static size_t most_of_stream(void *context, const comet_plan_entry *e) {
    (void)context;
    return e->worst_bytes;
}

/* `seen` NULL: everything is kept. */
static comet_status plan(measurement *m, size_t (*seen)(void *context, const comet_plan_entry *e), comet_plan **made,
                         comet_message *message) {
    const comet_trainer_parts *p = &m->t->parts;
    const comet_plan_options o = {.batch = m->images,
                                  .training = 1,
                                  .accumulate = 1,
                                  .choose = seen ? choose : NULL,
                                  .seen = seen,
                                  .context = m,
                                  .input_bytes = 1,
                                  .like = m->base};
    return comet_plan_new(p->graph, p->backend, &o, p->allocator, made, message);
}

static void free_plans(measurement *m) {
    comet_backend *backend = m->t->parts.backend;
    const int were_prepared = m->base != NULL;
    comet_learned_free(m->learned);
    comet_learned_free(m->of_exact);
    comet_plan_free(m->lossy);
    comet_plan_free(m->exact);
    comet_plan_free(m->base); /* last: the others use its ops */
    if (were_prepared && backend->trim)
        backend->trim(backend);
    m->learned = m->of_exact = NULL;
    m->lossy = m->exact = m->base = NULL;
}

static comet_status make_plans(measurement *m, comet_message *message) {
    comet_status status = plan(m, NULL, &m->base, message);
    if (status == COMET_OK)
        status = plan(m, seen_of_part, &m->lossy, message);
    if (status == COMET_OK)
        status = plan(m, most_of_stream, &m->exact, message);
    if (status == COMET_OK && (comet_learned_new(m->lossy, m->t->parts.allocator, &m->learned) != COMET_OK ||
                               comet_learned_new(m->exact, m->t->parts.allocator, &m->of_exact) != COMET_OK))
        status = comet_message_memory(message);
    return status;
}

static size_t most(size_t a, size_t b) {
    return a > b ? a : b;
}

/* Without loss streams may take the most that they can. */
static size_t need(const measurement *m) {
    const comet_trainer_parts *p = &m->t->parts;
    const size_t lossy = comet_plan_get_bytes(m->lossy, m->learned).buffer_bytes;
    size_t exact = comet_plan_get_bytes(m->exact, m->of_exact).buffer_bytes, scratch = 0;
    if (p->backend->fused_streams)
        return most(exact, lossy);
    for (int i = 0; i < comet_plan_entries(m->exact); i++) {
        const comet_plan_entry *e = comet_plan_get_entry(m->exact, i);
        exact += comet_plan_in_store(e) ? comet_pages_round(e->worst_bytes) : 0;
        scratch = most(scratch, e->scratch_bytes);
    }
    return exact + scratch + library_of(m->t, m->images);
}

/* COMET_ERROR_CAPACITY: no part of the batch fits. */
static comet_status plan_within(measurement *m, comet_message *message) {
    for (int i = 0; i < TRIES && m->images >= least_images(m->t); i++) {
        comet_status status = make_plans(m, message);
        if (status != COMET_OK || need(m) <= m->room)
            return status;
        m->images = (int)(0.9 * (double)m->room / (double)need(m) * m->images);
        free_plans(m);
    }
    return COMET_ERROR_CAPACITY;
}

/* ---- passes ---- */

/* What the batch that comes will have; and 0, which is without loss. */
static void set_bounds(measurement *m) {
    const comet_trainer *t = m->t;
    for (int i = 0; i < comet_plan_entries(m->lossy); i++) {
        const int32_t tensor = comet_collect_find(t->parts.collect, comet_plan_get_entry(m->lossy, i));
        if (tensor < 0)
            continue;
        comet_learned_set_bound(m->of_exact, i, COMET_BOUND_ABSOLUTE, 0);
        const comet_control_bound_value bound = comet_control_bound(t->control, tensor);
        comet_learned_set_bound(m->learned, i, bound.kind, bound.value);
        for (int k = 0; k < comet_plan_entries(t->parts.plan); k++)
            if (comet_collect_find(t->parts.collect, comet_plan_get_entry(t->parts.plan, k)) == tensor)
                comet_learned_set_rms(m->learned, i, comet_learned_at(t->parts.learned, k)->rms);
    }
}

typedef struct batch {
    const uint8_t *pixels;
    const int32_t *labels;
} batch;

static comet_status run(measurement *m, const comet_plan *p, const batch *b, comet_message *message) {
    comet_trainer *t = m->t;
    const int is_lossy = p == m->lossy, shares = t->parts.backend->fused_streams;
    const float scale = (float)comet_trainer_scale_now(t);
    const comet_step_parts parts = {is_lossy ? m->learned : m->of_exact, m->holder, shares ? t->buffers : NULL,
                                    shares ? t->buffer_bytes : 0};
    const comet_step_options options = {.bytes = b->pixels,
                                        .normalisation = &t->options.normalisation,
                                        .labels = b->labels,
                                        .smoothing = t->options.smoothing,
                                        .collect = is_lossy ? m->collect : NULL,
                                        .gradient_scale = is_lossy ? scale : -scale,
                                        .accumulate = !is_lossy,
                                        .seed = t->options.seed,
                                        .step = (uint64_t)t->batches,
                                        .rank = t->options.rank};
    comet_step_result result;
    comet_step *step = NULL;
    comet_status status = comet_graph_copy_running(t->parts.graph, t->running, 0);
    if (status == COMET_OK)
        status = comet_step_new(p, &parts, t->allocator, &step, message);
    if (status == COMET_OK)
        status = comet_step_run(step, &options, &result, message);
    comet_step_free(step);
    const comet_status back = comet_graph_copy_running(t->parts.graph, t->running, 1);
    m->held = most(m->held, (shares ? 0 : comet_plan_get_bytes(p, NULL).buffer_bytes) +
                                (m->holder ? m->holder->stats(m->holder).peak_bytes : 0));
    return status == COMET_OK ? back : status;
}

/* Of each gradient that is reached, its sum of squares. */
static comet_status look(measurement *m, double *squares, comet_message *message) {
    comet_backend *backend = m->t->parts.backend;
    int count = 0;
    for (int i = 0; i < comet_graph_parameters(m->t->parts.graph); i++) {
        const comet_parameter *p = comet_graph_parameter(m->t->parts.graph, i);
        m->sums[i] = 0;
        if (m->seen[i].gradient == i && p->gradient)
            m->spans[count++] = (comet_span){p->gradient, p->count};
    }
    comet_status status = backend->statistics->squares(backend, m->spans, count, m->sums);
    if (status == COMET_OK && backend->statistics->settle)
        status = backend->statistics->settle(backend, 1);
    for (int i = comet_graph_parameters(m->t->parts.graph) - 1; i >= 0; i--)
        if (m->seen[i].gradient == i && comet_graph_parameter(m->t->parts.graph, i)->gradient)
            squares[i] = m->sums[--count];
    return status == COMET_OK ? COMET_OK : comet_message_set(message, status, "%s", comet_status_string(status));
}

/* ---- what is predicted ---- */

static void mark_reached(measurement *m) {
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(m->t->parts.collect, &count);
    for (int32_t i = 0; i < count; i++)
        for (int32_t u = 0; u < tensors[i].use_count; u++)
            if (tensors[i].uses[u].gradient >= 0)
                m->seen[tensors[i].uses[u].gradient].gradient = tensors[i].uses[u].gradient;
}

/* A tensor of which something was not seen: nothing is said of the gradients that it reaches. */
static void forget(const comet_control_tensor *tensor, double *predicted) {
    for (int32_t u = 0; u < tensor->use_count; u++)
        if (tensor->uses[u].gradient >= 0)
            predicted[tensor->uses[u].gradient] = (double)NAN;
}

static void predict(measurement *m, double *predicted) {
    const comet_trainer *t = m->t;
    const comet_collect_update update = {&t->options.optimiser, 0, t->means, t->updates > 0 ? t->updates : 1,
                                         comet_trainer_scale_now(t)};
    int32_t count;
    const comet_control_tensor *tensors = comet_collect_tensors(m->collect, &count);
    for (int32_t i = 0; i < count; i++) {
        const comet_control_observation *o = comet_collect_observation(m->collect, &update, i);
        if (!o) {
            forget(&tensors[i], predicted);
            continue;
        }
        for (int32_t u = 0; u < tensors[i].use_count; u++) {
            comet_use_stats stats = o->uses[u];
            stats.factor = comet_control_factor(t->control, i, u, NULL);
            stats.joint = 0;
            const double slope = comet_error_sensitivity(tensors[i].uses[u].kind, &stats);
            const double sigma = comet_error_sigma(slope, &t->parts.control_options.shape, o->sizes[0].bound, o->rms);
            if (tensors[i].uses[u].gradient >= 0)
                predicted[tensors[i].uses[u].gradient] += sigma * sigma;
        }
    }
}

/* ---- what is told ---- */

static comet_status take_layers(comet_trainer *t, comet_message *message) {
    const size_t bytes = (size_t)comet_graph_parameters(t->parts.graph) * sizeof *t->joint.layers;
    t->joint.layers = t->joint.layers ? t->joint.layers : comet_memory_take(t->allocator, bytes);
    return t->joint.layers ? COMET_OK : comet_message_memory(message);
}

void comet_trainer_joint_free(comet_trainer *t) {
    if (t->joint.layers)
        comet_memory_give(t->allocator, t->joint.layers,
                          (size_t)comet_graph_parameters(t->parts.graph) * sizeof *t->joint.layers);
}

const comet_trainer_joint *comet_trainer_get_joint(const comet_trainer *t) {
    return &t->joint;
}

static int is_known(const comet_control_joint *seen, double squares) {
    return isfinite(seen->measured) && isfinite(seen->predicted) && isfinite(squares) && squares > 0;
}

static void tell(measurement *m, const double *squares) {
    comet_trainer_joint *j = &m->t->joint;
    double error = 0, predicted = 0;
    j->iteration = comet_trainer_iteration(m->t, m->t->batches);
    j->images = m->images;
    j->count = 0;
    for (int i = 0; i < comet_graph_parameters(m->t->parts.graph); i++) {
        const comet_parameter *p = comet_graph_parameter(m->t->parts.graph, i);
        const comet_control_joint *s = &m->seen[i];
        if (s->gradient != i || p->kind > COMET_LINEAR_WEIGHT || !is_known(s, squares[i]))
            continue;
        const double mean = squares[i] / (double)p->count;
        j->layers[j->count++] =
            (comet_trainer_joint_layer){p->name, sqrt(s->measured / mean), sqrt(s->predicted / mean)};
        error += s->measured / mean;
        predicted += s->predicted / mean;
    }
    j->error = j->count ? sqrt(error / j->count) : 0;
    j->predicted = j->count ? sqrt(predicted / j->count) : 0;
}

/* ---- all of it ---- */

static comet_status take_all(measurement *m, comet_message *message) {
    comet_trainer *t = m->t;
    const size_t count = (size_t)comet_graph_parameters(t->parts.graph);
    const comet_holder_options o = {.slots = comet_plan_entries(m->lossy), .allocator = t->allocator};
    m->squares = comet_memory_take(t->allocator, 3 * count * sizeof *m->squares);
    m->sums = comet_memory_take(t->allocator, count * sizeof *m->sums);
    m->spans = comet_memory_take(t->allocator, count * sizeof *m->spans);
    m->seen = comet_memory_take(t->allocator, count * sizeof *m->seen);
    if (!m->squares || !m->sums || !m->spans || !m->seen || take_layers(t, message) != COMET_OK)
        return comet_message_memory(message);
    memset(m->squares, 0, 3 * count * sizeof *m->squares);
    for (size_t i = 0; i < count; i++)
        m->seen[i] = (comet_control_joint){.gradient = -1};
    mark_reached(m);
    comet_status status = comet_collect_new(m->lossy, t->parts.methods->needs & ~(uint32_t)COMET_NEEDS_MEASURED,
                                            t->allocator, &m->collect, message);
    if (status == COMET_OK && t->parts.backend->holder_new(t->parts.backend, &o, &m->holder) != COMET_OK)
        status = comet_message_memory(message);
    return status;
}

static void give(const measurement *m, void *memory, size_t bytes) {
    if (memory)
        comet_memory_give(m->t->allocator, memory, bytes);
}

static void give_all(measurement *m) {
    const size_t count = (size_t)comet_graph_parameters(m->t->parts.graph);
    comet_collect_free(m->collect);
    comet_holder_free(m->holder);
    give(m, m->squares, 3 * count * sizeof *m->squares);
    give(m, m->sums, count * sizeof *m->sums);
    give(m, m->spans, count * sizeof *m->spans);
    give(m, m->seen, count * sizeof *m->seen);
    free_plans(m);
}

static comet_status measure(measurement *m, const batch *b, comet_message *message) {
    const int count = comet_graph_parameters(m->t->parts.graph);
    double *first = m->squares, *left = first + count, *predicted = left + count;
    set_bounds(m);
    comet_collect_begin(m->collect);
    comet_status status = run(m, m->lossy, b, message);
    if (status == COMET_OK)
        status = look(m, first, message);
    if (status == COMET_OK)
        predict(m, predicted);
    if (status == COMET_OK)
        status = run(m, m->exact, b, message);
    if (status == COMET_OK)
        status = look(m, left, message);
    if (status != COMET_OK)
        return status;
    for (int i = 0; i < count; i++) {
        m->seen[i].measured = left[i] / (double)comet_graph_parameter(m->t->parts.graph, i)->count;
        m->seen[i].predicted = predicted[i];
    }
    tell(m, first);
    return comet_control_see_joint(m->t->control, m->seen, count);
}

/* What is not finite, or does not fit after all, is no fault of the training's: it is tried again another time. */
static int is_harmless(comet_status status) {
    return status == COMET_ERROR_CAPACITY || status == COMET_ERROR_DIVERGED || status == COMET_ERROR_MEMORY;
}

static comet_status try_it(measurement *m, const batch *b, comet_message *message) {
    comet_message unused;
    comet_status status = plan_within(m, &unused);
    m->t->joint_images = status == COMET_ERROR_CAPACITY ? -1 : m->images;
    if (status == COMET_OK)
        status = take_all(m, &unused);
    if (status == COMET_OK)
        status = measure(m, b, &unused);
    return status == COMET_OK || is_harmless(status)
               ? COMET_OK
               : comet_message_set(message, status, "errors of gradients: %.300s", unused.text);
}

comet_status comet_trainer_joint_measure(comet_trainer *t, const uint8_t *pixels, const int32_t *labels,
                                         comet_message *message) {
    if (!is_due(t))
        return COMET_OK;
    measurement m = {.t = t, .room = room_of(t)};
    const batch b = {pixels, labels};
    m.images = t->joint_images > 0 ? t->joint_images : images_for(t, m.room);
    if (m.images < 0) {
        t->joint_images = -1;
        return COMET_OK;
    }
    const int gives = !t->parts.backend->fused_streams;
    if (gives)
        comet_trainer_give(t);
    comet_status status = try_it(&m, &b, message);
    const size_t held = t->parts.static_bytes + (gives ? 0 : t->buffer_bytes) + m.held;
    give_all(&m);
    t->past_peak = most(t->past_peak, held);
    const comet_status taken = gives ? comet_trainer_take(t, message) : COMET_OK;
    return status == COMET_OK ? taken : status;
}
