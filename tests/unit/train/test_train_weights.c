/* SPDX-License-Identifier: Apache-2.0 */
/* Weights to files and back: names and batch counts, other types, other class counts, and files that do not fit. */
#include "test_train_folder.h"

#include <math.h>

#include "base/half.h"
#include "data/files/safetensors.h"
#include "support/counting_allocator.h"
#include "train/checkpoint/weights.h"

static comet_message message;

static comet_status write_to(const char *path, comet_graph *g, int64_t batches) {
    return comet_weights_write(path, comet_graph_parameter(g, 0), comet_graph_parameters(g), batches, NULL, &message);
}

static comet_status read_to(const char *path, comet_graph *g, comet_weights_fit fit, comet_weights_report *report) {
    return comet_weights_read(path, comet_graph_parameter(g, 0), comet_graph_parameters(g), fit, report, NULL,
                              &message);
}

static void test_round_trip(void **state) {
    (void)state;
    const char *path = in_folder("a.safetensors");
    comet_graph *a = network("resnet8", 10, 1), *b = network("resnet8", 10, 2);
    comet_weights_report report;
    int all = comet_graph_parameters(a);
    assert_ok(write_to(path, a, 77));
    assert_false(same_values(a, b, 0, all));
    assert_ok(read_to(path, b, COMET_WEIGHTS_EXACT, &report));
    assert_true(same_values(a, b, 0, all));
    assert_int_equal(report.read, all);
    assert_int_equal(report.converted, 0);
    assert_int_equal(report.classifier_kept, 0);
    assert_int_equal(report.file_classes, 10);
    assert_int_equal(report.batches, 77);
    assert_string_equal(report.note.text, "");
    comet_graph_free(a);
    comet_graph_free(b);
}

static void test_file_is_a_state_dict(void **state) {
    (void)state;
    const char *path = in_folder("dict.safetensors");
    comet_safetensors *file;
    comet_graph *g = network("resnet8", 10, 1);
    int64_t batches = 0;
    assert_ok(write_to(path, g, 5));
    assert_ok(comet_safetensors_open(path, NULL, &file, &message));
    const comet_safetensors_entry *count = comet_safetensors_find(file, "layer2.0.bn1.num_batches_tracked");
    assert_non_null(count);
    assert_int_equal(count->type, COMET_SAFETENSORS_I64);
    assert_int_equal(count->ndim, 0);
    assert_ok(comet_safetensors_read(file, count, 0, sizeof batches, &batches, &message));
    assert_int_equal(batches, 5);
    assert_string_equal(comet_safetensors_metadata(file, "format"), "pt");
    assert_int_equal(comet_safetensors_count(file), comet_graph_parameters(g) + 7); /* batch norms */
    comet_safetensors_close(file);
    comet_graph_free(g);
}

/* ---- other types ---- */

static size_t half_of(comet_safetensors_type type, float value, uint8_t *bytes) {
    double wide = (double)value;
    if (type == COMET_SAFETENSORS_F64)
        memcpy(bytes, &wide, sizeof wide);
    else if (type == COMET_SAFETENSORS_F32)
        memcpy(bytes, &value, sizeof value);
    else
        comet_write_u16(bytes, type == COMET_SAFETENSORS_F16 ? comet_f16_of_f32(value) : comet_bf16_of_f32(value));
    return comet_safetensors_type_bytes(type);
}

static comet_status produce(void *context, const comet_safetensors_entry *entry, uint64_t first, uint64_t bytes,
                            void *data) {
    const comet_parameter *p = context;
    const uint64_t size = comet_safetensors_type_bytes(entry->type);
    uint8_t *to = data;
    memset(data, 0, (size_t)bytes);
    if (entry->type != COMET_SAFETENSORS_I32)
        for (uint64_t k = first / size; k < (first + bytes) / size; k++)
            to += half_of(entry->type, p->value[k], to);
    return COMET_OK;
}

enum { MOST = 64 };

/* The sources of a file without batch counts, as old ones are, to be changed before it is written. */
static int sources_of(comet_graph *g, comet_safetensors_type type, comet_safetensors_source sources[MOST]) {
    int count = comet_graph_parameters(g);
    assert_true(count < MOST);
    for (int i = 0; i < count; i++) {
        comet_parameter *p = comet_graph_parameter(g, i);
        sources[i] = (comet_safetensors_source){
            .entry = {p->name, type, p->ndim, {p->shape[0], p->shape[1], p->shape[2], p->shape[3]}, 0, 0},
            .produce = produce,
            .context = p};
    }
    return count;
}

static const char *write_sources(const comet_safetensors_source *sources, int count) {
    const char *path = in_folder("odd.safetensors");
    assert_ok(comet_safetensors_write(path, sources, (size_t)count, NULL, 0, NULL, &message));
    return path;
}

