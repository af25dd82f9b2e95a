/* SPDX-License-Identifier: Apache-2.0 */
#include "train/models/initialise.h"

#include <math.h>
#include <string.h>

#include "base/parallel.h"
#include "base/philox.h"

/* How one parameter begins. */
typedef struct draw {
    enum { CONSTANT, UNIFORM, NORMAL } kind;
    double size; /* the constant, the bound, the deviation */
} draw;

static draw uniform_of(int fan) {
    return (draw){UNIFORM, 1.0 / sqrt((double)fan)};
}

static draw draw_linear(comet_initialisation rule, const comet_parameter *p) {
    switch (rule) {
    case COMET_INITIALISE_VGG:
        return (draw){NORMAL, 0.01};
    case COMET_INITIALISE_EFFICIENTNET:
        return uniform_of(p->fan_out);
    default:
        return uniform_of(p->fan_in);
    }
}

static draw draw_of(comet_initialisation rule, const comet_parameter *p) {
    switch (p->kind) {
    case COMET_CONV_WEIGHT:
        return rule == COMET_INITIALISE_DEFAULT ? uniform_of(p->fan_in) : (draw){NORMAL, sqrt(2.0 / p->fan_out)};
    case COMET_LINEAR_WEIGHT:
        return draw_linear(rule, p);
    case COMET_BIAS: /* no convolution of the ResNets has one */
        return rule == COMET_INITIALISE_DEFAULT || rule == COMET_INITIALISE_RESNET ? uniform_of(p->fan_in)
                                                                                   : (draw){CONSTANT, 0.0};
    case COMET_NORM_WEIGHT:
    case COMET_RUNNING_VAR:
        return (draw){CONSTANT, 1.0};
    default:
        return (draw){CONSTANT, 0.0};
    }
}

/* ---- numbers ---- */

/*
 * The last counter word says what the words are for (base/random.h has 1 to 3): never changed, or seeds mean something
 * else.
 */
enum { PURPOSE = 4, LANES = 16, PIECE = 4 * LANES }; /* PIECE: values drawn together */

static double value_of(const draw *d, uint32_t word) {
    double unit = ((double)word + 0.5) * 0x1p-32; /* never 0 nor 1, and symmetric */
    return d->size * (d->kind == UNIFORM ? 2.0 * unit - 1.0 : comet_normal_quantile(unit));
}

/* Values PIECE * piece .. of parameter `index`, of which `count` are wanted. */
static void draw_piece(const draw *d, uint64_t seed, int index, int64_t piece, int64_t count, float *values) {
    uint32_t words[4][LANES];
    for (int i = 0; i < LANES; i++) {
        uint64_t block = (uint64_t)piece * LANES + (uint64_t)i;
        words[0][i] = (uint32_t)block;
        words[1][i] = (uint32_t)(block >> 32);
        words[2][i] = (uint32_t)index;
        words[3][i] = (uint32_t)PURPOSE << 16;
    }
    comet_philox_many((uint32_t *const[4]){words[0], words[1], words[2], words[3]}, LANES, seed);
    for (int64_t k = 0; k < count; k++)
        values[k] = (float)value_of(d, words[k / LANES][k % LANES]);
}

/* ---- parameters ---- */

/* Some values of a parameter, drawn in the host's memory. */
enum { CHUNK = PIECE << 7 };

typedef struct job {
    draw draw;
    uint64_t seed;
    int index;
    int64_t first, count; /* `first` is a multiple of PIECE */
    unsigned workers;
    float values[CHUNK];
} job;

static void draw_share(void *context, unsigned worker) {
    job *j = context;
    const int64_t pieces = (j->count + PIECE - 1) / PIECE, end = pieces * (worker + 1) / j->workers;
    for (int64_t piece = pieces * worker / j->workers; piece < end; piece++) {
        const int64_t at = piece * PIECE, left = j->count - at;
        draw_piece(&j->draw, j->seed, j->index, j->first / PIECE + piece, left < PIECE ? left : PIECE, j->values + at);
    }
}

static comet_status draw_parameter(job *j, const comet_parameter *p, comet_threads *threads) {
    comet_status status = COMET_OK;
    for (j->first = 0; j->first < p->count && status == COMET_OK; j->first += CHUNK) {
        j->count = p->count - j->first < CHUNK ? p->count - j->first : CHUNK;
        comet_parallel(threads, j->workers, draw_share, j);
        status = p->space->write(p->space, p->value + j->first, j->values, (size_t)j->count * sizeof *j->values);
    }
    return status;
}

comet_status comet_initialise(comet_initialisation rule, uint64_t seed, comet_parameter *parameters, int count,
                              comet_threads *threads) {
    comet_status status = COMET_OK;
    job j = {.seed = seed, .workers = comet_threads_count(threads)};
    for (int i = 0; i < count && status == COMET_OK; i++) {
        const comet_parameter *p = &parameters[i];
        j.draw = draw_of(rule, p);
        j.index = i;
        status = j.draw.kind == CONSTANT ? p->space->fill(p->space, p->value, p->count, (float)j.draw.size)
                                         : draw_parameter(&j, p, threads);
    }
    return status;
}
