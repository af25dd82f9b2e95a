/* SPDX-License-Identifier: Apache-2.0 */
#include "support/cuda/cuda_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/cuda/cuda_impl.h"
#ifdef COMET_CUDA_EMULATION
#include "emulation.h"
#endif

enum { FLAGS_BYTE = 10, FLAG_CHECKSUM = 1 };

static void *take(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        abort();
    return memory;
}

void cuda_shuffle(uint64_t seed) {
#ifdef COMET_CUDA_EMULATION
    emulation_set_block_order(seed);
    emulation_set_thread_order(seed);
#else
    (void)seed;
#endif
}

/* ---- pieces ---- */

static const float *table_new(cuda_block *block, const float *host, int64_t channels) {
    if (!host)
        return NULL;
    *block = cuda_block_new((size_t)channels * sizeof *host, host);
    return block->data;
}

void cuda_params_new(cuda_params *c, const comet_codec_params *host) {
    *c = (cuda_params){.p = *host};
    const comet_codec_grid *g = host->grid;
    if (!g)
        return;
    c->grid = (comet_codec_grid){.channels = g->channels,
                                 .scale = table_new(&c->tables[0], g->scale, g->channels),
                                 .shift = table_new(&c->tables[1], g->shift, g->channels),
                                 .threshold = table_new(&c->tables[2], g->threshold, g->channels),
                                 .slope = table_new(&c->tables[3], g->slope, g->channels)};
    c->p.grid = &c->grid;
}

void cuda_params_free(cuda_params *c) {
    for (int i = 0; i < 4; i++)
        cuda_block_free(&c->tables[i]);
}

comet_tensor cuda_view(const test_shape *shape, comet_dtype dtype, void *data) {
    comet_tensor t;
    const comet_device device = {COMET_CUDA, 0};
    if (comet_tensor_init_on(&t, device, data, dtype, shape->layout, shape->ndim, shape->shape) != COMET_OK)
        abort();
    return t;
}

size_t cuda_view_bytes(const test_shape *shape, comet_dtype dtype) {
    return (size_t)shape_count(shape) * comet_dtype_size(dtype);
}

static cuda_block workspace_of(size_t bytes, cudaStream_t queue) {
    cuda_block b = cuda_block_new(bytes, NULL);
    if (comet_cuda_workspace_init(b.data, bytes, queue) != COMET_OK)
        abort();
    return b;
}

cuda_block cuda_workspace_new(const comet_tensor *t, const comet_codec_params *p, cudaStream_t queue) {
    size_t bytes = 0;
    (void)comet_cuda_workspace(t, p, &bytes); /* parameters that are refused need none */
    return workspace_of(bytes, queue);
}

void cuda_workspace_free(cuda_block *workspace) {
    unsigned char *content = cuda_block_read(workspace);
    for (size_t i = 0; i < workspace->bytes && i < CUDA_WORKSPACE_ZEROED; i++)
        if (content[i] != 0) {
            fprintf(stderr, "byte %zu of a workspace is not 0 between calls: the next one would go wrong\n", i);
            fflush(NULL);
            _Exit(1);
        }
    free(content);
    cuda_block_free(workspace);
}

comet_codec_exec cuda_exec(const cuda_block *workspace, cudaStream_t queue) {
    comet_codec_exec e = COMET_CODEC_EXEC_INIT;
    e.workspace = workspace->data;
    e.workspace_bytes = workspace->bytes;
    e.queue = queue;
    return e;
}

/* ---- compress ---- */

static void read_written(const cuda_block *slot, const cuda_block *result, cuda_written *w) {
    comet_cuda_result *r = cuda_block_read(result);
    w->memory = cuda_block_read(slot);
    w->bytes = slot->bytes;
    w->result = *r;
    free(r);
}

