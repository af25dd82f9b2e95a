/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of eb and zvc through the decoder that was written from docs/format.md alone: the values of the library and of the
 * text are the same. (test_eb_properties and test_eb_grid send each of their streams through it too.)
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/effort.h"
#include "support/samples.h"
#include "support/spec_decoder.h"
#include "support/trip_run.h"

static void test_samples(void **state) {
    (void)state;
    static sample_data d;
    static unsigned char stream[SAMPLE_MOST_BYTES];
    static uint32_t ours[SAMPLE_MOST_VALUES], theirs[SAMPLE_MOST_VALUES];
    for (int i = 0; i < sample_count(); i++) {
        failure f;
        if (samples[i].codec != COMET_CODEC_EB && samples[i].codec != COMET_CODEC_ZVC)
            continue;
        sample_make(&samples[i], &d);
        size_t bytes = sample_compress(&d, NULL, stream);
        comet_tensor out = sample_output(&d, theirs);
        assert_true(bytes > 0);
        assert_ok(comet_codec_decompress(stream, bytes, sample_grid(&d), NULL, &out));
        assert_check(spec_decode(stream, bytes, sample_grid(&d), ours, sample_output_bytes(&d), &f), f);
        if (memcmp(ours, theirs, sample_output_bytes(&d)) != 0)
            fail_msg("%s decodes differently", samples[i].name);
    }
}

/* Moves the groups of tiles behind the table into another order, with gaps: the text allows it. */
static size_t scatter_groups(rng *r, const unsigned char *stream, size_t bytes, int64_t tiles, unsigned char *moved) {
    size_t groups = (size_t)(tiles + 7) / 8, table = 128 + 24 * groups, end = table;
    memcpy(moved, stream, table);
    memset(moved + table, 0xEE, 3 * bytes);
    for (size_t done = 0, g = rng_below(r, groups); done < groups; done++, g = (g + 1) % groups) {
        uint64_t from, to, size = 0;
        end += rng_below(r, 50);
        for (int t = 0; t < 8; t++) {
            uint16_t entry;
            memcpy(&entry, stream + 128 + 24 * g + 8 + 2 * (size_t)t, 2);
            size += entry & 0x1fffu;
        }
        memcpy(&from, stream + 128 + 24 * g, 8);
        to = end - table;
        memcpy(moved + 128 + 24 * g, &to, 8);
        memcpy(moved + end, stream + table + from, size);
        end += size;
    }
    uint64_t whole = end;
    memcpy(moved + 16, &whole, 8);
    return end;
}

static void test_groups_in_any_order(void **state) {
    (void)state;
    rng r = rng_seed(1);
    int rounds = effort(60);
    for (int i = 0; i < rounds; i++) {
        failure f;
        trip t;
        trip_stream s, moved;
        void *before = NULL, *after = NULL;
        trip_spec spec = {.dtype = (comet_dtype)rng_below(&r, 4),
                          .shape = {(comet_layout)rng_below(&r, 3), 4, {2, 13, 40, 37}},
                          .values = VALUES_MIXED,
                          .mode = (trip_mode)rng_below(&r, TRIP_MODES),
                          .scale = 1.0,
                          .bound = 0.1};
        comet_codec_exec exec = trip_exec(COMET_ISA_AUTO, NULL);
        trip_new(&t, &r, &spec);
        size_t raw = (size_t)t.count * comet_dtype_size(trip_output_dtype(&t));
        assert_check(trip_compress(&t, &exec, &s, &f), f);
        moved = s;
        moved.bytes = malloc(4 * s.result.bytes + 8192);
        void *spec_values = malloc(raw);
        assert_true(moved.bytes && spec_values);
        moved.result.bytes = scatter_groups(&r, s.bytes, s.result.bytes, s.result.tiles, moved.bytes);
        assert_check(trip_decompress(&t, &s, &exec, &r, STRIDES_CONTIGUOUS, &before, &f), f);
        assert_check(trip_decompress(&t, &moved, &exec, &r, STRIDES_CONTIGUOUS, &after, &f), f);
        assert_memory_equal(before, after, raw);
        assert_check(spec_decode(moved.bytes, moved.result.bytes, trip_grid(&t), spec_values, raw, &f), f);
        assert_memory_equal(spec_values, after, raw);
        free(before);
        free(after);
        free(spec_values);
        trip_stream_free(&s);
        trip_stream_free(&moved);
        trip_free(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_groups_in_any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
