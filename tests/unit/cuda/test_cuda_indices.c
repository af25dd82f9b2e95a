/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Indices of max-pools on a device: the bytes and indices of the CPU, any alignment that is allowed, what is wrong goes
 * to the status word, bytes that nobody packed, and graphs.
 */
#include "support/assert_ok.h"

#include <stdlib.h>
#include <string.h>

#include "support/codec/pooling.h"
#include "support/cuda/cuda_backend.h"
#include "support/effort.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

/* ---- memory ---- */

/* What calls are given; indices begin `skip` of them into their memory: odd is aligned to 8 bytes alone. */
typedef struct device {
    cuda_block indices, packed, word;
    int64_t skip;
} device;

static device device_new(const pooling *p, int64_t skip, int32_t word) {
    return (device){.indices = cuda_block_new((size_t)(p->count + skip) * sizeof *p->indices, NULL),
                    .packed = cuda_block_new(p->bytes, NULL),
                    .word = cuda_block_new(sizeof word, &word),
                    .skip = skip};
}

static int64_t *indices_at(const device *d) {
    return (int64_t *)d->indices.data + d->skip;
}

static void write_indices(const device *d, const pooling *p) {
    if (p->count)
        cuda_must(cudaMemcpy(indices_at(d), p->indices, (size_t)p->count * sizeof *p->indices, cudaMemcpyHostToDevice));
}

static int32_t word_of(const device *d) {
    int32_t *copy = cuda_block_read(&d->word), word = *copy;
    free(copy);
    return word;
}

static void device_free(device *d) {
    cuda_block_free(&d->indices);
    cuda_block_free(&d->packed);
    cuda_block_free(&d->word);
}

static void assert_packed(const device *d, const pooling *p) {
    unsigned char *packed = cuda_block_read(&d->packed);
    assert_memory_equal(packed, p->packed, p->bytes);
    free(packed);
}

/* Those in device memory are `expected`, and nothing before them was written. */
static void assert_indices(const device *d, const int64_t *expected, int64_t count) {
    int64_t *all = cuda_block_read(&d->indices);
    assert_true(cuda_is_poison(all, (size_t)d->skip * sizeof *all));
    assert_memory_equal(all + d->skip, expected, (size_t)count * sizeof *all);
    free(all);
}

/* ---- packing and unpacking ---- */

static void check(const pooling *p, int64_t skip) {
    device from = device_new(p, skip, COMET_OK), to = device_new(p, skip, COMET_OK);
    write_indices(&from, p);
    assert_ok(comet_cuda_indices_pack(&p->window, indices_at(&from), from.packed.data, from.word.data, NULL));
    assert_packed(&from, p);
    assert_int_equal(word_of(&from), COMET_OK);
    assert_ok(comet_cuda_indices_unpack(&p->window, from.packed.data, indices_at(&to), NULL));
    assert_indices(&to, p->indices, p->count);
    device_free(&from);
    device_free(&to);
}

static void test_random_windows(void **state) {
    (void)state;
    rng r = rng_seed(1);
    for (int round = effort(800); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, 5000);
        pooling p = pooling_new(&r, &w);
        cuda_shuffle(rng_below(&r, 3) ? 0 : rng_next(&r));
        check(&p, (int64_t)rng_below(&r, 4));
        pooling_free(&p);
    }
    cuda_shuffle(0);
}

/* Several launches, where the device is emulated; else many blocks. */
static void test_many_values(void **state) {
    (void)state;
    static const int32_t kernels[][2] = {{1, 2}, {2, 2}, {3, 3}, {5, 4}};
    rng r = rng_seed(2);
    for (int i = 0; i < 8; i++) {
        comet_pool_window w = COMET_POOL_WINDOW_INIT;
        w.batch = 3, w.channels = 37, w.layout = i % 2 ? COMET_NHWC : COMET_NCHW;
        for (int d = 0; d < 2; d++) {
            w.kernel[d] = kernels[i / 2][d], w.stride[d] = 2, w.padding[d] = w.kernel[d] / 2;
            w.output[d] = 11 + 2 * d, w.input[d] = 2 * w.output[d] - 1;
        }
        pooling p = pooling_new(&r, &w);
        check(&p, i % 3);
        pooling_free(&p);
    }
}

/* Around a tile of a warp, a unit of it, a byte: every count. */
static void test_every_count(void **state) {
    (void)state;
    rng r = rng_seed(3);
    for (int32_t kernel = 2; kernel <= 17; kernel = kernel * 2 + (kernel == 8)) /* 2, 4, 8 and 17 places */
        for (int64_t count = 1; count <= 1100; count += count < 20 || count % 128 > 120 || count % 128 < 3 ? 1 : 30) {
            comet_pool_window w = COMET_POOL_WINDOW_INIT;
            w.input[1] = w.kernel[1] = kernel;
            w.batch = count;
            pooling p = pooling_new(&r, &w);
            check(&p, count % 2);
            pooling_free(&p);
        }
}