static int surroundings_are_intact(const trip *t, const cuda_block *data, const cuda_place *place,
                                   const cuda_written *w, failure *f) {
    void *now = cuda_block_read(data);
    int same = memcmp(now, t->patterns, data->bytes) == 0;
    free(now);
    if (!same)
        return failure_set(f, "compress changed its input");
    uint64_t before = place->start < place->capacity ? place->start : place->capacity;
    if (!cuda_is_poison(w->memory, before))
        return failure_set(f, "compress wrote in front of start %llu", (unsigned long long)place->start);
    if (!cuda_is_poison(w->memory + place->capacity, place->behind))
        return failure_set(f, "compress wrote behind a capacity of %zu", place->capacity);
    return 1;
}

int cuda_compress_to(const trip *t, const comet_codec_params *p, const cuda_place *place, const cuda_block *workspace,
                     comet_status *status, cuda_written *w, failure *f) {
    cuda_params c;
    cuda_params_new(&c, p);
    cuda_block data = cuda_block_new(cuda_view_bytes(&t->spec.shape, t->spec.dtype), t->patterns);
    cuda_block memory = cuda_block_new(place->capacity + place->behind, NULL);
    cuda_block result = cuda_block_new(sizeof(comet_cuda_result), NULL);
    cuda_block start = cuda_block_new(sizeof place->start, &place->start);
    comet_tensor in = cuda_view(&t->spec.shape, t->spec.dtype, data.data);
    cuda_block own = workspace ? *workspace : cuda_workspace_new(&in, &c.p, NULL);
    comet_codec_exec exec = cuda_exec(&own, NULL);
    comet_cuda_slot slot = {.base = memory.data,
                            .capacity = place->capacity,
                            .start = place->start || place->start_on_device ? start.data : NULL,
                            .result = result.data};
    *status = comet_cuda_compress(&in, &c.p, &exec, &slot, NULL);
    read_written(&memory, &result, w);
    int good = surroundings_are_intact(t, &data, place, w, f);
    if (!workspace)
        cuda_workspace_free(&own);
    cuda_block_free(&start);
    cuda_block_free(&result);
    cuda_block_free(&memory);
    cuda_block_free(&data);
    cuda_params_free(&c);
    return good;
}

/* ---- decompress ---- */

comet_status cuda_decompress_from(cuda_reading *d, const void *memory, size_t capacity, void **patterns) {
    cuda_params c;
    cuda_params_new(&c, d->params);
    cuda_block data = cuda_block_new(cuda_view_bytes(&d->shape, d->dtype), NULL);
    cuda_block stream = cuda_block_new(capacity, memory);
    cuda_block result = cuda_block_new(sizeof(comet_cuda_result), d->result);
    cuda_block start = cuda_block_new(sizeof(uint64_t), d->start);
    cuda_block word = cuda_block_new(sizeof d->word, &d->word);
    comet_tensor out = cuda_view(&d->shape, d->dtype, data.data);
    cuda_block own = d->workspace ? *d->workspace : cuda_workspace_new(&out, &c.p, NULL);
    comet_codec_exec exec = cuda_exec(&own, NULL);
    comet_cuda_slot slot = {.base = stream.data,
                            .capacity = capacity,
                            .start = d->start ? start.data : NULL,
                            .result = d->result ? result.data : NULL};
    comet_status status = comet_cuda_decompress(&slot, &c.p, d->epilogue, &exec, &out, word.data);
    *patterns = cuda_block_read(&data);
    cuda_must(cudaMemcpy(&d->word, word.data, sizeof d->word, cudaMemcpyDeviceToHost));
    if (!d->workspace)
        cuda_workspace_free(&own);
    cuda_block_free(&word);
    cuda_block_free(&start);
    cuda_block_free(&result);
    cuda_block_free(&stream);
    cuda_block_free(&data);
    cuda_params_free(&c);
    return status;
}

/* ---- the backend ---- */

/* The shared workspace, or NULL for one of its own. */
static const cuda_block *some_workspace(const backend *b, const trip *t, const comet_codec_params *p, rng *r) {
    const cuda_block *shared = b->context;
    comet_tensor view = cuda_view(&t->spec.shape, t->spec.dtype, NULL);
    size_t needed = 0;
    comet_cuda_workspace(&view, p, &needed);
    return needed <= shared->bytes && rng_below(r, 2) ? shared : NULL;
}

static comet_codec_params params_without_checksum(const trip *t) {
    comet_codec_params p = t->params;
    p.checksum = 0;
    return p;
}

