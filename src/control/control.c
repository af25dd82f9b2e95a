/* SPDX-License-Identifier: Apache-2.0 */
/* Making controls, and the list of those there are. */
#include "control/control.h"

#include <math.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/fp_environment.h"
#include "base/memory.h"
#include "base/sized.h"

static const comet_control_methods *const all_methods[] = {&comet_control_comet, &comet_control_mean,
                                                           &comet_control_paper, &comet_control_acgc,
                                                           &comet_control_fixed, &comet_control_budget};
enum { METHODS = sizeof all_methods / sizeof *all_methods };

const char *comet_control_name(int index) {
    return index >= 0 && index < METHODS ? all_methods[index]->name : NULL;
}

const comet_control_methods *comet_control_find(const char *name) {
    for (int i = 0; name && i < METHODS; i++)
        if (strcmp(all_methods[i]->name, name) == 0)
            return all_methods[i];
    return NULL;
}

static comet_status check_tensor(const comet_control_tensor *t, int i) {
    COMET_REQUIRE(t->name, "tensors[%d].name is NULL", i);
    COMET_REQUIRE(t->count >= 1, "tensors[%d].count is %lld: it must be 1 or more", i, (long long)t->count);
    COMET_REQUIRE(t->use_count >= 0, "tensors[%d].use_count is %d: it must not be negative", i, (int)t->use_count);
    COMET_REQUIRE(t->use_count == 0 || t->uses, "tensors[%d].uses is NULL", i);
    for (int32_t u = 0; u < t->use_count; u++)
        COMET_REQUIRE((unsigned)t->uses[u].kind < COMET_USE_KINDS, "tensors[%d].uses[%d].kind is %d, which is none", i,
                      (int)u, (int)t->uses[u].kind);
    return COMET_OK;
}

static comet_status check_tensors(const comet_control_tensor *tensors, int32_t count, int32_t *uses) {
    int64_t total = 0;
    COMET_REQUIRE(count >= 0, "count is %d: it must not be negative", (int)count);
    COMET_REQUIRE(count == 0 || tensors, "tensors is NULL");
    for (int32_t i = 0; i < count; i++) {
        COMET_TRY(check_tensor(&tensors[i], (int)i));
        total += tensors[i].use_count;
    }
    COMET_REQUIRE(total <= INT32_MAX, "tensors have more than 2^31 - 1 uses");
    *uses = (int32_t)total;
    return COMET_OK;
}

/* One block: the struct, then its arrays. With control NULL only the bytes are counted. */
static size_t lay_out(comet_control *control, int32_t count, int32_t uses) {
    size_t at_tensors = comet_align_up(sizeof *control, COMET_ALIGNMENT);
    size_t at_uses = at_tensors + comet_align_up((size_t)count * sizeof *control->tensors, COMET_ALIGNMENT);
    size_t at_own = at_uses + comet_align_up((size_t)uses * sizeof *control->uses, COMET_ALIGNMENT);
    size_t at_choices = at_own + comet_align_up((size_t)count * sizeof *control->own, COMET_ALIGNMENT);
    size_t bytes = at_choices + comet_align_up((size_t)count * sizeof *control->choices, COMET_ALIGNMENT);
    if (!control)
        return bytes;
    char *memory = (char *)control;
    control->bytes = bytes;
    control->count = count;
    control->use_count = uses;
    control->tensors = (comet_control_tensor_view *)(memory + at_tensors);
    control->uses = (comet_control_use_view *)(memory + at_uses);
    control->own = (control_tensor *)(memory + at_own);
    control->choices = (comet_control_choice *)(memory + at_choices);
    return bytes;
}

static void copy_tensors(comet_control *control, const comet_control_tensor *tensors) {
    comet_control_use_view *use = control->uses;
    comet_control_bound_value warmup = {COMET_BOUND_RELATIVE, control->options.warmup_bound};
    for (int32_t i = 0; i < control->count; i++) {
        control_tensor *own = &control->own[i];
        strncpy(own->name, tensors[i].name, sizeof own->name - 1);
        own->target = warmup;
        own->use = -1;
        control->tensors[i] = (comet_control_tensor_view){.name = own->name,
                                                          .count = tensors[i].count,
                                                          .use_count = tensors[i].use_count,
                                                          .uses = use,
                                                          .bound = warmup};
        for (int32_t u = 0; u < tensors[i].use_count; u++, use++)
            *use = (comet_control_use_view){.kind = tensors[i].uses[u].kind, .gradient = tensors[i].uses[u].gradient};
    }
}

/* Errors of several tensors are independent: variances add, so each of k may have 1 / k. */
static void share_gradients(comet_control *control) {
    for (int32_t i = 0; i < control->use_count; i++) {
        int sharers = 0;
        for (int32_t k = 0; k < control->use_count; k++)
            sharers +=
                k == i || (control->uses[i].gradient >= 0 && control->uses[k].gradient == control->uses[i].gradient);
        control->uses[i].share = 1.0 / sqrt((double)sharers);
    }
}

