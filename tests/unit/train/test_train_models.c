/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models: names, shapes and order of parameters are torchvision's (a CRC of its state_dict's list; tests/train compares
 * the list itself where torchvision is installed), first values follow its rules and depend on the seed alone.
 */
#include "support/assert_ok.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "train/backend/cpu/space.h"
#include "train/models/model.h"

static comet_message message;

static comet_graph *build(const char *name, int classes, int size, int channels) {
    comet_graph *g = NULL;
    assert_ok(comet_graph_new(NULL, &g));
    message.text[0] = '\0';
    if (comet_model_build(g, name, classes, size, size, channels, &message) != COMET_OK)
        fail_msg("%s", message.text);
    return g;
}

static int is_trained(const comet_parameter *p) {
    return p->kind < COMET_RUNNING_MEAN;
}

static int64_t trained(comet_graph *g) {
    int64_t count = 0;
    for (int i = 0; i < comet_graph_parameters(g); i++)
        count += is_trained(comet_graph_parameter(g, i)) ? comet_graph_parameter(g, i)->count : 0;
    return count;
}

/* ---- against torchvision ---- */

static void add_line(uLong *crc, const char *line) {
    *crc = crc32(*crc, (const Bytef *)line, (uInt)strlen(line));
}

/* "NAME 64x3x7x7\n" for each entry of a state_dict, batch counts (which have no shape) included. */
static uLong digest(comet_graph *g) {
    uLong crc = crc32(0, NULL, 0);
    char line[160];
    for (int i = 0; i < comet_graph_parameters(g); i++) {
        const comet_parameter *p = comet_graph_parameter(g, i);
        int used = snprintf(line, sizeof line, "%s", p->name);
        for (int d = 0; d < p->ndim; d++)
            used += snprintf(line + used, sizeof line - (size_t)used, "%c%d", d ? 'x' : ' ', (int)p->shape[d]);
        snprintf(line + used, sizeof line - (size_t)used, "\n");
        add_line(&crc, line);
        if (p->kind != COMET_RUNNING_VAR)
            continue;
        int layer = (int)(strlen(p->name) - strlen(".running_var"));
        snprintf(line, sizeof line, "%.*s.num_batches_tracked \n", layer, p->name);
        add_line(&crc, line);
    }
    return crc;
}

static const struct {
    const char *name;
    int classes;
    int64_t parameters;
    uLong crc;
} reference[] = {
    {"alexnet", 1000, 61100840, 0x86397602},        {"alexnet", 10, 57044810, 0x1070c39c},
    {"vgg16", 1000, 138357544, 0x7f2f1fed},         {"vgg16_bn", 1000, 138365992, 0xee0db3e8},
    {"resnet18", 1000, 11689512, 0x370a3d71},       {"resnet34", 1000, 21797672, 0xbc17209d},
    {"resnet50", 1000, 25557032, 0x91152665},       {"resnet50", 10, 23528522, 0x1e58871d},
    {"efficientnet_b0", 1000, 5288548, 0xa5a413a8}, {"efficientnet_b0", 10, 4020358, 0xa25525bf},
};

static void test_as_torchvision(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof reference / sizeof *reference; i++) {
        comet_graph *g = build(reference[i].name, reference[i].classes, 224, 3);
        if (trained(g) != reference[i].parameters)
            fail_msg("%s has %lld parameters", reference[i].name, (long long)trained(g));
        if (digest(g) != reference[i].crc)
            fail_msg("%s: names or shapes differ from torchvision's", reference[i].name);
        comet_graph_free(g);
    }
}

/* ---- the others ---- */

/* He et al. 2015 count 0.27 M for 20 layers; the numbers are those of the layers written out. */
static void test_cifar_networks(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t parameters;
    } small[] = {{"resnet8", 75290}, {"resnet20", 269722}, {"resnet18-cifar", 11173962}};
    for (size_t i = 0; i < sizeof small / sizeof *small; i++) {
        comet_graph *g = build(small[i].name, 10, 32, 3);
        if (trained(g) != small[i].parameters)
            fail_msg("%s has %lld parameters", small[i].name, (long long)trained(g));
        comet_graph_free(g);
    }
}

static void test_sizes(void **state) {
    (void)state;
    for (int i = 0; i < comet_model_count(); i++) { /* any image that is large enough, grey too */
        const comet_model *model = comet_model_at(i);
        comet_graph *g = build(model->name, 7, model->image == 224 ? 96 : 28, 1);
        assert_int_equal(comet_graph_parameter(g, 0)->shape[1], 1);
        assert_int_equal(comet_graph_parameter(g, comet_graph_parameters(g) - 1)->count, 7);
        comet_graph_free(g);
    }
}