static int result_is_right(const cuda_written *w, const cuda_place *place, failure *f) {
    const comet_cuda_result *r = &w->result;
    uint64_t end = place->start + r->codec.bytes;
    end = (end + CUDA_ALIGNMENT - 1) / CUDA_ALIGNMENT * CUDA_ALIGNMENT;
    if (r->status != COMET_OK || r->start != place->start || r->end != end || r->reserved != 0 ||
        r->codec.bytes > place->capacity - place->start)
        return failure_set(f, "result: %s, start %llu (asked for %llu), end %llu, %zu bytes, reserved %d",
                           comet_status_string((comet_status)r->status), (unsigned long long)r->start,
                           (unsigned long long)place->start, (unsigned long long)r->end, r->codec.bytes,
                           (int)r->reserved);
    return 1;
}

/* Takes the stream out of the memory it was written to, and its serialised form. */
static int take_stream(const trip *t, const cuda_written *w, trip_stream *s, failure *f) {
    s->result = w->result.codec;
    s->stored_bytes = w->result.codec.bytes;
    s->stored = take(s->stored_bytes);
    memcpy(s->stored, w->memory + w->result.start, s->stored_bytes);
    s->bytes = take(s->stored_bytes);
    size_t bytes = 0;
    comet_status status =
        comet_codec_serialise(s->stored, s->stored_bytes, t->params.checksum, s->bytes, s->stored_bytes, &bytes);
    s->result.bytes = bytes;
    return status == COMET_OK ? 1 : failure_set(f, "comet_codec_serialise: %s", comet_status_string(status));
}

/* Compresses into a slot as large as asked for, or into `capacity` bytes behind the start. */
static int compress_at(const backend *b, const trip *t, rng *r, size_t capacity, cuda_place *place, cuda_written *w,
                       failure *f) {
    comet_codec_params p = params_without_checksum(t);
    uint64_t start = rng_below(r, 2) ? CUDA_ALIGNMENT * rng_below(r, 4) : 0;
    *place = (cuda_place){.capacity = start + capacity,
                          .behind = rng_below(r, 2) ? 4096 : 0, /* 0: the emulator sees the first byte behind */
                          .start = start,
                          .start_on_device = (int)rng_below(r, 2)};
    comet_status status;
    cuda_shuffle(rng_below(r, 2) ? rng_next(r) | 1 : 0);
    int good = cuda_compress_to(t, &p, place, some_workspace(b, t, &p, r), &status, w, f);
    cuda_shuffle(0);
    return good && status != COMET_OK ? failure_set(f, "comet_cuda_compress: %s", comet_status_string(status)) : good;
}

static int device_bound(const trip *t, size_t *bytes, failure *f) {
    comet_codec_params p = params_without_checksum(t);
    comet_tensor view = cuda_view(&t->spec.shape, t->spec.dtype, NULL);
    comet_status status = comet_cuda_max_bytes(&view, &p, bytes);
    return status == COMET_OK ? 1 : failure_set(f, "comet_cuda_max_bytes: %s", comet_status_string(status));
}

static int device_compress(const backend *b, const trip *t, rng *r, trip_stream *s, failure *f) {
    cuda_place place;
    cuda_written w = {.memory = NULL};
    size_t capacity;
    int good = device_bound(t, &capacity, f) && compress_at(b, t, r, capacity, &place, &w, f) &&
               result_is_right(&w, &place, f) && take_stream(t, &w, s, f);
    free(w.memory);
    return good;
}