static void test_other_types(void **state) {
    (void)state;
    static const comet_safetensors_type types[] = {COMET_SAFETENSORS_F16, COMET_SAFETENSORS_BF16,
                                                   COMET_SAFETENSORS_F64};
    comet_safetensors_source sources[MOST];
    comet_graph *a = network("resnet8", 10, 1), *b = network("resnet8", 10, 2);
    comet_weights_report report;
    for (int t = 0; t < 3; t++) {
        int count = sources_of(a, types[t], sources);
        assert_ok(read_to(write_sources(sources, count), b, COMET_WEIGHTS_EXACT, &report));
        assert_int_equal(report.converted, count);
        assert_int_equal(report.batches, 0);
        for (int i = 0; i < count; i++) {
            const comet_parameter *p = comet_graph_parameter(a, i), *q = comet_graph_parameter(b, i);
            for (int64_t k = 0; k < p->count; k++) {
                uint16_t f16 = comet_f16_of_f32(p->value[k]), bf16 = comet_bf16_of_f32(p->value[k]);
                assert_true(q->value[k] == (t == 0   ? comet_f16_to_f32(f16)
                                            : t == 1 ? comet_bf16_to_f32(bf16)
                                                     : p->value[k]));
            }
        }
    }
    comet_graph_free(a);
    comet_graph_free(b);
}

/* ---- other class counts ---- */

static void test_finetune(void **state) {
    (void)state;
    const char *path = in_folder("ten.safetensors");
    comet_graph *ten = network("resnet8", 10, 1), *seven = network("resnet8", 7, 2), *kept = network("resnet8", 7, 2);
    comet_weights_report report;
    int all = comet_graph_parameters(ten);
    assert_ok(write_to(path, ten, 1));
    assert_refused(read_to(path, seven, COMET_WEIGHTS_EXACT, &report), COMET_ERROR_MISMATCH, message,
                   "'fc.weight' in '");
    assert_non_null(strstr(message.text, "is 10x64, the network's is 7x64"));
    assert_non_null(strstr(message.text, "or has other classes"));
    assert_true(same_values(seven, kept, 0, all)); /* nothing was changed */
    assert_ok(read_to(path, seven, COMET_WEIGHTS_FINETUNE, &report));
    assert_true(same_values(seven, ten, 0, all - 2));
    assert_true(same_values(seven, kept, all - 2, all));
    assert_int_equal(report.classifier_kept, 1);
    assert_int_equal(report.read, all - 2);
    assert_int_equal(report.file_classes, 10);
    assert_string_equal(report.note.text, "'fc.weight' (7 classes, of which the file has 10) keeps its initial values");
    comet_graph_free(seven);
    seven = network("resnet8", 10, 3); /* as many: all is read */
    assert_ok(read_to(path, seven, COMET_WEIGHTS_FINETUNE, &report));
    assert_true(same_values(seven, ten, 0, all));
    assert_int_equal(report.classifier_kept, 0);
    comet_graph_free(ten);
    comet_graph_free(seven);
    comet_graph_free(kept);
}

static void test_without_classifier(void **state) {
    (void)state;
    comet_safetensors_source sources[MOST];
    comet_graph *a = network("resnet8", 10, 1), *b = network("resnet8", 10, 2);
    comet_weights_report report;
    int count = sources_of(a, COMET_SAFETENSORS_F32, sources);
    const char *path = write_sources(sources, count - 2);
    assert_refused(read_to(path, b, COMET_WEIGHTS_EXACT, &report), COMET_ERROR_MISMATCH, message, "has no 'fc.weight'");
    assert_ok(read_to(path, b, COMET_WEIGHTS_FINETUNE, &report));
    assert_int_equal(report.classifier_kept, 1);
    assert_int_equal(report.file_classes, 0);
    assert_non_null(strstr(report.note.text, "which the file does not have"));
    comet_graph_free(a);
    comet_graph_free(b);
}

/* ---- what does not fit ---- */

