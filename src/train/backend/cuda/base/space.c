/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/base/space.h"

#include <limits.h>
#include <string.h>

#include "base/fail.h"
#include "base/memory.h"
#include "codec/cuda/runtime.h"
#include "train/backend/cuda/base/space_kernels.h"
#include "train/backend/cuda/base/transfer.h"

enum { STAGE = 1 << 22 }; /* bytes that go to the host, or come from it, at once */

typedef struct cuda_space {
    comet_space base; /* first: a comet_space * is a pointer to this */
    comet_allocator allocator_copy;
    const comet_allocator *allocator;
    cudaStream_t queue;
    int device; /* the queue's */
    int *weights_stale;
    const char *watched; /* NULL: everything is */
    size_t watched_bytes;
    comet_cuda_arranged *arranged; /* sorted by address */
    size_t arranged_count, arranged_room;
    comet_cuda_record stage; /* between the host's memory and the device's */
    comet_cuda_upload table; /* of what is searched, behind the result */
    comet_cuda_record found;
} cuda_space;

static cuda_space *of(comet_space *space) {
    return (cuda_space *)space;
}

/* Which GPU is meant is a matter of the thread, and another one may call, or have asked for another GPU meanwhile. */
static comet_status choose_device(const cuda_space *s) {
    return comet_cuda_status(cudaSetDevice(s->device));
}

/* Of fewer bytes cudaMalloc gives none, and that is no address. */
static comet_status take(comet_space *space, size_t bytes, void **memory) {
    *memory = NULL;
    COMET_TRY(choose_device(of(space)));
    return comet_cuda_status(cudaMalloc(memory, bytes ? bytes : 1));
}

static void note_write(const cuda_space *s, const void *memory, size_t bytes) {
    const char *at = memory;
    if (s->weights_stale && bytes && (!s->watched || (at < s->watched + s->watched_bytes && s->watched < at + bytes)))
        *s->weights_stale = 1;
}

static comet_status await(const cuda_space *s) {
    return comet_cuda_status(cudaStreamSynchronize(s->queue));
}

/* ---- weights in another order ---- */

static const char *end_of(const comet_cuda_arranged *a) {
    return (const char *)(a->values + a->count);
}