static void test_extreme_windows(void **state) {
    (void)state;
    rng r = rng_seed(4);
    for (int which = 0; which < POOLING_EXTREMES; which++) {
        comet_pool_window w = pooling_extreme(which);
        pooling p = pooling_new(&r, &w);
        check(&p, which % 2);
        pooling_free(&p);
    }
}

/* ---- what is wrong ---- */

/* One index is another: a status where that is not a place of its window, which is then packed as the first. */
static void spoil(const pooling *p, int64_t i, int64_t index, int32_t word) {
    device d = device_new(p, 0, word);
    unsigned code = 0;
    const int is_place = pooling_is_place(&p->window, i, index, &code);
    const unsigned char byte = p->packed[i * p->bits / 8];
    p->packed[i * p->bits / 8] = (unsigned char)((byte & ~(((1u << p->bits) - 1) << i * p->bits % 8)) |
                                                 (is_place ? code : 0) << i * p->bits % 8);
    write_indices(&d, p);
    cuda_must(cudaMemcpy(indices_at(&d) + i, &index, sizeof index, cudaMemcpyHostToDevice));
    assert_ok(comet_cuda_indices_pack(&p->window, indices_at(&d), d.packed.data, d.word.data, NULL));
    assert_packed(&d, p);
    assert_int_equal(word_of(&d), is_place || word != COMET_OK ? word : COMET_ERROR_ARGUMENT);
    p->packed[i * p->bits / 8] = byte;
    device_free(&d);
}

static void test_wrong_indices(void **state) {
    (void)state;
    rng r = rng_seed(5);
    for (int round = effort(400); round > 0; round--) {
        comet_pool_window w = pooling_window(&r, 1200);
        pooling p = pooling_new(&r, &w);
        const int64_t map = w.input[0] * w.input[1];
        for (int k = 0; p.count && k < 5; k++) {
            const int64_t i = rng_between(&r, 0, p.count - 1), right = p.indices[i];
            const int64_t others[] = {-1,
                                      map,
                                      INT64_MIN,
                                      INT64_MAX,
                                      right + ((int64_t)1 << 32),
                                      right | INT64_MIN,
                                      right + 1,
                                      right - 1,
                                      right + w.input[1],
                                      right - w.input[1],
                                      rng_between(&r, -map, 2 * map),
                                      (int64_t)(uint32_t)rng_next(&r)};
            spoil(&p, i, others[rng_below(&r, sizeof others / sizeof *others)],
                  rng_below(&r, 4) ? COMET_OK : COMET_ERROR_CORRUPT);
        }
        pooling_free(&p);
    }
}

/* ---- bytes that nobody packed ---- */

static void check_hostile(const pooling *p, int64_t skip) {
    device d = device_new(p, skip, COMET_OK);
    int64_t *expected = malloc((size_t)p->count * sizeof *expected + 1);
    assert_non_null(expected);
    cuda_block_write(&d.packed, p->packed);
    (void)comet_indices_unpack(&p->window, p->packed, expected);
    for (int64_t i = 0; i < p->count; i++)
        assert_in_range(expected[i], 0, p->window.input[0] * p->window.input[1] - 1);
    assert_ok(comet_cuda_indices_unpack(&p->window, d.packed.data, indices_at(&d), NULL));
    assert_indices(&d, expected, p->count);
    free(expected);
    device_free(&d);
}

static void test_hostile_bytes(void **state) {
    (void)state;
    rng r = rng_seed(6);
    for (int round = effort(400); round > 0; round--) {
        comet_pool_window w =
            round % 20 ? pooling_window(&r, 3000) : pooling_extreme((int)rng_below(&r, POOLING_EXTREMES));
        pooling p = pooling_new(&r, &w);
        for (size_t i = 0; i < p.bytes; i++)
            p.packed[i] = (unsigned char)rng_next(&r);
        check_hostile(&p, (int64_t)rng_below(&r, 2));
        pooling_free(&p);
    }
}

/* ---- calls ---- */

static pooling small(rng *r) {
    comet_pool_window w = COMET_POOL_WINDOW_INIT;
    w.batch = 2, w.channels = 3;
    w.input[0] = w.input[1] = 12, w.output[0] = w.output[1] = 6;
    w.kernel[0] = w.kernel[1] = 3, w.stride[0] = w.stride[1] = 2, w.padding[0] = w.padding[1] = 1;
    return pooling_new(r, &w);
}

