/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing against a plain version in floating point, transforms against their definition, bytes to numbers. */
#include "support/assert_ok.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/image/normalise.h"
#include "data/image/resize.h"
#include "data/image/transform.h"
#include "support/effort.h"
#include "support/guarded.h"
#include "support/rng.h"

enum { MOST = 97 };

static uint8_t input[MOST * MOST * 3], output[MOST * MOST * 3];

static void fill(rng *r) {
    for (size_t i = 0; i < sizeof input; i++)
        input[i] = (uint8_t)rng_next(r);
}

/* The weight of input x for output o of `out`. */
static double weight(int x, int o, int in, int out) {
    double scale = (double)in / out, width = scale < 1 ? 1 : scale;
    double distance = fabs(x + 0.5 - (o + 0.5) * scale) / width;
    return distance < 1 ? 1 - distance : 0;
}

/* One value, from all inputs. */
static double reference(const comet_image *image, comet_box box, int height, int width, int y, int x, int c) {
    double sum = 0, weights = 0;
    for (int i = 0; i < box.height; i++)
        for (int j = 0; j < box.width; j++) {
            double w = weight(i, y, box.height, height) * weight(j, x, box.width, width);
            weights += w;
            if (w > 0)
                sum += w * image->pixels[((box.top + i) * image->width + box.left + j) * image->channels + c];
        }
    return sum / weights;
}

/* The workspace ends where memory faults. */
static void resize(const comet_image *image, comet_box box, int height, int width) {
    guarded g;
    int side = image->height > image->width ? image->height : image->width;
    size_t bytes = comet_resize_workspace(side, height, width, image->channels);
    guarded_new(&g, bytes + 64);
    void *workspace = g.end - (bytes + 3) / 4 * 4;
    comet_resize(image, box, height, width, workspace, output);
    guarded_free(&g);
}

static void check_against_reference(rng *r) {
    comet_image image = {input, (int)rng_between(r, 1, MOST), (int)rng_between(r, 1, MOST), rng_below(r, 2) ? 3 : 1};
    comet_box box = {.height = (int)rng_between(r, 1, image.height), .width = (int)rng_between(r, 1, image.width)};
    box.top = (int)rng_between(r, 0, image.height - box.height);
    box.left = (int)rng_between(r, 0, image.width - box.width);
    int height = (int)rng_between(r, 1, 48), width = (int)rng_between(r, 1, 48);
    resize(&image, box, height, width);
    for (int i = 0; i < 40; i++) {
        int y = (int)rng_below(r, (uint64_t)height), x = (int)rng_below(r, (uint64_t)width);
        int c = (int)rng_below(r, (uint64_t)image.channels);
        double expected = reference(&image, box, height, width, y, x, c);
        double got = output[(y * width + x) * image.channels + c];
        if (fabs(got - expected) > 1.01) /* two roundings to bytes */
            fail_msg("%dx%d to %dx%d at %d,%d: %g, expected %g", box.width, box.height, width, height, x, y, got,
                     expected);
    }
}

static void test_against_reference(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int i = 0; i < effort(300); i++) {
        fill(&r);
        check_against_reference(&r);
    }
}

static void test_flat_stays_flat(void **state) {
    (void)state;
    rng r = rng_seed(2);
    for (int i = 0; i < 256; i++) {
        memset(input, i, sizeof input);
        comet_image image = {input, (int)rng_between(&r, 1, MOST), (int)rng_between(&r, 1, MOST), 3};
        int height = (int)rng_between(&r, 1, MOST), width = (int)rng_between(&r, 1, MOST);
        resize(&image, (comet_box){0, 0, image.height, image.width}, height, width);
        for (int k = 0; k < height * width * 3; k++)
            assert_int_equal(output[k], i);
    }
}

static void test_same_size_is_a_copy(void **state) {
    (void)state;
    rng r = rng_seed(3);
    fill(&r);
    comet_image image = {input, 40, 50, 3};
    resize(&image, (comet_box){0, 0, 40, 50}, 40, 50);
    assert_memory_equal(output, input, 40 * 50 * 3);
    resize(&image, (comet_box){7, 9, 5, 6}, 5, 6);
    for (int y = 0; y < 5; y++)
        assert_memory_equal(output + y * 18, input + ((7 + y) * 50 + 9) * 3, 18);
}