/* The first that ends behind `memory`. */
static size_t find(const cuda_space *s, const void *memory) {
    size_t low = 0, high = s->arranged_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (end_of(&s->arranged[middle]) <= (const char *)memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether entry `i` begins before the end of some memory that begins before its own end. */
static int overlaps(const cuda_space *s, size_t i, const void *memory, size_t bytes) {
    return i < s->arranged_count && (const char *)s->arranged[i].values < (const char *)memory + bytes;
}

static void forget(cuda_space *s, const void *memory, size_t bytes) {
    const size_t first = find(s, memory);
    size_t end = first;
    while (overlaps(s, end, memory, bytes))
        end++;
    if (end > first)
        memmove(s->arranged + first, s->arranged + end, (s->arranged_count - end) * sizeof *s->arranged);
    s->arranged_count -= end - first;
}

static void give(comet_space *space, void *memory, size_t bytes) {
    if (!memory)
        return;
    forget(of(space), memory, bytes);
    (void)cudaFree(memory);
}

/* Where both orders are the same there is nothing to do. */
static comet_status arrange(comet_space *space, float *values, const int64_t shape[4]) {
    cuda_space *s = of(space);
    const int64_t taps = shape[2] * shape[3], count = shape[0] * shape[1] * taps;
    COMET_REQUIRE(shape[1] * taps <= INT32_MAX, "a convolution with more than 2^31 - 1 weights for an output");
    forget(s, values, (size_t)count * sizeof *values);
    if (shape[1] == 1 || taps == 1 || count == 0)
        return COMET_OK;
    comet_cuda_arranged *list = comet_array_reserve(s->allocator, s->arranged, s->arranged_count, s->arranged_count + 1,
                                                    &s->arranged_room, sizeof *list);
    if (!list)
        return COMET_ERROR_MEMORY;
    s->arranged = list;
    const size_t at = find(s, values);
    memmove(list + at + 1, list + at, (s->arranged_count - at) * sizeof *list);
    list[at] = (comet_cuda_arranged){values, count, (uint32_t)shape[1], (uint32_t)taps};
    s->arranged_count++;
    return COMET_OK;
}

/* ---- to the host and from it ---- */

typedef enum direction { TO_PLAIN, FROM_PLAIN } direction;

static comet_status move_plain(const cuda_space *s, direction d, void *memory, void *plain, size_t bytes) {
    return comet_cuda_status(cudaMemcpyAsync(d == TO_PLAIN ? plain : memory, d == TO_PLAIN ? memory : plain, bytes,
                                             cudaMemcpyDeviceToDevice, s->queue));
}

static comet_status move_arranged(const cuda_space *s, direction d, const comet_cuda_arranged *a, const char *memory,
                                  void *plain, size_t bytes) {
    const size_t at = (size_t)(memory - (const char *)a->values);
    COMET_REQUIRE(at % sizeof(float) == 0 && bytes % sizeof(float) == 0,
                  "a part of a value of a convolution's weights");
    const int64_t first = (int64_t)(at / sizeof(float)), count = (int64_t)(bytes / sizeof(float));
    return comet_cuda_status(d == TO_PLAIN ? comet_cuda_launch_gather(a, first, count, plain, s->queue)
                                           : comet_cuda_launch_scatter(a, first, count, plain, s->queue));
}

/* Between some memory, parts of which may be in another order, and a place of the device in the order of files. */
static comet_status reorder(const cuda_space *s, direction d, char *memory, char *plain, size_t bytes) {
    comet_status status = COMET_OK;
    for (size_t i = find(s, memory); bytes > 0 && status == COMET_OK;) {
        const comet_cuda_arranged *a = overlaps(s, i, memory, bytes) ? &s->arranged[i] : NULL;
        const int inside = a && (char *)a->values <= memory;
        const size_t left = !a ? bytes : inside ? (size_t)(end_of(a) - memory) : (size_t)((char *)a->values - memory);
        const size_t now = left < bytes ? left : bytes;
        status = inside ? move_arranged(s, d, a, memory, plain, now) : move_plain(s, d, memory, plain, now);
        i += (size_t)inside;
        memory += now;
        plain += now;
        bytes -= now;
    }
    return status;
}

static int has_arranged(const cuda_space *s, const void *memory, size_t bytes) {
    return overlaps(s, find(s, memory), memory, bytes);
}

static comet_status copy_async(const cuda_space *s, void *to, const void *from, size_t bytes,
                               enum cudaMemcpyKind kind) {
    return comet_cuda_status(cudaMemcpyAsync(to, from, bytes, kind, s->queue));
}

static comet_status write_piece(cuda_space *s, char *memory, const char *host, size_t bytes) {
    const int reordered = has_arranged(s, memory, bytes);
    char *plain = s->stage.device.memory;
    memcpy(s->stage.host, host, bytes);
    COMET_TRY(copy_async(s, reordered ? plain : memory, s->stage.host, bytes, cudaMemcpyHostToDevice));
    if (reordered)
        COMET_TRY(reorder(s, FROM_PLAIN, memory, plain, bytes));
    return await(s);
}

static comet_status write(comet_space *space, void *memory, const void *host, size_t bytes) {
    cuda_space *s = of(space);
    note_write(s, memory, bytes);
    COMET_TRY(choose_device(s));
    for (size_t at = 0; at < bytes; at += STAGE)
        COMET_TRY(
            write_piece(s, (char *)memory + at, (const char *)host + at, bytes - at < STAGE ? bytes - at : STAGE));
    return COMET_OK;
}

static comet_status read_piece(cuda_space *s, char *host, const char *memory, size_t bytes) {
    const int reordered = has_arranged(s, memory, bytes);
    char *plain = s->stage.device.memory;
    if (reordered)
        COMET_TRY(reorder(s, TO_PLAIN, (char *)memory, plain, bytes));
    COMET_TRY(copy_async(s, s->stage.host, reordered ? plain : memory, bytes, cudaMemcpyDeviceToHost));
    COMET_TRY(await(s));
    memcpy(host, s->stage.host, bytes);
    return COMET_OK;
}

static comet_status read(comet_space *space, void *host, const void *memory, size_t bytes) {
    cuda_space *s = of(space);
    COMET_TRY(choose_device(s));
    for (size_t at = 0; at < bytes; at += STAGE)
        COMET_TRY(read_piece(s, (char *)host + at, (const char *)memory + at, bytes - at < STAGE ? bytes - at : STAGE));
    return COMET_OK;
}

comet_status comet_cuda_space_plain(comet_space *space, const float *values, int64_t count, float *plain) {
    return reorder(of(space), TO_PLAIN, (char *)values, (char *)plain, (size_t)count * sizeof *values);
}

/* ---- on the device ---- */

static comet_status copy(comet_space *space, void *to, const void *from, size_t bytes) {
    note_write(of(space), to, bytes);
    COMET_TRY(choose_device(of(space)));
    return bytes ? copy_async(of(space), to, from, bytes, cudaMemcpyDeviceToDevice) : COMET_OK;
}

static comet_status fill(comet_space *space, float *values, int64_t count, float value) {
    note_write(of(space), values, (size_t)count * sizeof *values);
    COMET_TRY(choose_device(of(space)));
    return comet_cuda_status(comet_cuda_launch_fill(values, count, value, of(space)->queue));
}

/* ---- values that are not finite ---- */

/* The table begins with the result, which the search lowers. */
typedef struct search {
    int first, unused;
    comet_cuda_searched entries[];
} search;

static int64_t describe(const comet_span *spans, int count, search *q) {
    int64_t blocks = 0;
    q->first = INT_MAX;
    for (int i = 0; i < count; i++) {
        q->entries[i] = (comet_cuda_searched){spans[i].values, spans[i].count, blocks};
        blocks += (spans[i].count + COMET_CUDA_SEARCHED - 1) / COMET_CUDA_SEARCHED;
    }
    return blocks;
}

comet_status comet_cuda_space_search(comet_space *space, const comet_span *spans, int count, const int **first) {
    cuda_space *s = of(space);
    const size_t bytes = sizeof(search) + (size_t)count * sizeof(comet_cuda_searched);
    void *host;
    COMET_TRY(comet_cuda_upload_begin(&s->table, bytes, &host));
    const int64_t blocks = describe(spans, count, host);
    COMET_REQUIRE(blocks <= INT32_MAX, "more values than can be searched at once");
    COMET_TRY(comet_cuda_upload_end(&s->table, bytes, s->queue));
    search *q = s->table.device.memory;
    COMET_TRY(comet_cuda_status(comet_cuda_launch_search(q->entries, count, blocks, &q->first, s->queue)));
    *first = &q->first;
    return copy_async(s, s->found.host, &q->first, sizeof q->first, cudaMemcpyDeviceToHost);
}

int comet_cuda_space_found(const comet_space *space) {
    const int found = *(const int *)((const cuda_space *)space)->found.host;
    return found == INT_MAX ? -1 : found;
}

static comet_status find_nonfinite(comet_space *space, const comet_span *spans, int count, int *first) {
    const int *unused;
    *first = -1;
    COMET_TRY(choose_device(of(space)));
    COMET_TRY(comet_cuda_space_search(space, spans, count, &unused));
    COMET_TRY(await(of(space)));
    *first = comet_cuda_space_found(space);
    return COMET_OK;
}

/* ---- making one ---- */

static const comet_space methods = {.take = take,
                                    .give = give,
                                    .write = write,
                                    .read = read,
                                    .copy = copy,
                                    .fill = fill,
                                    .arrange = arrange,
                                    .find_nonfinite = find_nonfinite};

comet_status comet_cuda_space_new(cudaStream_t queue, const comet_allocator *allocator, int *weights_stale,
                                  comet_space **space) {
    cuda_space *s = comet_memory_take(allocator, sizeof *s);
    if (!s)
        return COMET_ERROR_MEMORY;
    memset(s, 0, sizeof *s);
    s->base = methods;
    s->allocator = comet_memory_hold(&s->allocator_copy, allocator);
    s->queue = queue;
    s->weights_stale = weights_stale;
    comet_status status = comet_cuda_status(cudaGetDevice(&s->device));
    if (status == COMET_OK)
        status = comet_cuda_record_reserve(&s->stage, STAGE);
    if (status == COMET_OK)
        status = comet_cuda_record_reserve(&s->found, sizeof(int));
    if (status != COMET_OK) {
        comet_cuda_space_free(&s->base);
        return status;
    }
    *space = &s->base;
    return COMET_OK;
}

void comet_cuda_space_free(comet_space *space) {
    if (!space)
        return;
    cuda_space *s = of(space);
    const comet_allocator *allocator = s->allocator;
    comet_cuda_record_free(&s->stage);
    comet_cuda_record_free(&s->found);
    comet_cuda_upload_free(&s->table);
    comet_memory_give(allocator, s->arranged, s->arranged_room * sizeof *s->arranged);
    comet_memory_give(allocator, s, sizeof *s);
}

void comet_cuda_space_watch(comet_space *space, const void *memory, size_t bytes) {
    of(space)->watched = memory;
    of(space)->watched_bytes = bytes;
}
