/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/indices/window.h"

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"
#include "base/tensor_check.h"

static comet_status check_most(int64_t number, const char *name) {
    if (number > COMET_WINDOW_MOST)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "%s of %lld: more than 2^28 are not supported", name,
                          (long long)number);
    return COMET_OK;
}

/* One of rows (0) and columns (1). */
static comet_status check_side(const comet_pool_window *p, int d) {
    COMET_REQUIRE(p->input[d] >= 1, "window->input[%d] is %lld: it must be at least 1", d, (long long)p->input[d]);
    COMET_REQUIRE(p->output[d] >= 1, "window->output[%d] is %lld: it must be at least 1", d, (long long)p->output[d]);
    COMET_REQUIRE(p->kernel[d] >= 1, "window->kernel[%d] is %d: it must be at least 1", d, (int)p->kernel[d]);
    COMET_REQUIRE(p->stride[d] >= 1, "window->stride[%d] is %d: it must be at least 1", d, (int)p->stride[d]);
    COMET_REQUIRE(p->dilation[d] >= 1, "window->dilation[%d] is %d: it must be at least 1", d, (int)p->dilation[d]);
    const int64_t span = (int64_t)(p->kernel[d] - 1) * p->dilation[d] + 1;
    COMET_REQUIRE(p->padding[d] >= 0 && p->padding[d] <= span / 2,
                  "window->padding[%d] is %d: it must be 0 to half of what a window spans, %lld", d, (int)p->padding[d],
                  (long long)span);
    COMET_TRY(check_most(p->input[d], "an input"));
    COMET_TRY(check_most(p->output[d], "an output"));
    COMET_TRY(check_most(p->stride[d], "a stride"));
    COMET_TRY(check_most(span, "a window's span"));
    COMET_REQUIRE((p->output[d] - 1) * p->stride[d] < p->input[d] + p->padding[d],
                  "window->output[%d] is %lld: the last window begins behind the input", d, (long long)p->output[d]);
    return COMET_OK;
}

static comet_status check(const comet_pool_window *p) {
    COMET_REQUIRE(p->layout == COMET_NCHW || p->layout == COMET_NHWC,
                  "window->layout must be COMET_NCHW or COMET_NHWC");
    COMET_REQUIRE(p->batch >= 0, "window->batch is negative");
    COMET_REQUIRE(p->channels >= 0, "window->channels is negative");
    COMET_TRY(check_side(p, 0));
    COMET_TRY(check_side(p, 1));
    if ((int64_t)p->kernel[0] * p->kernel[1] > COMET_WINDOW_PLACES)
        return comet_fail(COMET_ERROR_UNSUPPORTED, "a window of %d x %d has more than %d places", (int)p->kernel[0],
                          (int)p->kernel[1], COMET_WINDOW_PLACES);
    COMET_TRY(check_most(p->channels, "channels"));
    COMET_TRY(check_most(p->input[0] * p->input[1], "an input map"));
    COMET_TRY(check_most(p->output[0] * p->output[1], "an output map"));
    const int64_t an_image = p->channels * p->output[0] * p->output[1];
    COMET_REQUIRE(an_image == 0 || p->batch <= COMET_MAX_COUNT / an_image, "window has more than 2^48 indices");
    return COMET_OK;
}

static uint32_t bits_for(uint32_t places) {
    return places <= 2 ? 1 : places <= 4 ? 2 : places <= 16 ? 4 : 8;
}

static size_t packed_bytes(int64_t count, uint32_t bits) {
    const int64_t bytes = comet_div_up(count, 8 / bits);
    return comet_align_up((size_t)bytes, COMET_WINDOW_PACKED_UNIT);
}

comet_status comet_window_take(const comet_pool_window *given, comet_window *w) {
    static const comet_pool_window defaults = COMET_POOL_WINDOW_INIT;
    comet_pool_window p;
    COMET_REQUIRE(given, "window is NULL");
    COMET_TRY(comet_sized_read(&p, sizeof p, given, &defaults, "window"));
    COMET_TRY(check(&p));
    for (int d = 0; d < 2; d++) {
        w->input[d] = (uint32_t)p.input[d];
        w->output[d] = (uint32_t)p.output[d];
        w->kernel[d] = (uint32_t)p.kernel[d];
        w->stride[d] = (uint32_t)p.stride[d];
        w->padding[d] = (uint32_t)p.padding[d];
        w->dilation[d] = (uint32_t)p.dilation[d];
    }
    w->inner = p.layout == COMET_NHWC ? (uint32_t)p.channels : 1;
    w->map = w->input[0] * w->input[1];
    w->places = w->kernel[0] * w->kernel[1];
    w->bits = bits_for(w->places);
    w->count = p.batch * p.channels * p.output[0] * p.output[1];
    w->bytes = packed_bytes(w->count, w->bits);
    return COMET_OK;
}

comet_status comet_indices_bytes(const comet_pool_window *window, size_t *bytes) {
    comet_window w;
    comet_begin();
    COMET_REQUIRE_POINTER(bytes);
    COMET_TRY(comet_window_take(window, &w));
    *bytes = w.bytes;
    return COMET_OK;
}
