// SPDX-License-Identifier: Apache-2.0
#include "emulation_fibers.h"

#include <fenv.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulation_context.h"
#include "emulation_order.h"

namespace {

enum { WARP = 32, MAX_THREADS = 1024, MAX_WARPS = MAX_THREADS / WARP };
enum { POLLS_A_TURN = 256, MOST_IDLE_TURNS = 1 << 22 };

enum state { READY, WAITS_FOR_WARP, WAITS_FOR_BLOCK, ENDED };

struct request {
    emulation_kind kind;
    uint32_t mask;
    uint64_t value;
    uint32_t source;
    const char *file;
    int line;
};

struct fiber {
    emulation_context context;
    uint3 index;
    unsigned number;
    enum state state;
    request wants;
    uint64_t result;
    char published[2]; // addresses for emulation_publish, used in turn: others may observe the one before still
    unsigned next_published;
};

struct warp {
    uint32_t present, ended, waiting;
};

struct block {
    fiber fibers[MAX_THREADS];
    warp warps[MAX_WARPS];
    fiber *ready[MAX_THREADS]; // a ring
    unsigned first_ready, ready_count;
    unsigned threads, live, at_barrier;
    unsigned barriers;   // passed
    char published[2];   // as a fiber's
    unsigned polls;      // of the running thread in this turn
    unsigned idle_turns; // given away since something happened
    emulation_context outside;
    fiber *running;
    const std::function<void()> *body;
};

block the;
bool in_kernel;

const char *const KIND_NAMES[EMULATION_KINDS] = {
    "__syncwarp",        "__ballot_sync",      "__any_sync",        "__all_sync",        "__shfl_sync",
    "__shfl_up_sync",    "__shfl_down_sync",   "__shfl_xor_sync",   "__match_any_sync",  "__match_all_sync",
    "__reduce_add_sync", "__reduce_min_sync",  "__reduce_max_sync", "__reduce_min_sync", "__reduce_max_sync",
    "__reduce_and_sync", "__reduce_or_sync",   "__reduce_xor_sync", "__syncthreads",     "__syncthreads_or",
    "__syncthreads_and", "__syncthreads_count"};

// ---- messages ----

bool is_barrier(const request &r) {
    return r.kind >= EMULATION_BARRIER;
}

void print_request(const request &r) {
    fprintf(stderr, "%s", KIND_NAMES[r.kind]);
    if (!is_barrier(r))
        fprintf(stderr, " with mask %08x", r.mask);
    fprintf(stderr, " (%s:%d)", r.file, r.line);
}

bool same_place(const fiber &a, const fiber &b) {
    if (a.state != b.state)
        return false;
    if (a.state == READY || a.state == ENDED)
        return true;
    return a.wants.kind == b.wants.kind && a.wants.mask == b.wants.mask && a.wants.line == b.wants.line &&
           strcmp(a.wants.file, b.wants.file) == 0;
}

void print_fibers(unsigned from, unsigned to) {
    const fiber &f = the.fibers[from];
    fprintf(stderr, "  threads %u-%u: ", from, to - 1);
    if (f.state == READY)
        fprintf(stderr, "could run");
    else if (f.state == ENDED)
        fprintf(stderr, "have ended");
    else
        print_request(f.wants);
    fprintf(stderr, "\n");
}

void print_block() {
    unsigned from = 0;
    for (unsigned i = 1; i <= the.threads; i++)
        if (i == the.threads || !same_place(the.fibers[i], the.fibers[from])) {
            print_fibers(from, i);
            from = i;
        }
}

// ---- turns ----

void make_ready(fiber *f) {
    f->state = READY;
    the.ready[(the.first_ready + the.ready_count++) % MAX_THREADS] = f;
}

fiber *next_ready() {
    fiber **first = &the.ready[the.first_ready];
    if (emulation_threads_shuffled()) {
        fiber **other = &the.ready[(the.first_ready + emulation_random_thread(the.ready_count)) % MAX_THREADS];
        fiber *f = *first;
        *first = *other;
        *other = f;
    }
    the.first_ready = (the.first_ready + 1) % MAX_THREADS;
    the.ready_count--;
    return *first;
}

// Goes on with another fiber; returns when it is the caller's turn again.
void switch_away(fiber *self, bool ends) {
    emulation_context *to = &the.outside;
    if (the.ready_count > 0) {
        fiber *f = next_ready();
        if (f == self)
            return;
        the.running = f;
        emulation_here.thread = f->index;
        to = &f->context;
    } else if (the.live > 0) {
        fprintf(stderr, "emulation: no thread of the block can go on:\n");
        print_block();
        emulation_fail("deadlock");
    }
    the.polls = 0;
    emulation_context_switch(&self->context, to, ends);
}

// ---- warps ----

uint64_t reduce(emulation_kind kind, uint64_t a, uint64_t b) {
    switch (kind) {
    case EMULATION_REDUCE_ADD:
        return (uint32_t)(a + b);
    case EMULATION_REDUCE_MIN:
        return a < b ? a : b;
    case EMULATION_REDUCE_MAX:
        return a > b ? a : b;
    case EMULATION_REDUCE_MIN_SIGNED:
        return (int32_t)a < (int32_t)b ? a : b;
    case EMULATION_REDUCE_MAX_SIGNED:
        return (int32_t)a > (int32_t)b ? a : b;
    case EMULATION_REDUCE_OR:
        return a | b;
    case EMULATION_REDUCE_AND:
        return a & b;
    default:
        return a ^ b;
    }
}

uint32_t lanes_with(const fiber *lanes, uint32_t mask, uint64_t value) {
    uint32_t same = 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        same |= (uint32_t)(lanes[i].wants.value == value) << i;
    }
    return same;
}

