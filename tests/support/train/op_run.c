/* SPDX-License-Identifier: Apache-2.0 */
#include "support/train/op_run.h"

#include <stdlib.h>
#include <string.h>

#include "base/convert.h"
#include "train/graph/op.h"

enum { NAN_BYTE = 0xFF, GUARD_BYTE = 0xA5, GUARD_BYTES = 64 };

#define TRY_CALL(call)                                                                                                 \
    do {                                                                                                               \
        comet_status try_status = (call);                                                                              \
        if (try_status != COMET_OK)                                                                                    \
            return failure_set(f, "%s: %s: %s", #call, comet_status_string(try_status), comet_last_error());           \
    } while (0)

static void *host_take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

/* ---- memory of the backend ---- */

/* Every other case has a guard behind each array; in the rest arrays end where their memory does. */
static size_t guard_bytes(const op_run *run) {
    return run->c->random % 2 ? GUARD_BYTES : 0;
}

/* Poisoned. */
static int take(op_run *run, size_t bytes, void **memory, failure *f) {
    const size_t all = bytes + guard_bytes(run);
    unsigned char *host = host_take(all);
    memset(host, NAN_BYTE, bytes);
    memset(host + bytes, GUARD_BYTE, all - bytes);
    TRY_CALL(run->backend->space->take(run->backend->space, all, memory));
    TRY_CALL(run->backend->space->write(run->backend->space, *memory, host, all));
    free(host);
    return 1;
}

/* Checks the guard, too. NULL is allowed. */
static int give(op_run *run, void *memory, size_t bytes, const char *what, failure *f) {
    unsigned char guard[GUARD_BYTES];
    if (!memory)
        return 1;
    TRY_CALL(run->backend->space->read(run->backend->space, guard, (char *)memory + bytes, guard_bytes(run)));
    run->backend->space->give(run->backend->space, memory, bytes + guard_bytes(run));
    for (size_t i = 0; i < guard_bytes(run); i++)
        if (guard[i] != GUARD_BYTE)
            return failure_set(f, "%s: byte %zu behind it was written", what, i);
    return 1;
}

static size_t value_bytes(const op_run *run, int64_t count) {
    return (size_t)count * comet_dtype_size(run->backend->dtype);
}

static int write_values(op_run *run, void *memory, const float *values, int64_t count, failure *f) {
    const size_t bytes = value_bytes(run, count);
    uint8_t *host = host_take(bytes);
    comet_loop_of_f32(run->backend->dtype, values, count, host);
    TRY_CALL(run->backend->space->write(run->backend->space, memory, host, bytes));
    free(host);
    return 1;
}

static int read_values(op_run *run, const void *memory, int64_t count, float **values, failure *f) {
    const size_t bytes = value_bytes(run, count);
    uint8_t *host = host_take(bytes);
    TRY_CALL(run->backend->space->read(run->backend->space, host, memory, bytes));
    *values = host_take((size_t)count * sizeof **values);
    comet_loop_to_f32(run->backend->dtype, host, count, *values);
    free(host);
    return 1;
}

static int take_values(op_run *run, const float *values, int64_t count, void **memory, failure *f) {
    return take(run, value_bytes(run, count), memory, f) && (!values || write_values(run, *memory, values, count, f));
}

static int read_bytes(op_run *run, const void *memory, size_t bytes, uint8_t **host, failure *f) {
    *host = host_take(bytes);
    TRY_CALL(run->backend->space->read(run->backend->space, *host, memory, bytes));
    return 1;
}

/* ---- the run ---- */

int64_t op_count(const op_run *run, comet_value v) {
    return comet_shape_count(*comet_value_shape(run->graph, v)) * run->c->batch;
}

unsigned op_traits(const op_run *run) {
    return comet_op_traits(run->graph, run->node);
}

static size_t mask_bytes(const op_run *run) {
    return (size_t)(op_count(run, run->node->output) + 7) / 8;
}

static size_t side_bytes(const op_run *run) {
    return run->kernel->side ? run->kernel->side(&run->call)
                             : comet_op_side_bytes(run->graph, run->node, run->c->batch);
}

int op_graph_new(const op_case *c, comet_graph **g, const comet_node **node, failure *f) {
    TRY_CALL(comet_graph_new(NULL, g));
    const comet_value y = c->build(*g, c->how);
    if ((*g)->status != COMET_OK)
        return failure_set(f, "the graph: %s", (*g)->message.text);
    *node = &(*g)->nodes[(*g)->values[y].producer];
    return 1;
}

int op_run_new(op_run *run, const op_case *c, comet_backend *backend, failure *f) {
    *run = (op_run){.c = c, .backend = backend};
    if (!op_graph_new(c, &run->graph, &run->node, f))
        return 0;
    TRY_CALL(comet_graph_allocate(run->graph, backend->space, 1));
    run->kernel = backend->kernels[run->node->kind];
    if (!run->kernel)
        return failure_set(f, "the backend has no such kernel");
    if (backend->supports && !backend->supports(backend, run->graph, run->node, c->batch, !c->evaluation))
        return failure_set(f, "the backend does not support it");
    run->call = (comet_op_call){.backend = backend,
                                .graph = run->graph,
                                .node = run->node,
                                .batch = c->batch,
                                .training = !c->evaluation,
                                .relu = c->relu,
                                .accumulate = c->accumulate};
    if (run->kernel->prepare)
        TRY_CALL(run->kernel->prepare(&run->call, &run->call.state));
    run->call.seed = c->seed;
    run->call.step = c->step;
    run->call.first_sample = c->first_sample;
    return 1;
}

static void free_results(op_results *r) {
    free(r->y);
    free(r->again);
    free(r->mask);
    free(r->side);
    for (int k = 0; k < 2; k++)
        free(r->dx[k]);
    for (int k = 0; k < OP_PARAMETERS; k++) {
        free(r->parameters[k]);
        free(r->gradients[k]);
    }
}

void op_run_free(op_run *run) {
    failure ignored;
    if (!run->c) /* never begun */
        return;
    if (run->side)
        (void)give(run, run->side, side_bytes(run), "side", &ignored);
    if (run->mask)
        (void)give(run, run->mask, mask_bytes(run), "mask", &ignored);
    if (run->kernel && run->kernel->forget && run->call.state)
        run->kernel->forget(run->call.state);
    comet_graph_free(run->graph);
    free_results(&run->results);
}

/* ---- parameters ---- */

int op_run_write_parameters(op_run *run, const op_values *v, failure *f) {
    comet_space *space = run->backend->space;
    for (int k = 0; k < OP_PARAMETERS; k++) {
        const comet_parameter *p = comet_node_parameter(run->graph, run->node, k);
        if (!p)
            continue;
        TRY_CALL(space->write(space, p->value, v->parameters[k], (size_t)p->count * sizeof(float)));
        if (p->gradient)
            TRY_CALL(space->write(space, p->gradient, v->gradients[k], (size_t)p->count * sizeof(float)));
    }
    if (run->backend->begin)
        TRY_CALL(run->backend->begin(run->backend, run->graph));
    return 1;
}

static int read_parameters(op_run *run, int gradients, failure *f) {
    for (int k = 0; k < OP_PARAMETERS; k++) {
        const comet_parameter *p = comet_node_parameter(run->graph, run->node, k);
        const float *from = !p ? NULL : gradients ? p->gradient : p->value;
        if (!from)
            continue;
        uint8_t *host;
        if (!read_bytes(run, from, (size_t)p->count * sizeof(float), &host, f))
            return 0;
        *(gradients ? &run->results.gradients[k] : &run->results.parameters[k]) = (float *)(void *)host;
    }
    return 1;
}

/* ---- forward ---- */

static int take_scratch(op_run *run, int backward, size_t *bytes, failure *f) {
    *bytes = run->kernel->scratch ? run->kernel->scratch(&run->call, backward) : 0;
    run->call.scratch = NULL;
    return !*bytes || take(run, *bytes, &run->call.scratch, f);
}

static int take_inputs(op_run *run, const op_values *v, void *x[2], failure *f) {
    for (int k = 0; k < run->node->inputs; k++)
        if (!take_values(run, v->x[k], op_count(run, run->node->input[k]), &x[k], f))
            return 0;
    return 1;
}

static int take_kept(op_run *run, failure *f) {
    if (run->c->evaluation)
        return 1;
    if (run->c->mask && !take(run, mask_bytes(run), &run->mask, f))
        return 0;
    if (side_bytes(run) && !take(run, side_bytes(run), &run->side, f))
        return 0;
    run->call.mask = run->mask;
    run->call.side = run->side;
    return 1;
}

static int read_kept(op_run *run, failure *f) {
    op_results *r = &run->results;
    r->side_bytes = run->side ? side_bytes(run) : 0;
    return (!run->mask || read_bytes(run, run->mask, mask_bytes(run), &r->mask, f)) &&
           (!run->side || read_bytes(run, run->side, r->side_bytes, &r->side, f));
}

/* As during backward: where the input is still there. */
static int run_again(op_run *run, failure *f) {
    const int64_t count = op_count(run, run->node->output);
    if (!run->kernel->forward_again || run->c->evaluation || run->c->y_over)
        return 1;
    comet_op_call call = run->call;
    call.mask = NULL;
    if (!take_values(run, NULL, count, &call.y, f))
        return 0;
    TRY_CALL(run->kernel->forward_again(&call));
    return read_values(run, call.y, count, &run->results.again, f) &&
           give(run, call.y, value_bytes(run, count), "the output made again", f);
}

int op_run_forward(op_run *run, const op_values *v, failure *f) {
    const int64_t count = op_count(run, run->node->output);
    void *x[2] = {NULL, NULL}, *y = NULL;
    size_t scratch;
    if (!take_inputs(run, v, x, f) || !take_kept(run, f) || !take_scratch(run, 0, &scratch, f))
        return 0;
    if (!run->c->y_over && !take_values(run, NULL, count, &y, f))
        return 0;
    run->call.x[0] = x[0];
    run->call.x[1] = x[1];
    run->call.y = run->c->y_over ? x[run->c->y_over - 1] : y;
    TRY_CALL(run->kernel->forward(&run->call));
    if (!read_values(run, run->call.y, count, &run->results.y, f) || !read_kept(run, f) || !run_again(run, f))
        return 0;
    for (int k = 0; k < 2; k++)
        if (!give(run, x[k], k < run->node->inputs ? value_bytes(run, op_count(run, run->node->input[k])) : 0,
                  "an input", f))
            return 0;
    return give(run, y, value_bytes(run, count), "the output", f) &&
           give(run, run->call.scratch, scratch, "scratch", f) && read_parameters(run, 0, f);
}

/* ---- backward ---- */

/* All that a backward is given, and then what of it is to be given back. */
typedef struct operands {
    void *x[2], *y, *dy, *dx[2]; /* dx: NULL also if it lies over something else */
    size_t scratch;
} operands;

static int take_needs(op_run *run, const op_values *v, operands *o, failure *f) {
    const unsigned traits = op_traits(run);
    for (int k = 0; k < run->node->inputs; k++)
        if ((traits & (k ? COMET_NEEDS_X1 : COMET_NEEDS_X0)) &&
            !take_values(run, v->x[k], op_count(run, run->node->input[k]), &o->x[k], f))
            return 0;
    if (((traits & COMET_NEEDS_Y) || ((traits & COMET_NEEDS_SIGN) && !run->c->mask)) &&
        !take_values(run, v->y, op_count(run, run->node->output), &o->y, f))
        return 0;
    return take_values(run, v->dy, op_count(run, run->node->output), &o->dy, f);
}

static int take_outputs(op_run *run, operands *o, failure *f) {
    comet_op_call *call = &run->call;
    for (int k = 0; k < 2; k++) {
        call->dx[k] = NULL;
        if (k >= run->node->inputs || (run->c->no_dx >> k & 1))
            continue;
        if (k == 0 && run->c->dx_over == OP_OVER_DY)
            call->dx[k] = o->dy;
        else if (k == 0 && run->c->dx_over == OP_OVER_NEED)
            call->dx[k] = o->x[0] ? o->x[0] : o->y;
        else if (!take_values(run, NULL, op_count(run, run->node->input[k]), &o->dx[k], f))
            return 0;
        else
            call->dx[k] = o->dx[k];
    }
    return 1;
}

static int give_operands(op_run *run, operands *o, failure *f) {
    const size_t y = value_bytes(run, op_count(run, run->node->output));
    for (int k = 0; k < run->node->inputs; k++) {
        const size_t x = value_bytes(run, op_count(run, run->node->input[k]));
        if (!give(run, o->x[k], x, "an input of backward", f) || !give(run, o->dx[k], x, "dx", f))
            return 0;
    }
    return give(run, o->y, y, "y", f) && give(run, o->dy, y, "dy", f) &&
           give(run, run->call.scratch, o->scratch, "scratch of backward", f);
}

int op_run_backward(op_run *run, const op_values *v, failure *f) {
    comet_op_call *call = &run->call;
    comet_space *space = run->backend->space;
    operands o = {{NULL, NULL}, NULL, NULL, {NULL, NULL}, 0};
    if (run->c->evaluation || (op_traits(run) & COMET_DX_IS_DY) || !run->kernel->backward)
        return 1;
    if (!take_needs(run, v, &o, f) || !take_outputs(run, &o, f) || !take_scratch(run, 1, &o.scratch, f))
        return 0;
    if (run->mask)
        TRY_CALL(space->write(space, run->mask, v->mask, mask_bytes(run)));
    call->x[0] = o.x[0];
    call->x[1] = o.x[1];
    call->y = o.y;
    call->dy = o.dy;
    call->normalised = run->c->normalised;
    TRY_CALL(run->kernel->backward(call));
    for (int k = 0; k < 2; k++)
        if (call->dx[k] && !read_values(run, call->dx[k], op_count(run, run->node->input[k]), &run->results.dx[k], f))
            return 0;
    return read_parameters(run, 1, f) && give_operands(run, &o, f);
}
