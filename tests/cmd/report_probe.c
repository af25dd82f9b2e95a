/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes reports for test_report.py to look at.  usage: report_probe ordinary|odd|long|pictures|abandon FILE
 *
 *     ordinary  what a comparison of two variants would show
 *     odd       texts, series and values that are hard to show
 *     long      series of 30,000 points with one spike
 *     pictures  little pictures, of colours and with a palette
 *     abandon   a report that is given up
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/report/report.h"

enum { STEPS = 400, LONG = 30000, LAYERS = 150, SPIKE = 12345 };

static double x[LONG], y[4][LONG];

static double noise(size_t i) {
    return sin((double)i * 12.9898) * cos((double)i * 78.233);
}

static void fill_loss(double *to, size_t count, double start, double end, size_t salt) {
    for (size_t i = 0; i < count; i++) {
        double part = (double)i / (double)count;
        x[i] = (double)i;
        to[i] = end + (start - end) * exp(-4 * part) * (1 + 0.12 * noise(i * 4 + salt));
    }
}

static void put_layers(report *r, size_t count, const char *title) {
    static char names[LAYERS][64], labels[LAYERS][48];
    static report_bar bars[LAYERS];
    for (size_t i = 0; i < count; i++) {
        double raw = 98.0 / (1 + (double)(i / 14)) * (1 + (double)(i % 3) / 3);
        double stored = raw / (12 + 9 * fabs(noise(i)));
        snprintf(names[i], sizeof names[i], "layer%zu.%zu.conv%zu", i / 14 + 1, i / 3 % 5, i % 3 + 1);
        snprintf(labels[i], sizeof labels[i], "%.1f of %.1f MiB", stored, raw);
        bars[i] = (report_bar){names[i], raw, stored, labels[i]};
    }
    report_bars(r, title, "MiB", bars, count);
}

static void put_ordinary(report *r) {
    static const char *const columns[] = {"variant", "seed", "accuracy", "saved", "stored", "ms / step"};
    static const char *const cells[] = {"none",   "1", "91.2 %", "82.0 MiB", "82.0 MiB", "101.3",
                                        "eb",     "1", "91.1 %", "82.0 MiB", "4.1 MiB",  "112.9",
                                        "pool:2", "1", "89.0 %", "82.0 MiB", "31.7 MiB", "98.2"};
    report_text(r, "Three variants of one training, the same seeds and batches.");
    report_table(r, "Results", columns, 6, cells, 3);
    fill_loss(y[0], STEPS, 2.3, 0.31, 1);
    fill_loss(y[1], STEPS, 2.3, 0.32, 2);
    fill_loss(y[2], STEPS, 2.3, 0.45, 3);
    const report_series loss[] = {
        {"none", x, y[0], STEPS, 0}, {"eb:0.3", x, y[1], STEPS, 1}, {"pool:2", x, y[2], STEPS, 2}};
    report_lines(r, "Training loss", "step", "loss, logarithmic", loss, 3, REPORT_LOG_Y | REPORT_SMOOTH);

    static const double epoch[] = {1, 2, 3, 4, 5};
    static const double accuracy[][5] = {{62.1, 74.0, 80.2, 84.4, 86.0},
                                         {61.0, 74.9, 79.2, 83.8, 86.1},
                                         {62.4, 73.1, 80.0, 84.1, 85.7},
                                         {61.5, 74.2, 78.8, 84.3, 85.9},
                                         {55.0, 66.2, 72.0, 77.0, 79.3}};
    const report_series seeds[] = {{"none, seed 1", epoch, accuracy[0], 5, 0},
                                   {"none, seed 2", epoch, accuracy[1], 5, 0},
                                   {"eb:0.3, seed 1", epoch, accuracy[2], 5, 1},
                                   {"eb:0.3, seed 2", epoch, accuracy[3], 5, 1},
                                   {"pool:2", epoch, accuracy[4], 5, 2}};
    report_lines(r, "Accuracy on the evaluation split", "epoch", "top-1, %", seeds, 5, 0);

    for (size_t i = 0; i < 121; i++) {
        double part = i <= 60 ? (double)i / 60 : (double)(120 - i) / 60;
        x[i] = (double)i;
        y[0][i] = 120 + 1100 * sqrt(part) + 30 * noise(i);
        y[1][i] = 120 + 110 * sqrt(part) + 90 * fabs(noise(i));
    }
    const report_series memory[] = {{"none", x, y[0], 121, 0}, {"eb:0.3", x, y[1], 121, 1}};
    report_lines(r, "Memory over a step", "time", "MiB", memory, 2, REPORT_AREA | REPORT_FROM_ZERO);
    static const double measured[] = {1e-5, 2e-5, 3e-4, 1e-3}, predicted[] = {1.1e-5, 4e-5, 2e-4, 1.2e-3};
    static const char *const labels[] = {"bn1", "bn2", "bn3", "<bn4>"};
    const report_cloud clouds[] = {{"conv_weights", measured, predicted, labels, 4},
                                   {"norm_scale", predicted, measured, NULL, 3}};
    report_scatter(r, "Predicted against measured", "measured", "predicted", clouds, 2, REPORT_EQUAL);
    report_scatter(r, "One figure against another", "MiB", "per cent", clouds, 2, REPORT_LOG_X);
    put_layers(r, 20, "Saved by layer, and darker what is stored of it");
    put_layers(r, LAYERS, "The same for a deep network");
}