static int device_decompress(const backend *b, const trip *t, rng *r, const void *stream, size_t bytes, void **patterns,
                             failure *f) {
    comet_codec_params p = t->params;
    p.checksum = ((const unsigned char *)stream)[FLAGS_BYTE] & FLAG_CHECKSUM;
    p.bound = 1.0; /* is not read */
    uint64_t start = rng_below(r, 2) ? CUDA_ALIGNMENT * rng_below(r, 3) : 0;
    comet_cuda_result result = {.start = start};
    size_t behind = rng_below(r, 2) ? rng_below(r, 400) : 0;
    unsigned char *memory = take(start + bytes + behind);
    memset(memory, 0xff, start + bytes + behind);
    memcpy(memory + start, stream, bytes);
    cuda_reading d = {
        .shape = t->spec.shape, .dtype = trip_output_dtype(t), .params = &p, .workspace = some_workspace(b, t, &p, r)};
    if (rng_below(r, 2))
        d.result = &result;
    else
        d.start = &start;
    cuda_shuffle(rng_below(r, 2) ? rng_next(r) | 1 : 0);
    comet_status status = cuda_decompress_from(&d, memory, start + bytes + behind, patterns);
    cuda_shuffle(0);
    free(memory);
    if (status != COMET_OK || d.word != COMET_OK)
        return failure_set(f, "comet_cuda_decompress: %s, on the device %s", comet_status_string(status),
                           comet_status_string((comet_status)d.word));
    return 1;
}

/* What did not fit says so, and reading it says so too. */
static int check_too_small(const backend *b, const trip *t, rng *r, size_t capacity, failure *f) {
    cuda_place place;
    cuda_written w = {.memory = NULL};
    void *patterns = NULL;
    int good = compress_at(b, t, r, capacity, &place, &w, f);
    if (good) {
        cuda_reading d = {
            .shape = t->spec.shape, .dtype = trip_output_dtype(t), .params = &t->params, .result = &w.result};
        comet_status status = cuda_decompress_from(&d, w.memory, place.capacity, &patterns);
        if (w.result.status != COMET_ERROR_CAPACITY || w.result.end != place.start || w.result.start != place.start)
            good = failure_set(f, "capacity of %zu: %s, start %llu, end %llu", capacity,
                               comet_status_string((comet_status)w.result.status), (unsigned long long)w.result.start,
                               (unsigned long long)w.result.end);
        else if (status != COMET_OK || d.word != COMET_ERROR_CAPACITY)
            good = failure_set(f, "decompressing what did not fit: %s, on the device %s", comet_status_string(status),
                               comet_status_string((comet_status)d.word));
        else if (!cuda_is_poison(patterns, trip_output_bytes(t)))
            good = failure_set(f, "decompressing what did not fit wrote to the tensor");
    }
    free(patterns);
    free(w.memory);
    return good;
}

static int device_check_capacity(const backend *b, const trip *t, rng *r, const trip_stream *reference, failure *f) {
    cuda_place place;
    cuda_written w = {.memory = NULL};
    trip_stream s = {.bytes = NULL};
    size_t bytes = 0;
    int good = device_compress(b, t, r, &s, f);
    bytes = s.stored_bytes;
    trip_stream_free(&s);
    good = good && compress_at(b, t, r, bytes, &place, &w, f) && result_is_right(&w, &place, f) &&
           take_stream(t, &w, &s, f);
    if (good && (s.result.bytes != reference->result.bytes || memcmp(s.bytes, reference->bytes, s.result.bytes) != 0))
        good = failure_set(f, "another stream in a slot of just its size");
    trip_stream_free(&s);
    free(w.memory);
    return good && check_too_small(b, t, r, bytes - 1, f) && check_too_small(b, t, r, rng_below(r, bytes), f) &&
           check_too_small(b, t, r, rng_below(r, 200) % bytes, f);
}

backend_list cuda_backend_new(int64_t most) {
    comet_codec_params p = COMET_CODEC_PARAMS_INIT;
    test_shape shape = {COMET_FLAT, 1, {most}};
    comet_tensor view = cuda_view(&shape, COMET_F32, NULL);
    cuda_block *shared = take(sizeof *shared);
    *shared = cuda_workspace_new(&view, &p, NULL);
    backend_list list = {.count = 1, .dtypes = COMET_BF16 + 1};
    list.all[0] = (backend){.name = "cuda",
                            .pool = -1,
                            .context = shared,
                            .compress = device_compress,
                            .decompress = device_decompress,
                            .check_capacity = device_check_capacity};
    return list;
}

void cuda_backend_free(backend_list *list) {
    cuda_workspace_free(list->all[0].context);
    free(list->all[0].context);
}
