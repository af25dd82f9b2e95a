/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A control as bytes, little-endian:
 *
 *     0  magic "CMTS"    4  version    8  bytes in all (8)    16  CRC-32 of everything, this field as 0
 *    20  CRC-32 of what the state is of: the methods' name, the tensors and their uses
 *    24  the fields that `walk` names, 8 bytes each; the bytes of the methods' own state (8), and these
 *
 * One function walks over the fields, to write, to check and to read them.
 */
#include <math.h>
#include <string.h>
#include <zlib.h>

#include "base/bits.h"
#include "base/fail.h"
#include "control/control.h"

enum { STATE_MAGIC = 0x53544d43, STATE_VERSION = 4, OLDEST_VERSION = 2, STATE_HEADER = 24, AT_CHECKSUM = 16 };

/* A state that is true has counted less than this; the control counts on from it without an overflow. */
#define MOST_COUNT (INT64_MAX / 2)

typedef enum walk_mode { WALK_COUNT, WALK_WRITE, WALK_CHECK, WALK_READ } walk_mode;

typedef struct walker {
    walk_mode mode;
    unsigned char *out;
    const unsigned char *in;
    size_t at, bytes; /* of what is read */
    uint32_t version; /* 2: without factors, samples and buffers; 3: without joint factors */
    int failed;
} walker;

static uint64_t next_bits(walker *w, uint64_t bits) {
    if (w->mode == WALK_WRITE)
        comet_write_u64(w->out + w->at, bits);
    if (w->mode == WALK_CHECK && (w->failed || w->bytes - w->at < 8)) {
        w->failed = 1;
        return 0;
    }
    if (w->mode == WALK_CHECK || w->mode == WALK_READ)
        bits = comet_read_u64(w->in + w->at);
    w->at += 8;
    return bits;
}

static void walk_integer(walker *w, int64_t *value, int64_t least, int64_t most) {
    int64_t bits = (int64_t)next_bits(w, (uint64_t)*value);
    w->failed |= w->mode == WALK_CHECK && (bits < least || bits > most);
    if (w->mode == WALK_READ)
        *value = bits;
}

static void walk_int32(walker *w, int32_t *value, int64_t least, int64_t most) {
    int64_t wide = *value;
    walk_integer(w, &wide, least, most);
    *value = (int32_t)wide;
}

/* Any finite number. */
static void walk_number(walker *w, double *value) {
    uint64_t bits;
    double number;
    memcpy(&bits, value, sizeof bits);
    bits = next_bits(w, bits);
    memcpy(&number, &bits, sizeof number);
    w->failed |= w->mode == WALK_CHECK && !isfinite(number);
    if (w->mode == WALK_READ)
        *value = number;
}

static void walk_amount(walker *w, double *value) {
    size_t at = w->at;
    walk_number(w, value);
    if (w->mode == WALK_CHECK && !w->failed) {
        double number;
        memcpy(&number, w->in + at, sizeof number);
        w->failed = number < 0.0;
    }
}

static void walk_bound(walker *w, comet_control_bound_value *bound) {
    int32_t kind = (int32_t)bound->kind;
    walk_int32(w, &kind, COMET_BOUND_ABSOLUTE, COMET_BOUND_RELATIVE);
    bound->kind = (comet_bound_kind)kind;
    walk_amount(w, &bound->value);
}

static void walk_tensor(walker *w, comet_control_tensor_view *tensor, control_tensor *own) {
    walk_integer(w, &tensor->observed, 0, MOST_COUNT);
    walk_amount(w, &tensor->rms);
    walk_bound(w, &tensor->bound);
    walk_bound(w, &own->target);
    walk_amount(w, &own->rms);
    walk_int32(w, &own->limit, 0, COMET_LIMIT_PLUGIN);
    walk_int32(w, &own->use, -1, (int64_t)tensor->use_count - 1);
    for (int i = 0; i < COMET_CONTROL_CURVE_POINTS; i++) {
        walk_number(w, &tensor->curve.position[i]);
        walk_amount(w, &tensor->curve.bits[i]);
    }
}

static void walk_use(walker *w, comet_control_use_view *use) {
    comet_use_stats *stats = &use->stats;
    walk_amount(w, &stats->derivative_squares);
    walk_amount(w, &stats->gradient_squares);
    walk_amount(w, &stats->gradient_mean);
    walk_amount(w, &stats->positions);
    walk_amount(w, &stats->error_gain);
    walk_amount(w, &stats->input_squares);
    walk_amount(w, &stats->momentum);
    walk_amount(w, &stats->acgc);
    walk_amount(w, &stats->correction);
    if (w->version > 2) {
        walk_amount(w, &stats->factor);
        walk_amount(w, &stats->samples);
        walk_amount(w, &stats->buffer);
        walk_integer(w, &use->measured, 0, MOST_COUNT);
    } else if (w->mode == WALK_READ) {
        stats->factor = stats->samples = stats->buffer = 0.0;
        use->measured = 0;
    }
    if (w->version > 3) {
        walk_amount(w, &stats->joint);
        walk_integer(w, &use->jointed, 0, MOST_COUNT);
    } else if (w->mode == WALK_READ) {
        stats->joint = 0.0;
        use->jointed = 0;
    }
}

static void walk_safety(walker *w, control_safety *safety) {
    walk_amount(w, &safety->tightness);
    walk_number(w, &safety->loss_mean);
    walk_amount(w, &safety->loss_variance);
    walk_integer(w, &safety->losses, 0, MOST_COUNT);
    walk_integer(w, &safety->trouble_at, -1, INT64_MAX);
    walk_integer(w, &safety->eased_at, -1, INT64_MAX);
    walk_integer(w, &safety->skips, 0, MOST_COUNT);
}