/* The first choice of methods that need no statistics; for the others the log says where warm-up starts. */
static comet_status start(comet_control *control) {
    comet_control_view view = comet_control_view_of(control);
    comet_status status = COMET_OK;
    if (control->methods->create)
        status = control->methods->create(&view, &control->instance);
    if (status != COMET_OK)
        return status;
    if (control->methods->flags & COMET_CONTROL_AT_ONCE) {
        status = comet_control_assess(control);
        if (status == COMET_OK)
            comet_control_commit(control, COMET_CAUSE_START);
        else if (control->methods->release)
            control->methods->release(control->instance);
    }
    return status;
}

static comet_status check_methods(const comet_control_methods *methods) {
    COMET_REQUIRE(methods, "methods is NULL: no controller of that name?");
    if (methods->version != COMET_CONTROL_VERSION || methods->size != sizeof *methods)
        return comet_fail(COMET_ERROR_VERSION, "methods are of version %u and %zu bytes, here it is %d and %zu",
                          (unsigned)methods->version, methods->size, COMET_CONTROL_VERSION, sizeof *methods);
    int stores = (methods->state_bytes != NULL) + (methods->save != NULL) + (methods->load != NULL);
    COMET_REQUIRE(methods->name, "methods->name is NULL");
    COMET_REQUIRE(methods->assess, "methods->assess is NULL");
    COMET_REQUIRE(stores == 0 || stores == 3, "methods must have all of state_bytes, save and load, or none");
    return COMET_OK;
}

static comet_status fill(comet_control *c, const comet_control_methods *methods, const comet_control_options *options,
                         const comet_control_tensor *tensors) {
    fenv_t callers;
    c->methods = methods;
    c->options = *options;
    c->options.allocator = comet_memory_hold(&c->allocator, options->allocator);
    c->iteration = -1;
    c->safety = (control_safety){.tightness = 1.0, .trouble_at = -1, .eased_at = -1};
    copy_tensors(c, tensors);
    comet_fp_enter(&callers);
    share_gradients(c);
    comet_status status = start(c);
    comet_fp_leave(&callers);
    return status;
}

comet_status comet_control_new(const comet_control_methods *methods, const comet_control_options *options,
                               const comet_control_tensor *tensors, int32_t count, comet_control **control) {
    static const comet_control_options defaults = COMET_CONTROL_OPTIONS_INIT;
    int32_t uses;
    comet_control_options o;
    comet_begin();
    COMET_TRY(check_methods(methods));
    COMET_REQUIRE_POINTER(control);
    COMET_TRY(comet_sized_read(&o, sizeof o, options, &defaults, "options"));
    const char *problem = comet_control_check(&o);
    COMET_REQUIRE(!problem, "options: %s", problem);
    COMET_TRY(check_tensors(tensors, count, &uses));
    size_t bytes = lay_out(NULL, count, uses);
    comet_control *c = comet_memory_take(o.allocator, bytes);
    if (!c)
        return COMET_ERROR_MEMORY;
    memset(c, 0, bytes);
    (void)lay_out(c, count, uses);
    comet_status status = fill(c, methods, &o, tensors);
    if (status == COMET_OK)
        *control = c;
    else
        comet_memory_give(o.allocator, c, bytes);
    return status;
}

void comet_control_free(comet_control *control) {
    if (!control)
        return;
    if (control->methods->release)
        control->methods->release(control->instance);
    comet_memory_give(control->options.allocator, control, control->bytes);
}

const comet_control_use_view *comet_control_find_use(const comet_control *control, int32_t tensor, int32_t use) {
    const int is_use =
        control && tensor >= 0 && tensor < control->count && use >= 0 && use < control->tensors[tensor].use_count;
    return is_use ? &control->tensors[tensor].uses[use] : NULL;
}

double comet_control_factor(const comet_control *control, int32_t tensor, int32_t use, int64_t *measured) {
    const comet_control_use_view *view = comet_control_find_use(control, tensor, use);
    if (measured)
        *measured = view ? view->measured : 0;
    return view && view->stats.factor > 0.0 ? view->stats.factor : 1.0;
}

void comet_control_set_factor(comet_control *control, int32_t tensor, int32_t use, double factor, int64_t measured) {
    const int is_use =
        control && tensor >= 0 && tensor < control->count && use >= 0 && use < control->tensors[tensor].use_count;
    if (!is_use || !(factor > 0.0) || !comet_control_is_amount(factor) || measured <= 0)
        return;
    comet_control_use_view *view = control->uses + (control->tensors[tensor].uses - control->uses) + use;
    view->stats.factor = factor;
    view->measured = measured;
}

uint32_t comet_control_needs(const comet_control *control) {
    const comet_control_options *o = &control->options;
    const uint32_t without = (o->measured ? 0 : COMET_NEEDS_MEASURED) | (o->joint ? 0 : COMET_NEEDS_JOINT);
    return control->methods->needs & ~without;
}