static void test_refused(void **state) {
    (void)state;
    comet_safetensors_source sources[MOST], changed[MOST];
    comet_graph *a = network("resnet8", 10, 1), *b = network("resnet8", 10, 2), *before = network("resnet8", 10, 2);
    int count = sources_of(a, COMET_SAFETENSORS_F32, sources), all = count;
    assert_refused(read_to(in_folder("none"), b, COMET_WEIGHTS_EXACT, NULL), COMET_ERROR_IO, message, "cannot open");
    memcpy(changed, sources, sizeof sources);
    changed[5].entry.name = "layer9.weight";
    assert_refused(read_to(write_sources(changed, count), b, COMET_WEIGHTS_FINETUNE, NULL), COMET_ERROR_MISMATCH,
                   message, "has no 'layer1.0.conv1.weight'");
    memcpy(changed, sources, sizeof sources);
    changed[count] =
        (comet_safetensors_source){.entry = {"layer4.0.conv1.weight", COMET_SAFETENSORS_F32, 1, {0}, 0, 0}};
    assert_refused(read_to(write_sources(changed, count + 1), b, COMET_WEIGHTS_EXACT, NULL), COMET_ERROR_MISMATCH,
                   message, "has 'layer4.0.conv1.weight', which the network does not");
    memcpy(changed, sources, sizeof sources);
    changed[0].entry.ndim = 3; /* 16 x 3 x 9: as many values, another shape */
    changed[0].entry.shape[2] = 9;
    assert_refused(read_to(write_sources(changed, count), b, COMET_WEIGHTS_EXACT, NULL), COMET_ERROR_MISMATCH, message,
                   "'conv1.weight'");
    assert_non_null(strstr(message.text, "is 16x3x9, the network's is 16x3x3x3"));
    memcpy(changed, sources, sizeof sources);
    changed[0].entry.type = COMET_SAFETENSORS_I32;
    assert_refused(read_to(write_sources(changed, count), b, COMET_WEIGHTS_EXACT, NULL), COMET_ERROR_UNSUPPORTED,
                   message, "is of type I32");
    assert_true(same_values(b, before, 0, all));
    comet_graph_free(a);
    comet_graph_free(b);
    comet_graph_free(before);
}

/* A tensor with a value that is not finite, or is not as fp32, is named; and none is written. */
static void test_not_finite(void **state) {
    (void)state;
    static const float values[] = {NAN, INFINITY, -INFINITY};
    static const comet_safetensors_type types[] = {COMET_SAFETENSORS_F32, COMET_SAFETENSORS_F16, COMET_SAFETENSORS_BF16,
                                                   COMET_SAFETENSORS_F64};
    comet_safetensors_source sources[MOST];
    comet_graph *a = network("resnet8", 10, 1), *b = network("resnet8", 10, 2);
    const char *path = in_folder("finite.safetensors");
    const char *const names[] = {"conv1.weight", "layer2.0.bn1.running_var", "fc.bias"};
    assert_ok(write_to(path, a, 1));
    for (int i = 0; i < 3; i++)
        for (int t = 0; t < 4; t++) {
            comet_parameter *p = comet_graph_parameter_named(a, names[i]);
            const float before = p->value[p->count - 1];
            char line[64];
            snprintf(line, sizeof line, "'%s' ", names[i]);
            p->value[p->count - 1] = values[i];
            assert_refused(
                read_to(write_sources(sources, sources_of(a, types[t], sources)), b, COMET_WEIGHTS_FINETUNE, NULL),
                COMET_ERROR_CORRUPT, message, line);
            assert_non_null(strstr(message.text, "not finite"));
            assert_refused(write_to(path, a, 2), COMET_ERROR_DIVERGED, message, line);
            p->value[p->count - 1] = before;
        }
    assert_ok(read_to(path, b, COMET_WEIGHTS_EXACT, NULL)); /* what was there still is */
    assert_true(same_values(a, b, 0, comet_graph_parameters(a)));
    comet_parameter *p = comet_graph_parameter_named(a, "fc.bias");
    p->value[0] = 1e6f; /* infinite as fp16 */
    assert_refused(
        read_to(write_sources(sources, sources_of(a, COMET_SAFETENSORS_F16, sources)), b, COMET_WEIGHTS_EXACT, NULL),
        COMET_ERROR_CORRUPT, message, "'fc.bias'");
    comet_graph_free(a);
    comet_graph_free(b);
}

static void test_every_allocation_fails_once(void **state) {
    (void)state;
    counting_allocator a;
    const char *path = in_folder("memory.safetensors");
    comet_graph *g = network("resnet8", 10, 1);
    comet_status status = COMET_ERROR_MEMORY;
    for (long n = 1; status != COMET_OK; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        status = comet_weights_write(path, comet_graph_parameter(g, 0), comet_graph_parameters(g), 0, &a.allocator,
                                     &message);
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
        assert_int_equal(a.live_blocks, 0);
        assert_int_equal(a.wrong_sizes, 0);
    }
    status = COMET_ERROR_MEMORY;
    for (long n = 1; status != COMET_OK; n++) {
        counting_allocator_init(&a);
        a.fail_at = n;
        status = comet_weights_read(path, comet_graph_parameter(g, 0), comet_graph_parameters(g), COMET_WEIGHTS_EXACT,
                                    NULL, &a.allocator, &message);
        assert_true(status == COMET_OK || status == COMET_ERROR_MEMORY);
        assert_int_equal(a.live_blocks, 0);
    }
    comet_graph_free(g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),         cmocka_unit_test(test_file_is_a_state_dict),
        cmocka_unit_test(test_other_types),        cmocka_unit_test(test_finetune),
        cmocka_unit_test(test_without_classifier), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_not_finite),         cmocka_unit_test(test_every_allocation_fails_once),
    };
    return cmocka_run_group_tests(tests, make_temporary_folder, remove_temporary_folder);
}