static void walk(walker *w, comet_control *control) {
    walk_integer(w, &control->iteration, -1, INT64_MAX);
    walk_integer(w, &control->decided_at, -1, INT64_MAX);
    walk_integer(w, &control->decisions, 0, MOST_COUNT);
    walk_integer(w, &control->loosening, 0, 1);
    walk_integer(w, &control->asked, 0, 1);
    walk_safety(w, &control->safety);
    for (int32_t i = 0; i < control->count; i++)
        walk_tensor(w, &control->tensors[i], &control->own[i]);
    for (int32_t i = 0; i < control->use_count; i++)
        walk_use(w, &control->uses[i]);
}

/* Only WALK_READ writes to the control. */
static void walk_const(walker *w, const comet_control *control) {
    walk(w, (comet_control *)control);
}

static uint32_t identity(const comet_control *control) {
    uLong crc = crc32_z(0, (const Bytef *)control->methods->name, strlen(control->methods->name) + 1);
    for (int32_t i = 0; i < control->count; i++) {
        const comet_control_tensor_view *t = &control->tensors[i];
        crc = crc32_z(crc, (const Bytef *)t->name, strlen(t->name) + 1);
        crc = crc32_z(crc, (const Bytef *)&t->count, sizeof t->count);
        for (int32_t u = 0; u < t->use_count; u++) {
            int32_t use[2] = {(int32_t)t->uses[u].kind, t->uses[u].gradient};
            crc = crc32_z(crc, (const Bytef *)use, sizeof use);
        }
    }
    return (uint32_t)crc;
}

static uint32_t checksum(const unsigned char *state, size_t bytes) {
    static const unsigned char zero[4];
    uLong crc = crc32_z(0, state, AT_CHECKSUM);
    crc = crc32_z(crc, zero, sizeof zero);
    return (uint32_t)crc32_z(crc, state + AT_CHECKSUM + 4, bytes - AT_CHECKSUM - 4);
}

static size_t methods_bytes(const comet_control *control) {
    return control->methods->state_bytes ? control->methods->state_bytes(control->instance) : 0;
}

size_t comet_control_state_bytes(const comet_control *control) {
    walker w = {.mode = WALK_COUNT, .at = STATE_HEADER, .version = STATE_VERSION};
    walk_const(&w, control);
    return w.at + 8 + methods_bytes(control);
}

comet_status comet_control_save(const comet_control *control, void *state, size_t bytes) {
    comet_begin();
    COMET_REQUIRE_POINTER(control);
    COMET_REQUIRE_POINTER(state);
    size_t needed = comet_control_state_bytes(control), own = methods_bytes(control);
    if (bytes < needed)
        return comet_fail(COMET_ERROR_CAPACITY, "bytes is %zu: it must be at least %zu", bytes, needed);
    unsigned char *out = state;
    walker w = {.mode = WALK_WRITE, .out = out, .at = STATE_HEADER, .version = STATE_VERSION};
    walk_const(&w, control);
    (void)next_bits(&w, own);
    if (own)
        control->methods->save(control->instance, out + w.at);
    comet_write_u32(out, STATE_MAGIC);
    comet_write_u32(out + 4, STATE_VERSION);
    comet_write_u64(out + 8, needed);
    comet_write_u32(out + 20, identity(control));
    comet_write_u32(out + AT_CHECKSUM, checksum(out, needed));
    return COMET_OK;
}

static comet_status check_header(const comet_control *control, const unsigned char *in, size_t bytes) {
    if (bytes < STATE_HEADER || comet_read_u32(in) != STATE_MAGIC)
        return COMET_ERROR_CORRUPT;
    const uint32_t version = comet_read_u32(in + 4);
    if (version < OLDEST_VERSION || version > STATE_VERSION)
        return COMET_ERROR_VERSION;
    if (comet_read_u64(in + 8) != bytes)
        return COMET_ERROR_CORRUPT;
    if (comet_read_u32(in + AT_CHECKSUM) != checksum(in, bytes))
        return COMET_ERROR_CHECKSUM;
    if (comet_read_u32(in + 20) != identity(control))
        return comet_fail(COMET_ERROR_MISMATCH, "state is of other methods or other tensors");
    return COMET_OK;
}

static comet_status load_own(comet_control *control, const unsigned char *in, size_t bytes) {
    if (!control->methods->load)
        return bytes ? COMET_ERROR_CORRUPT : COMET_OK;
    return control->methods->load(control->instance, in, bytes);
}

comet_status comet_control_load(comet_control *control, const void *state, size_t bytes) {
    comet_begin();
    COMET_REQUIRE_POINTER(control);
    COMET_REQUIRE_POINTER(state);
    const unsigned char *in = state;
    COMET_TRY(check_header(control, in, bytes));
    const uint32_t version = comet_read_u32(in + 4);
    walker w = {.mode = WALK_CHECK, .in = in, .at = STATE_HEADER, .bytes = bytes, .version = version};
    walk_const(&w, control);
    uint64_t own = next_bits(&w, 0);
    if (w.failed || own != bytes - w.at)
        return COMET_ERROR_CORRUPT;
    COMET_TRY(load_own(control, in + w.at, (size_t)own));
    w = (walker){.mode = WALK_READ, .in = in, .at = STATE_HEADER, .bytes = bytes, .version = version};
    walk(&w, control);
    return COMET_OK;
}