static void refuse(const char *name, int classes, int height, int channels, const char *part) {
    comet_graph *g = NULL;
    assert_ok(comet_graph_new(NULL, &g));
    message.text[0] = '\0';
    assert_status(comet_model_build(g, name, classes, height, height, channels, &message), COMET_ERROR_ARGUMENT);
    if (!strstr(message.text, part))
        fail_msg("no '%s' in: %s", part, message.text);
    assert_null(strchr(message.text, '\n'));
    comet_graph_free(g);
}

static void test_refused(void **state) {
    (void)state;
    refuse("resnet19", 10, 224, 3, "there is no model 'resnet19' (did you mean resnet18?); there are: alexnet, vgg16,");
    refuse("resnet19", 10, 224, 3, "resnet20, resnet18-cifar");
    refuse("", 10, 224, 3, "there is no model ''");
    refuse("resnet18", 0, 224, 3, "resnet18 needs at least 1 class, not 0");
    refuse("resnet18", 10, 0, 3, "resnet18 for images of 0x0x3");
    refuse("alexnet", 10, 32, 3, "alexnet for images of 32x32x3 cannot be built");
    refuse("vgg16", 10, 16, 3, "vgg16 for images of 16x16x3 cannot be built");
}

static void test_names(void **state) {
    (void)state;
    const comet_model *model, *same;
    assert_ok(comet_model_find("efficientnet-b0", &model, &message));
    assert_ok(comet_model_find("efficientnet_b0", &same, &message));
    assert_ptr_equal(model, same);
    assert_ok(comet_model_find("resnet18_cifar", &model, &message));
    assert_string_equal(model->name, "resnet18-cifar");
    assert_null(comet_model_at(-1));
    assert_null(comet_model_at(comet_model_count()));
}

/* ---- first values ---- */

static comet_graph *initialised(const char *name, uint64_t seed, int size, unsigned workers) {
    const comet_model *model;
    comet_threads *threads = NULL;
    comet_graph *g = build(name, 10, size, 3);
    assert_ok(comet_graph_allocate(g, comet_host_space_plain(), 0));
    assert_ok(comet_model_find(name, &model, &message));
    assert_ok(comet_threads_new(workers, NULL, &threads));
    assert_ok(
        comet_initialise(model->initialisation, seed, comet_graph_parameter(g, 0), comet_graph_parameters(g), threads));
    comet_threads_free(threads);
    return g;
}

static int same_values(comet_graph *a, comet_graph *b) {
    for (int i = 0; i < comet_graph_parameters(a); i++) {
        const comet_parameter *p = comet_graph_parameter(a, i), *q = comet_graph_parameter(b, i);
        if (memcmp(p->value, q->value, (size_t)p->count * sizeof(float)) != 0)
            return 0;
    }
    return 1;
}

static void test_seed_decides(void **state) {
    (void)state;
    comet_graph *one = initialised("resnet20", 1, 32, 1), *three = initialised("resnet20", 1, 32, 3);
    comet_graph *other = initialised("resnet20", 2, 32, 1);
    assert_true(same_values(one, three));
    assert_false(same_values(one, other));
    uLong crc = crc32(0, NULL, 0);
    const comet_parameter *p = comet_graph_parameter(one, 0);
    crc = crc32(crc, (const Bytef *)p->value, (uInt)(p->count * 4));
    if (crc != 0x2ce336dcul) /* old seeds must keep their meaning */
        fail_msg("the first convolution's values have CRC 0x%08lx", crc);
    comet_graph_free(one);
    comet_graph_free(three);
    comet_graph_free(other);
}

/* Mean and deviation of all values of a parameter. */
static void moments(const comet_parameter *p, double *mean, double *deviation, double *most) {
    double sum = 0, squares = 0;
    *most = 0;
    for (int64_t k = 0; k < p->count; k++) {
        double v = (double)p->value[k];
        sum += v;
        squares += v * v;
        *most = fabs(v) > *most ? fabs(v) : *most;
    }
    *mean = sum / (double)p->count;
    *deviation = sqrt(squares / (double)p->count);
}

typedef enum shape_of_draw { ALL, UNIFORM, NORMAL } shape_of_draw;

