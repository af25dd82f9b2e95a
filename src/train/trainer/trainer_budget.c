/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans within a budget. First as the forms ask; if that does not fit, what is kept goes to the file, if there is one,
 * the first saved first, since it is needed last; then so do, as they are, the largest tensors of which a codec was to
 * make a stream, since that takes room for all that the stream could become; then more and more of the network is
 * computed again, from its beginning on, since by the time backward comes there what was held of the rest is gone. The
 * first plan that fits is taken: it does the least beside what was asked for. All plans of `none` are among those
 * tried, so that no codec needs more memory than none.
 */
#include <stdint.h>
#include <string.h>

#include "base/pages.h"
#include "train/plan/plan_impl.h"
#include "train/trainer/trainer_impl.h"

static const int32_t cuts[] = {2, 3, 4, 6, 8, 12, 16, 24, 32};
static const int32_t plains[] = {4, 8, 12, 14, 15, 16};
enum { CUTS = sizeof cuts / sizeof *cuts, PLAINS = sizeof plains / sizeof *plains, SIXTEENTHS = 16 };

/* ---- a plan ---- */

typedef struct choice {
    const comet_trainer_parts *parts;
    const comet_saving *saving;
    int offload_before; /* node */
} choice;

/* 1: too large for a codec's stream under this saving. What is made from streams at little cost goes with them. */
static int is_plain(const choice *c, const comet_plan_entry *e) {
    const int streamed = e->form.form == COMET_FORM_CODEC || (e->form.form == COMET_FORM_RECOMPUTE && e->form.always);
    return streamed &&
           e->raw_bytes * SIXTEENTHS > c->parts->base->largest_bytes * (size_t)(SIXTEENTHS - c->saving->plain);
}

void comet_trainer_ask_forms(const comet_trainer_parts *parts, comet_plan_entry *e) {
    comet_forms_choose(parts->forms, e);
    if (parts->methods && e->op == COMET_OP_SIGMOID && e->form.form == COMET_FORM_CODEC && !e->form.fixed)
        e->form.form = COMET_FORM_KEEP; /* few values, and there is no model of what an error in a factor does */
}

static void choose(void *context, comet_plan_entry *e) {
    const choice *c = context;
    const int again = c->parts->again[e->value];
    comet_trainer_ask_forms(c->parts, e);
    if ((e->form.form == COMET_FORM_RECOMPUTE && !again && !e->form.always) || is_plain(c, e))
        e->form.form = COMET_FORM_KEEP;
    if (c->saving->forced && again && e->node >= 0) {
        e->form.form = COMET_FORM_RECOMPUTE;
        e->form.offload = 0;
    }
    if (comet_form_is_kept(&e->form) && e->node < c->offload_before)
        e->form.offload = 1;
}

static size_t seen(void *context, const comet_plan_entry *e) {
    return comet_trainer_most_seen(((const choice *)context)->parts, e);
}

/* The node before which values make up so many 16ths of all that would be kept. */
static int offload_before(const comet_trainer_parts *parts, int sixteenths) {
    const comet_plan *base = parts->base;
    size_t total = 0, before = 0;
    if (sixteenths == 0)
        return -1;
    for (int i = 0; i < base->entry_count; i++)
        total += base->entries[i].kind == COMET_SAVED_VALUE ? base->entries[i].raw_bytes : 0;
    for (int node = 0; node < base->n; node++) {
        for (int i = 0; i < base->entry_count; i++)
            if (base->entries[i].kind == COMET_SAVED_VALUE && base->entries[i].node == node)
                before += base->entries[i].raw_bytes;
        if (before * SIXTEENTHS >= total * (size_t)sixteenths)
            return node + 1;
    }
    return base->n;
}

comet_status comet_trainer_plan_with(comet_trainer_parts *parts, const comet_trainer_options *options,
                                     const comet_saving *saving, comet_message *message) {
    choice c = {parts, saving, offload_before(parts, saving->offload)};
    const comet_plan_options o = {.batch = options->batch,
                                  .training = 1,
                                  .accumulate = options->accumulate > 1,
                                  .choose = choose,
                                  .seen = seen,
                                  .context = &c,
                                  .input_bytes = 1,
                                  .like = parts->base};
    comet_plan *plan;
    comet_trainer_mark(parts, saving);
    comet_status status = comet_plan_new(parts->graph, parts->backend, &o, parts->allocator, &plan, message);
    if (status != COMET_OK)
        return status;
    comet_learned *learned;
    if (comet_learned_new(plan, parts->allocator, &learned) != COMET_OK) {
        comet_plan_free(plan);
        return comet_message_memory(message);
    }
    comet_learned_free(parts->learned);
    comet_plan_free(parts->plan);
    parts->plan = plan;
    parts->learned = learned;
    parts->saving = *saving;
    comet_trainer_recall(parts);
    return COMET_OK;
}

/* All but the store. */
static size_t others(const comet_trainer_parts *parts, const comet_trainer_options *options) {
    return options->reserved_bytes + parts->library_bytes + parts->static_bytes + comet_trainer_parts_buffers(parts);
}

size_t comet_trainer_need(const comet_trainer_parts *parts, const comet_trainer_options *options) {
    const comet_plan_bytes b = comet_plan_get_bytes(parts->plan, parts->learned);
    size_t store = b.store_bytes;
    if (options->spill_directory && b.worst_scratch_bytes < store) /* the rest can be in the file */
        store = b.worst_scratch_bytes;
    return others(parts, options) + store;
}