static void put_one(report *r, const char *title, const double *at, const double *values, size_t count, int flags) {
    const report_series series = {title, at, values, count, 0};
    report_lines(r, title, "x", "y", &series, 1, flags);
}

static void put_odd(report *r) {
    static const double at[] = {0, 1, 2, 3, 4, 5};
    static const double gaps[] = {1, NAN, 2, 3, INFINITY, 4}, nothing[] = {NAN, NAN, -INFINITY, NAN, NAN, NAN};
    static const double constant[] = {7, 7, 7, 7, 7, 7}, zero[6] = {0}, below[] = {-3, -3, -3, -3, -3, -3};
    static const double wide[] = {-1e300, 1e300, 1e308, -1e308, 0, 1}, tiny[] = {1e-310, 2e-310, 0, 4e-310, 1e-305, 0};
    static const double decades[] = {1e-12, 1e-3, 0, -5, 1e9, 1}, near[] = {1, 1 + 1e-15, 1, 1 + 2e-16, 1, 1};
    report_text(r, "<script>alert(\"&\")</script> \x01 \xff\xfe \xef\xbf\xbf 'quoted'");
    put_one(r, "gaps", at, gaps, 6, 0);
    put_one(r, "nothing finite", at, nothing, 6, 0);
    put_one(r, "no points", at, gaps, 0, REPORT_AREA);
    put_one(r, "one point", at, constant, 1, REPORT_AREA);
    put_one(r, "constant", at, constant, 6, REPORT_FROM_ZERO);
    put_one(r, "zero", at, zero, 6, REPORT_AREA);
    put_one(r, "negative", at, below, 6, 0);
    put_one(r, "wide", at, wide, 6, 0);
    put_one(r, "tiny", at, tiny, 6, 0);
    put_one(r, "decades", at, decades, 6, REPORT_LOG_Y | REPORT_FROM_ZERO | REPORT_AREA);
    put_one(r, "no positive values", at, below, 6, REPORT_LOG_Y);
    put_one(r, "nearly constant", at, near, 6, REPORT_LOG_Y);
    report_lines(r, "no series", "x", "y", NULL, 0, 0);

    report_series many[12];
    static char names[12][64];
    for (int i = 0; i < 12; i++) {
        snprintf(names[i], sizeof names[i], "<b>series & number %d with a long name", i);
        many[i] = (report_series){names[i], at, i == 3 ? nothing : constant, 6, i};
    }
    report_lines(r, "names at the ends", "x", "y", many, 8, 0);
    report_lines(r, "a legend", "x <i>", "y & z", many, 12, 0);

    static const double nowhere[] = {0, -1, NAN, INFINITY}, somewhere[] = {3, 3, 3, 3};
    const report_cloud odd[] = {{"nothing", nowhere, somewhere, NULL, 4}, {"one", somewhere, somewhere, NULL, 1}};
    report_scatter(r, "points without a place", "x", "y", odd, 1, REPORT_EQUAL);
    report_scatter(r, "one place", "x", "y", odd, 2, REPORT_EQUAL);
    report_scatter(r, "one place, not equal", "x", "y", odd, 2, 0);
    static const double close_by[] = {0, 1, 1.001, 1.002, 1.003, 1.004, 1.005, 1.006, 1.007, 2}, level[] = {4, 5, 6};
    report_cloud crowd[10];
    for (size_t i = 0; i < 10; i++) {
        const double *height = &level[i == 0 ? 0 : i < 9 ? 1 : 2];
        crowd[i] = (report_cloud){.name = i < 9 ? "crowded" : "alone", .x = &close_by[i], .y = height, .count = 1};
    }
    report_scatter(r, "a crowd", "x", "y", crowd, 10, 0);
    static const report_bar bars[] = {
        {"plain", 3, 0, NULL},          {"part", 4, 1, "1 of 4"},
        {"part > value", 2, 5, NULL},   {"<i>&", 1, 0.5, "<b>"},
        {"not a number", NAN, 1, NULL}, {"infinite", INFINITY, INFINITY, NULL},
        {"negative", -2, 0, NULL},      {"a name of more than forty characters, which is cut", 1, 0, ""}};
    report_bars(r, "odd bars", "<u>", bars, 8);
    report_bars(r, "no bars", "", NULL, 0);
    static const report_bar nil[] = {{"zero", 0, 0, NULL}};
    report_bars(r, "one bar of zero", NULL, nil, 1);

    static const char *const columns[] = {"<name>", "shape", "count"};
    static const char *const cells[] = {"a & b", "64x56x56", "1", NULL, "8x8", "-", "\xc3", "", "1.5e-3"};
    report_table(r, "odd \"table\"", columns, 3, cells, 3);
    report_table(r, "no rows", columns, 3, cells, 0);
}