static void check_draw(comet_graph *g, const char *name, shape_of_draw shape, double size) {
    const comet_parameter *p = comet_graph_parameter_named(g, name);
    double mean, deviation, most;
    assert_non_null(p);
    moments(p, &mean, &deviation, &most);
    double slack = 5.0 / sqrt((double)p->count); /* of deviations: five sigma */
    if (shape == ALL) {
        for (int64_t k = 0; k < p->count; k++)
            assert_true((double)p->value[k] == size);
        return;
    }
    double expected = shape == UNIFORM ? size / sqrt(3.0) : size;
    if (fabs(mean) > slack * expected || fabs(deviation / expected - 1.0) > slack)
        fail_msg("%s: mean %g, deviation %g, expected %g", name, mean, deviation, expected);
    if (shape == UNIFORM ? most > size * (1.0 + 1e-6) : most > 7.0 * size || most < 2.0 * size)
        fail_msg("%s: the largest is %g", name, most);
}

static void test_rules(void **state) {
    (void)state;
    comet_graph *g = initialised("resnet18", 3, 64, 2);
    check_draw(g, "conv1.weight", NORMAL, sqrt(2.0 / (64 * 49)));
    check_draw(g, "layer4.1.conv2.weight", NORMAL, sqrt(2.0 / (512 * 9)));
    check_draw(g, "layer2.0.downsample.0.weight", NORMAL, sqrt(2.0 / 128));
    check_draw(g, "fc.weight", UNIFORM, 1.0 / sqrt(512.0));
    check_draw(g, "fc.bias", UNIFORM, 1.0 / sqrt(512.0));
    check_draw(g, "layer1.0.bn2.weight", ALL, 1.0);
    check_draw(g, "layer1.0.bn2.bias", ALL, 0.0);
    check_draw(g, "layer1.0.bn2.running_mean", ALL, 0.0);
    check_draw(g, "layer1.0.bn2.running_var", ALL, 1.0);
    comet_graph_free(g);
    g = initialised("efficientnet_b0", 3, 64, 2);
    check_draw(g, "features.2.0.block.1.0.weight", NORMAL, sqrt(2.0 / (96 * 9))); /* depthwise: out x 3 x 3 */
    check_draw(g, "features.2.0.block.2.fc1.bias", ALL, 0.0);
    check_draw(g, "classifier.1.weight", UNIFORM, 1.0 / sqrt(10.0));
    check_draw(g, "classifier.1.bias", ALL, 0.0);
    comet_graph_free(g);
}

static void test_rules_of_large_networks(void **state) {
    (void)state;
    comet_graph *g = initialised("alexnet", 3, 64, 2);
    check_draw(g, "features.0.weight", UNIFORM, 1.0 / sqrt(3 * 121.0));
    check_draw(g, "features.0.bias", UNIFORM, 1.0 / sqrt(3 * 121.0));
    check_draw(g, "classifier.6.weight", UNIFORM, 1.0 / sqrt(4096.0));
    check_draw(g, "classifier.4.bias", UNIFORM, 1.0 / sqrt(4096.0));
    comet_graph_free(g);
    g = initialised("vgg16_bn", 3, 32, 2);
    check_draw(g, "features.0.weight", NORMAL, sqrt(2.0 / (64 * 9)));
    check_draw(g, "features.0.bias", ALL, 0.0);
    check_draw(g, "features.1.weight", ALL, 1.0);
    check_draw(g, "classifier.6.weight", NORMAL, 0.01);
    check_draw(g, "classifier.3.bias", ALL, 0.0);
    comet_graph_free(g);
}

/* 1/2 erfc(-z / sqrt 2) is the probability again. */
static void test_quantiles(void **state) {
    (void)state;
    assert_true(comet_normal_quantile(0.5) == 0.0);
    assert_true(fabs(comet_normal_quantile(0.975) - 1.959963984540054) < 1e-14);
    for (double p = 0x1p-33; p < 0.5; p *= 1.37) {
        double z = comet_normal_quantile(p);
        assert_true(z < 0.0 && fabs(0.5 * erfc(-z / sqrt(2.0)) / p - 1.0) < 2e-13);
        assert_true(fabs(comet_normal_quantile(1.0 - p) + z) < 1e-5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_torchvision), cmocka_unit_test(test_cifar_networks),
        cmocka_unit_test(test_sizes),          cmocka_unit_test(test_refused),
        cmocka_unit_test(test_names),          cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_rules),          cmocka_unit_test(test_rules_of_large_networks),
        cmocka_unit_test(test_quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