uint64_t reduced(const fiber *lanes, uint32_t mask, emulation_kind kind) {
    uint64_t r = lanes[__builtin_ctz(mask)].wants.value;
    for (uint32_t left = mask & (mask - 1); left; left &= left - 1)
        r = reduce(kind, r, lanes[__builtin_ctz(left)].wants.value);
    return r;
}

// What every lane gets, where it is the same for all.
uint64_t common_result(const fiber *lanes, uint32_t mask, emulation_kind kind) {
    switch (kind) {
    case EMULATION_SYNCWARP:
    case EMULATION_BALLOT:
        return lanes_with(lanes, mask, 1);
    case EMULATION_ANY:
        return lanes_with(lanes, mask, 1) != 0;
    case EMULATION_ALL:
        return lanes_with(lanes, mask, 1) == mask;
    case EMULATION_MATCH_ALL:
        return lanes_with(lanes, mask, lanes[__builtin_ctz(mask)].wants.value) == mask ? mask : 0;
    default:
        return reduced(lanes, mask, kind);
    }
}

bool is_shuffle(emulation_kind kind) {
    return kind >= EMULATION_SHFL && kind <= EMULATION_SHFL_XOR;
}

uint64_t own_result(const fiber *lanes, const fiber *f, uint32_t mask) {
    if (!is_shuffle(f->wants.kind))
        return lanes_with(lanes, mask, f->wants.value); // match_any
    if (mask >> f->wants.source & 1u)
        return lanes[f->wants.source].wants.value;
    return 0xbadbadbadbadbadbu; // undefined: nothing that could pass for a value
}

void resolve(fiber *lanes, warp *w, uint32_t mask, fiber *self) {
    emulation_kind kind = self->wants.kind;
    bool common = !is_shuffle(kind) && kind != EMULATION_MATCH_ANY;
    uint64_t all = common ? common_result(lanes, mask, kind) : 0;
    for (uint32_t left = mask; left; left &= left - 1) {
        fiber *f = &lanes[__builtin_ctz(left)];
        f->result = common ? all : own_result(lanes, f, mask);
    }
    w->waiting &= ~mask;
    for (uint32_t left = mask; left; left &= left - 1)
        if (&lanes[__builtin_ctz(left)] != self)
            make_ready(&lanes[__builtin_ctz(left)]);
}

// Whether all lanes of the mask wait for this. One that waits for something else, and for this lane to come there,
// never will.
bool all_here(const fiber *lanes, const warp *w, const fiber *self) {
    const request &mine = self->wants;
    if ((w->waiting & mine.mask) != mine.mask)
        return false;
    for (uint32_t left = mine.mask; left; left &= left - 1) {
        const request &theirs = lanes[__builtin_ctz(left)].wants;
        if (theirs.kind == mine.kind && theirs.mask == mine.mask)
            continue;
        if (!(theirs.mask >> self->number % WARP & 1u))
            return false;
        fprintf(stderr, "emulation: lanes of a warp wait at different collectives:\n");
        print_block();
        emulation_fail("mismatched collectives");
    }
    return true;
}