static void test_arguments(void **state) {
    (void)state;
    rng r = rng_seed(7);
    pooling p = small(&r);
    device d = device_new(&p, 0, COMET_OK);
    comet_pool_window none = p.window, wrong = p.window, *w = &p.window;
    unsigned char *packed = d.packed.data, *indices = d.indices.data, *word = d.word.data;
    none.batch = 0, wrong.stride[1] = 0;
    const struct {
        comet_pool_window *window;
        void *indices, *packed, *word;
    } calls[] = {
        {NULL, indices, packed, word}, {&wrong, indices, packed, word}, {w, NULL, packed, word},
        {w, indices, NULL, word},      {w, indices + 4, packed, word},  {w, indices, packed + 8, word},
    };
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        assert_status(comet_cuda_indices_pack(calls[i].window, calls[i].indices, calls[i].packed, calls[i].word, NULL),
                      COMET_ERROR_ARGUMENT);
        assert_true(comet_last_error()[0]);
        assert_status(comet_cuda_indices_unpack(calls[i].window, calls[i].packed, calls[i].indices, NULL),
                      COMET_ERROR_ARGUMENT);
    }
    assert_status(comet_cuda_indices_pack(w, (void *)indices, packed, NULL, NULL), COMET_ERROR_ARGUMENT);
    assert_status(comet_cuda_indices_pack(w, (void *)indices, packed, (void *)(word + 1), NULL), COMET_ERROR_ARGUMENT);
    assert_ok(comet_cuda_indices_pack(&none, NULL, NULL, (void *)word, NULL));
    assert_ok(comet_cuda_indices_unpack(&none, NULL, NULL, NULL));
    void *untouched = cuda_block_read(&d.packed);
    assert_true(cuda_is_poison(untouched, p.bytes));
    free(untouched);
    assert_int_equal(word_of(&d), COMET_OK);
    device_free(&d);
    pooling_free(&p);
}

static void test_graph(void **state) {
    (void)state;
    rng r = rng_seed(8);
    pooling p = small(&r);
    device d = device_new(&p, 0, COMET_OK), back = device_new(&p, 0, COMET_OK);
    cudaStream_t queue;
    cudaGraph_t graph;
    cudaGraphExec_t run;
    cuda_must(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking));
    cuda_must(cudaStreamBeginCapture(queue, cudaStreamCaptureModeGlobal));
    assert_ok(comet_cuda_indices_pack(&p.window, indices_at(&d), d.packed.data, d.word.data, queue));
    assert_ok(comet_cuda_indices_unpack(&p.window, d.packed.data, indices_at(&back), queue));
    cuda_must(cudaStreamEndCapture(queue, &graph));
    cuda_must(cudaGraphInstantiate(&run, graph, 0));
    for (int i = 0; i < 3; i++) {
        pooling other = small(&r);
        write_indices(&d, &other);
        cuda_must(cudaDeviceSynchronize());
        cuda_must(cudaGraphLaunch(run, queue));
        cuda_must(cudaStreamSynchronize(queue));
        assert_packed(&d, &other);
        assert_indices(&back, other.indices, other.count);
        pooling_free(&other);
    }
    assert_int_equal(word_of(&d), COMET_OK);
    cuda_must(cudaGraphExecDestroy(run));
    cuda_must(cudaGraphDestroy(graph));
    cuda_must(cudaStreamDestroy(queue));
    device_free(&d);
    device_free(&back);
    pooling_free(&p);
}

#ifdef COMET_CUDA_EMULATION
static void test_failures(void **state) {
    (void)state;
    rng r = rng_seed(9);
    pooling p = small(&r);
    device d = device_new(&p, 0, COMET_OK);
    for (int call = 0; call < 2; call++) { /* asking for the device, launching */
        emulation_fail_next(cudaErrorLaunchFailure, call);
        assert_status(comet_cuda_indices_pack(&p.window, indices_at(&d), d.packed.data, d.word.data, NULL),
                      COMET_ERROR_DEVICE);
        emulation_fail_next(cudaErrorLaunchFailure, call);
        assert_status(comet_cuda_indices_unpack(&p.window, d.packed.data, indices_at(&d), NULL), COMET_ERROR_DEVICE);
    }
    emulation_reset();
    device_free(&d);
    pooling_free(&p);
}
#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_windows), cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_every_count),    cmocka_unit_test(test_extreme_windows),
        cmocka_unit_test(test_wrong_indices),  cmocka_unit_test(test_hostile_bytes),
        cmocka_unit_test(test_arguments),      cmocka_unit_test(test_graph),
#ifdef COMET_CUDA_EMULATION
        cmocka_unit_test(test_failures),
#endif
    };
    int skipped = cuda_skip();
    return skipped ? skipped : cmocka_run_group_tests(tests, NULL, NULL);
}
