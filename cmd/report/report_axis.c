/* SPDX-License-Identifier: Apache-2.0 */
/* Axes: the range of the values, round ticks in it, and places in the drawing. */
#include <math.h>
#include <string.h>

#include "cmd/report/report_impl.h"

static const double largest = 1e300, smallest = 1e-300;

int report_axis_takes(const report_axis *axis, double value) {
    return isfinite(value) && fabs(value) <= largest && (!axis->logarithmic || value >= smallest);
}

int report_axis_is_empty(const report_axis *axis) {
    return !(axis->low <= axis->high);
}

void report_axis_include(report_axis *axis, double value) {
    if (!report_axis_takes(axis, value))
        return;
    int empty = report_axis_is_empty(axis);
    if (empty || value < axis->low)
        axis->low = value;
    if (empty || value > axis->high)
        axis->high = value;
}

/* 1, 2 or 5 times a power of ten, no smaller than `least`. */
static double round_step(double least) {
    double power = pow(10, floor(log10(least)));
    double digit = least / power;
    return power * (digit <= 1.0001 ? 1 : digit <= 2.0001 ? 2 : digit <= 5.0001 ? 5 : 10);
}

/* A line through one value, or through values that differ by rounding alone, still needs a scale. */
static void make_room(report_axis *axis) {
    double size = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->high - axis->low > 1e-9 * size && axis->high - axis->low > smallest)
        return;
    if (axis->logarithmic) {
        axis->low /= 2;
        axis->high *= 2;
        return;
    }
    double room = size > smallest ? size / 10 : 1;
    axis->low -= axis->low == 0 ? 0 : room;
    axis->high += axis->high == 0 && axis->low < 0 ? 0 : room;
}

static void add_tick(report_axis *axis, double value) {
    double slack = 1e-9 * fmax(fabs(axis->low), fabs(axis->high));
    if (axis->tick_count < REPORT_TICKS_MOST && value >= axis->low - slack && value <= axis->high + slack)
        axis->ticks[axis->tick_count++] = value;
}

static void linear_ticks(report_axis *axis, int wanted, int snap) {
    axis->step = round_step((axis->high - axis->low) / wanted);
    if (axis->whole && axis->step < 1)
        axis->step = 1;
    double first = axis->low / axis->step, last = axis->high / axis->step;
    first = snap ? floor(first + 1e-6) : ceil(first - 1e-6);
    last = snap ? ceil(last - 1e-6) : floor(last + 1e-6);
    if (snap) {
        axis->low = first * axis->step;
        axis->high = last * axis->step;
    }
    for (double i = first; i <= last; i++)
        add_tick(axis, i * axis->step == 0 ? 0 : i * axis->step); /* never -0 */
}

/* Powers of ten; between them 2 and 5 where there are few, and every so many of them where there are many. */
static void logarithmic_ticks(report_axis *axis, int wanted, int snap) {
    static const double digits[] = {1, 2, 5, 10};
    double first = floor(log10(axis->low) + 1e-9), last = ceil(log10(axis->high) - 1e-9);
    int fine = last - first <= 2;
    double stride = fmax(1, ceil((last - first) / wanted));
    if (snap && fine) { /* to the nearest of 1, 2, 5 outside */
        double low = pow(10, floor(log10(axis->low) + 1e-9)), high = pow(10, floor(log10(axis->high) + 1e-9));
        int a = 2, b = 0;
        while (a > 0 && digits[a] * low > axis->low * (1 + 1e-9))
            a--;
        while (b < 3 && digits[b] * high < axis->high * (1 - 1e-9))
            b++;
        axis->low = digits[a] * low;
        axis->high = digits[b] * high;
    }
    for (double power = first; power <= last; power += stride)
        for (int d = 0; d < (fine ? 3 : 1); d++)
            add_tick(axis, digits[d] * pow(10, power));
}

void report_axis_finish(report_axis *axis, int wanted, int snap) {
    if (report_axis_is_empty(axis)) {
        axis->low = axis->logarithmic ? 1 : 0;
        axis->high = axis->logarithmic ? 10 : 1;
    }
    make_room(axis);
    axis->tick_count = 0;
    axis->step = 0;
    if (axis->logarithmic)
        logarithmic_ticks(axis, wanted, snap);
    else
        linear_ticks(axis, wanted, snap);
}

double report_axis_place(const report_axis *axis, double value) {
    double part = axis->logarithmic ? log(value / axis->low) / log(axis->high / axis->low)
                                    : (value - axis->low) / (axis->high - axis->low);
    return axis->from + fmin(fmax(part, 0), 1) * (axis->to - axis->from);
}

const char *report_axis_label(const report_axis *axis, double value, char text[REPORT_NUMBER]) {
    double most = fmax(fabs(axis->low), fabs(axis->high));
    if (axis->step == 0 || most >= 1e6 || axis->step < 1e-4)
        return report_number(value, text);
    int decimals = (int)fmax(0, ceil(-log10(axis->step) - 1e-9));
    snprintf(text, REPORT_NUMBER, "%s%.*f", value < 0 ? "\u2212" : "", decimals, fabs(value));
    return text;
}