void check_mask(const warp *w, const fiber *self) {
    const request &r = self->wants;
    const char *wrong = !(r.mask >> self->number % WARP & 1u) ? "does not name the calling lane"
                        : r.mask & ~w->present                ? "names lanes that the block does not have"
                        : r.mask & w->ended                   ? "names lanes that have ended"
                                                              : nullptr;
    if (wrong)
        emulation_fail("%s:%d: %s: the mask %08x %s", r.file, r.line, KIND_NAMES[r.kind], r.mask, wrong);
}

// ---- the block's barrier ----

// All live threads wait: lets them go. `self`, if it is one of them, is running already.
void release_barrier(const fiber *self) {
    const fiber *first = nullptr;
    int count = 0, total = 0;
    for (unsigned i = 0; i < the.threads; i++) {
        const fiber *f = &the.fibers[i];
        if (f->state != WAITS_FOR_BLOCK)
            continue;
        first = first ? first : f;
        if (!same_place(*first, *f)) {
            fprintf(stderr, "emulation: threads of a block wait at different barriers:\n");
            print_block();
            emulation_fail("barrier in divergent code");
        }
        count += f->wants.value != 0;
        total++;
    }
    int results[4] = {0, count != 0, count == total, count};
    for (unsigned i = 0; i < the.threads; i++) {
        fiber *f = &the.fibers[i];
        if (f->state != WAITS_FOR_BLOCK)
            continue;
        f->result = (uint64_t)results[f->wants.kind - EMULATION_BARRIER];
        f->state = READY;
        if (f != self)
            make_ready(f);
    }
    the.at_barrier = 0;
    the.barriers++;
}

// ---- a fiber's life ----

void check_nobody_waits_for(const fiber *self, const warp *w) {
    const fiber *lanes = &the.fibers[self->number / WARP * WARP];
    for (uint32_t left = w->waiting; left; left &= left - 1) {
        const request &r = lanes[__builtin_ctz(left)].wants;
        if (!(r.mask >> self->number % WARP & 1u))
            continue;
        print_block();
        emulation_fail("thread %u ended, but lane %d waits for it at %s (%s:%d)", self->number, __builtin_ctz(left),
                       KIND_NAMES[r.kind], r.file, r.line);
    }
}

void end(fiber *self) {
    warp *w = &the.warps[self->number / WARP];
    self->state = ENDED;
    w->ended |= 1u << self->number % WARP;
    check_nobody_waits_for(self, w);
    the.live--;
    the.idle_turns = 0;
    if (the.live > 0 && the.at_barrier == the.live)
        release_barrier(nullptr);
    switch_away(self, true);
}

void fiber_main() {
    emulation_observe(&the);
    (*the.body)();
    emulation_publish(&the);
    end(the.running);
}

uint3 index_in(dim3 extent, uint64_t number) {
    return make_uint3((unsigned)(number % extent.x), (unsigned)(number / extent.x % extent.y),
                      (unsigned)(number / extent.x / extent.y));
}

void prepare_fiber(fiber *f, unsigned number, dim3 extent, const emulation_stack &stack) {
    f->number = number;
    f->index = index_in(extent, number);
    emulation_context_make(&f->context, stack, fiber_main);
    make_ready(f);
}

void prepare_warps() {
    for (unsigned i = 0; i < MAX_WARPS; i++) {
        unsigned begin = i * WARP, n = the.threads > begin ? the.threads - begin : 0;
        the.warps[i].present = n >= WARP ? 0xffffffffu : (1u << n) - 1;
        the.warps[i].ended = the.warps[i].waiting = 0;
    }
}

void run_block(dim3 grid, dim3 extent, uint64_t number) {
    the.threads = the.live = extent.x * extent.y * extent.z;
    the.at_barrier = the.polls = the.idle_turns = 0;
    the.first_ready = the.ready_count = 0;
    prepare_warps();
    for (unsigned i = 0; i < the.threads; i++)
        prepare_fiber(&the.fibers[i], i, extent, emulation_stack_of(i));
    emulation_here.block = index_in(grid, number);
    emulation_here.block_dim = extent;
    emulation_here.grid_dim = grid;
    the.running = next_ready();
    emulation_here.thread = the.running->index;
    emulation_context_of_caller(&the.outside);
    emulation_publish(&the);
    emulation_context_switch(&the.outside, &the.running->context, false);
    emulation_observe(&the);
}