/* A store that will hold nothing gets a page: 0 would be no limit. */
size_t comet_trainer_store_limit(const comet_trainer_parts *parts, const comet_trainer_options *o) {
    const size_t taken = others(parts, o), page = comet_pages_round(1);
    if (!o->memory_bytes)
        return 0;
    return o->memory_bytes > taken + page ? o->memory_bytes - taken : page;
}

int comet_trainer_offloads(const comet_trainer_parts *parts, const comet_trainer_options *options) {
    return options->spill_directory != NULL || parts->backend->fused_streams;
}

/* ---- the search ---- */

typedef struct search {
    comet_trainer_parts *parts;
    const comet_trainer_options *options;
    comet_message *message;
    size_t budget, least;
    comet_saving least_saving;
    int found;
    comet_saving saving;
} search;

static comet_status try(search *s, comet_saving saving, size_t *need) {
    comet_status status = comet_trainer_plan_with(s->parts, s->options, &saving, s->message);
    *need = status == COMET_OK ? comet_trainer_need(s->parts, s->options) : SIZE_MAX;
    if (*need < s->least) {
        s->least = *need;
        s->least_saving = saving;
    }
    return status;
}

/* The best of a row of savings, which becomes what was found if it fits and nothing was before. */
static comet_status try_row(search *s, const comet_saving *row, int count, comet_saving *best) {
    size_t need, least = SIZE_MAX;
    for (int i = 0; i < count; i++) {
        comet_status status = try(s, row[i], &need);
        if (status != COMET_OK)
            return status;
        if (need < least) {
            least = need;
            *best = row[i];
        }
    }
    if (!s->found && least <= s->budget) {
        s->found = 1;
        s->saving = *best;
    }
    return COMET_OK;
}

static int row_of(comet_saving row[CUTS], comet_saving like) {
    for (int i = 0; i < CUTS; i++) {
        row[i] = like;
        row[i].segments = cuts[i];
    }
    return CUTS;
}

static int goes_on(const search *s, comet_status status, int only_first) {
    return status == COMET_OK && !(s->found && only_first);
}

/*
 * Nothing computed again that was not to be: kept tensors into the file, then the largest of the others, as they are.
 */
static comet_status search_held(search *s, comet_saving asked, int only_first) {
    const int file = comet_trainer_offloads(s->parts, s->options);
    comet_status status = COMET_OK;
    comet_saving best;
    for (int k = 1; k <= SIXTEENTHS && file && goes_on(s, status, only_first); k++) {
        asked.offload = k;
        status = try_row(s, &asked, 1, &best);
    }
    for (int i = 0; i < PLAINS && goes_on(s, status, only_first); i++) {
        asked.plain = plains[i];
        status = try_row(s, &asked, 1, &best);
    }
    return status;
}

static comet_status search_again(search *s, int plain, int only_first) {
    const int offload = comet_trainer_offloads(s->parts, s->options) ? SIXTEENTHS : 0;
    comet_status status = COMET_OK;
    comet_saving row[CUTS], best;
    for (int held = SIXTEENTHS - 2; held >= 0 && goes_on(s, status, only_first); held -= 2) {
        const comet_saving like = {.held = held, .forced = 1, .offload = offload, .plain = plain};
        status = try_row(s, row, row_of(row, like), &best);
    }
    return status;
}

/* What was best, with streams of another size made or not. */
static comet_status search_between(search *s, int only_first) {
    comet_status status = COMET_OK;
    comet_saving saving = s->least_saving, best;
    for (int i = 0; i < PLAINS && goes_on(s, status, only_first); i++) {
        saving.plain = plains[i];
        status = try_row(s, &saving, 1, &best);
    }
    return status;
}

static comet_status search_all(search *s, int only_first) {
    comet_saving row[CUTS] = {{0}}, asked;
    const int count = comet_forms_recomputes(s->parts->forms) ? row_of(row, (comet_saving){0}) : 1;
    comet_status status = try_row(s, row, count, &asked);
    if (goes_on(s, status, only_first))
        status = search_held(s, asked, only_first);
    if (goes_on(s, status, only_first))
        status = search_again(s, 0, only_first);
    if (goes_on(s, status, only_first))
        status = search_again(s, SIXTEENTHS, only_first);
    return goes_on(s, status, only_first) ? search_between(s, only_first) : status;
}

static comet_status too_little(const search *s) {
    const comet_trainer_options *o = s->options;
    return comet_message_set(s->message, COMET_ERROR_CAPACITY,
                             "a batch of %d does not fit in %.1f MiB: at least %.1f MiB are needed%s", o->batch,
                             (double)o->memory_bytes / 0x1p20, ((double)s->least + 0.05 * 0x1p20) / 0x1p20,
                             comet_trainer_offloads(s->parts, o) ? "" : ", or a directory to spill to");
}

comet_status comet_trainer_plan_within(comet_trainer_parts *parts, const comet_trainer_options *options, size_t *least,
                                       comet_message *message) {
    search s = {.parts = parts,
                .options = options,
                .message = message,
                .budget = options->memory_bytes ? options->memory_bytes : SIZE_MAX,
                .least = SIZE_MAX};
    comet_status status = search_all(&s, !least);
    if (least)
        *least = s.least;
    if (status != COMET_OK)
        return status;
    return s.found ? comet_trainer_plan_with(parts, options, &s.saving, message) : too_little(&s);
}