static void put_long(report *r) {
    fill_loss(y[0], LONG, 10, 1, 5);
    fill_loss(y[1], LONG, 8, 2, 6);
    y[0][SPIKE] = 1000;
    y[1][SPIKE] = NAN;
    const report_series series[] = {{"spike", x, y[0], LONG, 0}, {"gap", x, y[1], LONG, 1}};
    report_lines(r, "long", "step", "loss", series, 2, 0);
}

/* Sides of all remainders by 3, so that base64 ends in all ways; the picture's pixel (x, y) is (x, y, x + y). */
static void put_pictures(report *r) {
    static uint8_t colours[3][8 * 8 * 4], indices[5 * 4], palette[3 * 256];
    static report_picture pictures[4];
    for (int i = 0; i < 3; i++) {
        const int side = 6 + i;
        for (int p = 0; p < side * side; p++) {
            const uint8_t pixel[] = {(uint8_t)(p % side), (uint8_t)(p / side), (uint8_t)(p % side + p / side),
                                     (uint8_t)(p ? 255 : 0)};
            memcpy(colours[i] + 4 * p, pixel, 4);
        }
        pictures[i] = (report_picture){side, side, colours[i], NULL, 10 * side, i ? "<b>a & b" : NULL};
    }
    for (int i = 0; i < 256; i++)
        palette[3 * i] = (uint8_t)i;
    for (int p = 0; p < 5 * 4; p++)
        indices[p] = (uint8_t)(12 * p);
    pictures[3] = (report_picture){5, 4, indices, palette, 60, "indices"};
    static const char *const columns[] = {"one & two", "three"}, *const rows[] = {"<first>", "second"},
                             *const notes[] = {"5x4", NULL};
    const report_cell cells[] = {{pictures, 2}, {pictures + 2, 1}, {pictures + 3, 1}, {NULL, 0}};
    const report_gallery gallery = {"with names", "some <text>", columns, 2, rows, notes, 2, cells},
                         bare = {"without names", NULL, columns, 2, NULL, NULL, 1, cells};
    report_pictures(r, &gallery);
    report_pictures(r, &bare);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*put)(report *r);
    } kinds[] = {{"ordinary", put_ordinary},
                 {"odd", put_odd},
                 {"long", put_long},
                 {"pictures", put_pictures},
                 {"abandon", put_ordinary}};
    report r;
    if (argc != 3)
        return MISUSED;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(argv[1], kinds[i].name) != 0)
            continue;
        if (report_open(&r, argv[2], "resnet18 on <cifar10>", "eb:0.3 & pool:2 beside none; batch 128") != DONE)
            return FAILED;
        kinds[i].put(&r);
        if (strcmp(argv[1], "abandon") != 0)
            return report_close(&r);
        report_abandon(&r);
        return DONE;
    }
    return MISUSED;
}