// After the last to come has let the others go: unless shuffled it goes on first.
void go_on() {
    the.idle_turns = 0;
    if (emulation_threads_shuffled())
        emulation_yield();
}

void require_kernel(const char *what, const char *file, int line) {
    if (!in_kernel)
        emulation_fail("%s:%d: %s outside a kernel", file, line, what);
}

} // namespace

emulation_place emulation_here;

void emulation_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "emulation: ");
    if (in_kernel)
        fprintf(stderr, "block (%u, %u, %u), thread %u: ", emulation_here.block.x, emulation_here.block.y,
                emulation_here.block.z, the.running->number);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

bool emulation_in_kernel() {
    return in_kernel;
}

uint32_t emulation_lane() {
    return the.running->number % WARP;
}

uint64_t emulation_warp(emulation_kind kind, uint32_t mask, uint64_t value, uint32_t source, const char *file,
                        int line) {
    require_kernel(KIND_NAMES[kind], file, line);
    fiber *self = the.running, *lanes = &the.fibers[self->number / WARP * WARP];
    warp *w = &the.warps[self->number / WARP];
    self->wants = {kind, mask, value, source, file, line};
    check_mask(w, self);
    w->waiting |= 1u << self->number % WARP;
    if (all_here(lanes, w, self)) {
        resolve(lanes, w, mask, self);
        go_on();
    } else {
        self->state = WAITS_FOR_WARP;
        switch_away(self, false);
    }
    return self->result;
}

// The only collective of a warp that orders memory.
void emulation_warp_barrier(uint32_t mask, const char *file, int line) {
    require_kernel(KIND_NAMES[EMULATION_SYNCWARP], file, line);
    fiber *self = the.running, *lanes = &the.fibers[self->number / WARP * WARP];
    unsigned mine = self->next_published++ % 2;
    emulation_publish(&self->published[mine]);
    uint64_t theirs = emulation_warp(EMULATION_SYNCWARP, mask, mine, 0, file, line);
    if (emulation_orders)
        for (uint32_t left = mask; left; left &= left - 1) {
            int i = __builtin_ctz(left);
            emulation_observe(&lanes[i].published[theirs >> i & 1u]);
        }
}

int emulation_block(emulation_kind kind, int predicate, const char *file, int line) {
    require_kernel(KIND_NAMES[kind], file, line);
    fiber *self = the.running;
    self->wants = {kind, 0, predicate != 0, 0, file, line};
    self->state = WAITS_FOR_BLOCK;
    char *published = &the.published[the.barriers % 2];
    emulation_publish(published);
    if (++the.at_barrier < the.live) {
        switch_away(self, false);
    } else {
        release_barrier(self);
        go_on();
    }
    emulation_observe(published);
    return (int)self->result;
}

void emulation_yield() {
    if (!in_kernel)
        return;
    fiber *self = the.running;
    if (++the.idle_turns > MOST_IDLE_TURNS) {
        print_block();
        emulation_fail("threads poll for what does not come (another block? one runs at a time)");
    }
    make_ready(self);
    switch_away(self, false);
}

void emulation_poll() {
    if (in_kernel && ++the.polls >= POLLS_A_TURN) {
        the.polls = 0;
        emulation_yield();
    }
}

void emulation_fence() {
    emulation_publish(&in_kernel);
    emulation_observe(&in_kernel);
    emulation_poll();
}

void emulation_run_grid(dim3 grid, dim3 extent, const std::function<void()> &body) {
    if (in_kernel)
        emulation_fail("a launch inside a kernel");
    fenv_t environment;
    fegetenv(&environment);
    fesetenv(FE_DFL_ENV); // the device's rounding and subnormals do not depend on the host's mode
    emulation_stacks_make(extent.x * extent.y * extent.z);
    in_kernel = true;
    the.body = &body;
    uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
    emulation_block_order order(blocks);
    for (uint64_t i = 0; i < blocks; i++)
        run_block(grid, extent, order.at(i));
    in_kernel = false;
    fesetenv(&environment);
}
