/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The streams kept in tests/golden, one for each sample: they decode to what they did when they were written, and the
 * same input still compresses to the same bytes, with every instruction set.
 * `test_golden --write` in the repository's root writes them anew; do that only together with a change of
 * docs/format.md or docs/codecs.md, or for a new sample.
 */
#include "support/assert_ok.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

#include "support/codec/isas.h"
#include "support/codec/samples.h"

static const char folder[] = "tests/golden", list_name[] = "tests/golden/checksums.txt";

static sample_data data;
static unsigned char stored[SAMPLE_MOST_BYTES], fresh[SAMPLE_MOST_BYTES];
static uint32_t values[SAMPLE_MOST_VALUES];

static void path_of(const sample *s, char path[256]) {
    snprintf(path, 256, "%s/%s.comet", folder, s->name);
}

static size_t read_stream(const sample *s) {
    char path[256];
    path_of(s, path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t bytes = fread(stored, 1, sizeof stored, file);
    fclose(file);
    return bytes;
}

static uint32_t crc_of(const void *bytes, size_t count) {
    return (uint32_t)crc32_z(0, bytes, count);
}

/* What the list says of a sample: the CRC-32 of its input and of its decoded values. */
static int read_checksums(const sample *s, uint32_t *input, uint32_t *decoded) {
    char name[128];
    unsigned a, b;
    int found = 0;
    FILE *file = fopen(list_name, "r");
    while (file && fscanf(file, "%127s %x %x", name, &a, &b) == 3)
        if (strcmp(name, s->name) == 0) {
            *input = a;
            *decoded = b;
            found = 1;
        }
    if (file)
        fclose(file);
    return found;
}

static uint32_t input_crc(void) {
    return crc_of(data.patterns, (size_t)data.count * comet_dtype_size(data.sample->dtype));
}

static comet_status decode(const unsigned char *stream, size_t bytes, comet_isa isa, uint32_t *crc) {
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    comet_tensor t = sample_output(&data, values);
    exec.isa = isa;
    memset(values, 0xEE, sizeof values);
    comet_status status = comet_codec_decompress(stream, bytes, sample_grid(&data), &exec, &t);
    *crc = crc_of(values, sample_output_bytes(&data));
    return status;
}

static void check_sample(const sample *s, comet_isa isa) {
    uint32_t input = 0, decoded = 0, crc;
    comet_codec_exec exec = COMET_CODEC_EXEC_INIT;
    exec.isa = isa;
    sample_make(s, &data);
    size_t bytes = read_stream(s);
    if (bytes == 0 || !read_checksums(s, &input, &decoded))
        fail_msg("%s is not in %s: test_golden --write, in the repository's root", s->name, folder);
    if (input_crc() != input)
        fail_msg("%s: the input is made differently", s->name);
    assert_ok(decode(stored, bytes, isa, &crc));
    if (crc != decoded)
        fail_msg("%s, %s: decodes to other values", s->name, isa_name(isa));
    size_t again = sample_compress(&data, &exec, fresh);
    if (again != bytes || memcmp(fresh, stored, bytes) != 0)
        fail_msg("%s, %s: compresses to other bytes (%zu, kept %zu)", s->name, isa_name(isa), again, bytes);
}

static void test_all(void **state) {
    (void)state;
    isa_list isas = isa_list_get();
    isa_list_print();
    for (int i = 0; i < sample_count(); i++)
        for (int k = 0; k < isas.count; k++)
            check_sample(&samples[i], isas.isa[k]);
}

static int write_sample(const sample *s, FILE *list) {
    char path[256];
    uint32_t decoded;
    sample_make(s, &data);
    size_t bytes = sample_compress(&data, NULL, fresh);
    path_of(s, path);
    FILE *file = bytes ? fopen(path, "wb") : NULL;
    if (!file)
        return 0;
    int ok = fwrite(fresh, 1, bytes, file) == bytes;
    ok = fclose(file) == 0 && ok && decode(fresh, bytes, COMET_ISA_AUTO, &decoded) == COMET_OK;
    return ok && fprintf(list, "%s %08x %08x\n", s->name, (unsigned)input_crc(), (unsigned)decoded) > 0;
}

static int write_all(void) {
    FILE *list = fopen(list_name, "w");
    if (!list)
        return 1;
    for (int i = 0; i < sample_count(); i++)
        if (!write_sample(&samples[i], list)) {
            fprintf(stderr, "%s: not written\n", samples[i].name);
            fclose(list);
            return 1;
        }
    printf("%d streams written to %s\n", sample_count(), folder);
    return fclose(list) != 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    if (argc == 2 && strcmp(argv[1], "--write") == 0)
        return write_all();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