/* Values that Pillow's Image.resize(size, BILINEAR) gives. */
static void test_as_pillow(void **state) {
    (void)state;
    static const uint8_t up[4] = {0, 100, 200, 50};
    static const uint8_t up_expected[16] = {0, 25, 75, 100, 50, 60, 78, 88, 150, 129, 85, 63, 200, 163, 88, 50};
    static const uint8_t down_expected[6] = {112, 150, 143, 132, 131, 139};
    comet_image small = {up, 2, 2, 1}, large = {input, 7, 11, 1};
    resize(&small, (comet_box){0, 0, 2, 2}, 4, 4);
    assert_memory_equal(output, up_expected, sizeof up_expected);
    for (int i = 0; i < 77; i++)
        input[i] = (uint8_t)(i * i * 7 + i * 13);
    resize(&large, (comet_box){0, 0, 7, 11}, 2, 3);
    assert_memory_equal(output, down_expected, sizeof down_expected);
}

/* ---- transforms ---- */

static uint8_t result[64 * 64 * 3], workspace[1 << 20];

static void transform(const comet_image *image, comet_view view, int height, int width, int channels) {
    assert_in_range(comet_transform_workspace(MOST, height, width), 1, sizeof workspace);
    comet_transform(image, &view, height, width, channels, workspace, result);
}

static void test_moving_and_turning(void **state) {
    (void)state;
    rng r = rng_seed(4);
    fill(&r);
    comet_image image = {input, 8, 6, 3};
    comet_box all = {0, 0, 8, 6};
    for (int i = 0; i < 60; i++) {
        comet_view view = {all, (int)rng_between(&r, -3, 3), (int)rng_between(&r, -3, 3), rng_below(&r, 2)};
        transform(&image, view, 8, 6, 3);
        for (int y = 0; y < 8; y++)
            for (int x = 0; x < 6; x++) {
                int from_y = y - view.down, from_x = (view.flipped ? 5 - x : x) - view.right;
                int inside = from_y >= 0 && from_y < 8 && from_x >= 0 && from_x < 6;
                for (int c = 0; c < 3; c++)
                    assert_int_equal(result[(y * 6 + x) * 3 + c], inside ? input[(from_y * 6 + from_x) * 3 + c] : 0);
            }
    }
}

static void test_channels(void **state) {
    (void)state;
    static const uint8_t colours[] = {255, 255, 255, 0, 0, 0, 255, 0, 0, 0, 255, 0, 0, 0, 255, 10, 20, 30};
    static const uint8_t grey[] = {255, 0, 76, 150, 29, 18};
    comet_image image = {colours, 1, 6, 3};
    transform(&image, (comet_view){.box = {0, 0, 1, 6}}, 1, 6, 1);
    assert_memory_equal(result, grey, 6);
    comet_image one = {grey, 1, 6, 1};
    transform(&one, (comet_view){.box = {0, 0, 1, 6}}, 1, 6, 3);
    for (int i = 0; i < 18; i++)
        assert_int_equal(result[i], grey[i / 3]);
}

static void test_normalise(void **state) {
    (void)state;
    static float values[768];
    uint8_t bytes[768];
    comet_normalisation n = {{0.5f, 0.25f, 0.1f}, {0.2f, 0.5f, 1.0f}};
    for (int i = 0; i < 768; i++)
        bytes[i] = (uint8_t)(i * 7);
    comet_normalise(&n, 3, bytes, 256, values);
    for (int i = 0; i < 768; i++)
        assert_true(values[i] == ((float)bytes[i] / 255.0f - n.mean[i % 3]) / n.deviation[i % 3]);
    comet_normalise(&n, 1, bytes, 768, values);
    for (int i = 0; i < 768; i++)
        assert_true(values[i] == ((float)bytes[i] / 255.0f - 0.5f) / 0.2f);
    comet_normalisation three = comet_normalisation_for(&n, 1, 3), one = comet_normalisation_for(&n, 3, 1);
    assert_true(three.mean[2] == 0.5f && three.deviation[1] == 0.2f);
    assert_true(one.mean[0] > 0.1f && one.mean[0] < 0.5f && one.deviation[0] > 0.2f && one.deviation[0] < 1.0f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),   cmocka_unit_test(test_flat_stays_flat),
        cmocka_unit_test(test_same_size_is_a_copy), cmocka_unit_test(test_as_pillow),
        cmocka_unit_test(test_moving_and_turning),  cmocka_unit_test(test_channels),
        cmocka_unit_test(test_normalise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
