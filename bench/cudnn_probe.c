// SPDX-License-Identifier: Apache-2.0
// Which graphs of cuDNN 9 around convolution and batch norm can be had at the shapes of ResNet-50 (batch 128, 224 px,
// NHWC) in fp32 (TF32), bf16 and fp16, and what they take: one line for each type, shape and pattern. It says what our
// own kernels have to do themselves. cuDNN's graph API from C; no part of the library or of its build.
//
// Compile (cuDNN of the toolkit, of the system or of Python's packages; it needs no more than libcudnn.so.9):
//   h=$(find /usr /opt -name cudnn_graph.h 2>/dev/null | head -1); h=${h%/*}
//   l=$(find /usr /opt -name libcudnn.so.9 2>/dev/null | head -1); l=${l%/*}
//   nvcc -O2 -I"$h" bench/cudnn_probe.c -o cudnn_probe -L"$l" -l:libcudnn.so.9 -Xlinker -rpath="$l" -Xcompiler -pthread
// Run:
//   ./cudnn_probe [--json FILE] [--types fp32,bf16,fp16] [--patterns fwd,...] [--shapes PART,...] [--plans N]
//                 [--threads N] [--offline]
//   --shapes takes parts of names: `--shapes @56,7x7`. --plans: how many plans of a graph are timed (3). --offline asks
//   cuDNN for plans for an H200 without having one: what finalises, engines and workspace, no times (cuDNN 9.11).
// It exits with 77 where there is no GPU.
//
// Columns: configurations that heuristics A and the fall-back offer; plans that finalised of those tried; microseconds
// (median of 10) of the best plan and of the best deterministic one; a copy of the largest tensor; the parts: the
// convolution or batch norm alone and copies for the passes over memory that the fusion saves; parts / best; megabytes
// of workspace; engine; notes: T tensor cores (of fp32: TF32), D inputs rounded, R reduced-precision sums, N not
// deterministic, W Winograd, F FFT, c compiled at run time, g native CUDA graph, h tensors within the graph are of the
// 16-bit type, ! launches came too late, so that the time holds gaps.
#define _GNU_SOURCE
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cudnn_patterns.h"

enum { most_tries = 8, most_jobs = 2048, most_threads = 64, repetitions = 10, watchdog_seconds = 120 };
static const size_t arena_bytes = (size_t)4 << 30, workspace_bytes = (size_t)2 << 30, alignment = 1024;

// ---- what is asked: types, shapes, patterns ----

static const struct {
    const char *name;
    cudnnDataType_t type;
    int bytes;
} types[] = {{"fp32", CUDNN_DATA_FLOAT, 4}, {"bf16", CUDNN_DATA_BFLOAT16, 2}, {"fp16", CUDNN_DATA_HALF, 2}};

// The 53 convolutions of the network; the stem with padded channels is asked beside them.
static const struct shape shapes[] = {
    {7, 2, 3, 64, 224, 1, true},     {7, 2, 4, 64, 224, 0, false},    {7, 2, 8, 64, 224, 0, false},
    {1, 1, 64, 64, 56, 1, true},     {3, 1, 64, 64, 56, 3, false},    {1, 1, 64, 256, 56, 4, true},
    {1, 1, 256, 64, 56, 2, false},   {1, 1, 256, 128, 56, 1, true},   {3, 2, 128, 128, 56, 1, true},
    {1, 2, 256, 512, 56, 1, true},   {1, 1, 128, 512, 28, 4, false},  {1, 1, 512, 128, 28, 3, false},
    {3, 1, 128, 128, 28, 3, false},  {1, 1, 512, 256, 28, 1, true},   {3, 2, 256, 256, 28, 1, true},
    {1, 2, 512, 1024, 28, 1, true},  {1, 1, 256, 1024, 14, 6, false}, {1, 1, 1024, 256, 14, 5, false},
    {3, 1, 256, 256, 14, 5, false},  {1, 1, 1024, 512, 14, 1, true},  {3, 2, 512, 512, 14, 1, true},
    {1, 2, 1024, 2048, 14, 1, true}, {1, 1, 512, 2048, 7, 3, false},  {1, 1, 2048, 512, 7, 2, false},
    {3, 1, 512, 512, 7, 2, false},
};
enum { type_count = sizeof types / sizeof types[0], shape_count = sizeof shapes / sizeof shapes[0] };

static const char *shape_name(const struct shape *s, char name[32]) {
    snprintf(name, 32, "%dx%d%s-%d-%d@%d", s->kernel, s->kernel, s->stride == 2 ? "s2" : "", s->c, s->k, s->size);
    return name;
}

// ---- jobs and their results: in memory that parent and child share, since a graph may bring the child down ----

typedef enum { untouched, building, running, done, crashed } state;

typedef struct {
    int type, shape, pattern;
    _Atomic int state;
    int configs[2], tried, finalised, ran;
    bool narrow, late; // tensors within the graph are of the type of the others; launches held up the best time
    int64_t workspace, engine;
    unsigned notes, behaviour;
    double best, deterministic, copy, parts; // microseconds; 0: not known
    char message[160];
} job;

typedef struct {
    int count;
    double copies[type_count][shape_count][2]; // of the tensors before and after the convolution
    job jobs[most_jobs];
} board;

static board *all;
static struct {
    const char *json, *types, *patterns, *shapes;
    int plans, threads;
    bool offline;
} options = {NULL, NULL, NULL, NULL, 3, 0, false};

// Whether a list `a,b,c` names it; of shapes, a part of the name is enough. No list names all.
static bool listed(const char *list, const char *name, bool part) {
    for (const char *item = list; item; item = strchr(item, ',') ? strchr(item, ',') + 1 : NULL) {
        char text[64];
        snprintf(text, sizeof text, "%.*s", (int)strcspn(item, ","), item);
        if (part ? strstr(name, text) != NULL : strcmp(name, text) == 0)
            return true;
    }
    return !list;
}

static void list_jobs(void) {
    char name[32];
    for (int t = 0; t < type_count; t++)
        for (int s = 0; s < shape_count; s++)
            for (int p = 0; p < pattern_count; p++) {
                if (patterns[p].where == norms ? !shapes[s].norm : patterns[p].where == past_stem && shapes[s].c < 16)
                    continue;
                if (listed(options.types, types[t].name, false) && listed(options.patterns, patterns[p].name, false) &&
                    listed(options.shapes, shape_name(&shapes[s], name), true) && all->count < most_jobs)
                    all->jobs[all->count++] = (job){.type = t, .shape = s, .pattern = p};
            }
}

// ---- building: in threads, because engines that compile take a second for each plan ----

typedef struct {
    graph graph;
    plan_list list;
} built;

typedef struct {
    int first, last;
    _Atomic int next;
    target to;
    built *graphs; // of job `first` and on
} build_queue;

// An H200, as cuDNN writes the properties of a device.
static const char device_properties[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150000000000,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\"}";

static bool open_target(target *to) {
    *to = (target){0};
    if (!options.offline)
        return cudnnCreate(&to->handle) == CUDNN_STATUS_SUCCESS;
    return cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &to->properties) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendSetAttribute(to->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                    (int64_t)strlen(device_properties), device_properties) == CUDNN_STATUS_SUCCESS &&
           cudnnBackendFinalize(to->properties) == CUDNN_STATUS_SUCCESS;
}

// Tensors within a graph are fp32 first; where no plan comes of that, of the type of the other tensors.
static void build(job *j, built *b, target to) {
    const cudnnDataType_t type = types[j->type].type;
    for (int narrow = 0; narrow <= (type != single); narrow++) {
        b->graph = (graph){.shape = &shapes[j->shape], .type = type, .inner_type = narrow ? type : single};
        patterns[j->pattern].build(&b->graph);
        plan_graph(&b->graph, to, options.plans, most_tries, &b->list);
        if (narrow == 0 || b->list.count > 0 || b->list.tried > j->tried) {
            j->narrow = narrow;
            j->tried = b->list.tried;
            j->finalised = b->list.count;
            memcpy(j->configs, b->list.configs, sizeof j->configs);
            memcpy(j->message, b->list.error, sizeof j->message);
        }
        if (b->list.count > 0)
            return;
        clear(&b->graph);
    }
}

static void *build_some(void *argument) {
    build_queue *queue = argument;
    for (int i; (i = atomic_fetch_add(&queue->next, 1)) < queue->last;) {
        job *j = &all->jobs[i];
        if (j->state != untouched)
            continue;
        j->state = building;
        build(j, &queue->graphs[i - queue->first], queue->to);
        j->state = untouched;
        alarm(watchdog_seconds);
    }
    return NULL;
}

static void build_all(build_queue *queue, int threads) {
    pthread_t handles[most_threads];
    int started = 0;
    while (started < threads && pthread_create(&handles[started], NULL, build_some, queue) == 0)
        started++;
    for (int i = 0; i < started; i++)
        pthread_join(handles[i], NULL);
}

// ---- timing ----

typedef struct {
    target to;
    cudaStream_t stream;
    cudaEvent_t begin[repetitions], end[repetitions];
    char *arenas[2], *workspace; // inputs, which stay as they are, and outputs
    size_t cursors[2];
    bool late; // the last measurement began before all of it was queued
} device;

// Memory goes round the arena, so that no repetition finds what another left in the L2 cache.
static void *place_in(device *d, int arena, size_t bytes) {
    bytes = (bytes + alignment - 1) / alignment * alignment;
    if (d->cursors[arena] + bytes > arena_bytes)
        d->cursors[arena] = 0;
    void *at = d->arenas[arena] + d->cursors[arena];
    d->cursors[arena] += bytes;
    return at;
}

static bool open_device(device *d) {
    bool ok = cudaStreamCreate(&d->stream) == cudaSuccess &&
              cudnnSetStream(d->to.handle, d->stream) == CUDNN_STATUS_SUCCESS &&
              cudaMalloc((void **)&d->arenas[0], arena_bytes) == cudaSuccess &&
              cudaMalloc((void **)&d->arenas[1], arena_bytes) == cudaSuccess &&
              cudaMalloc((void **)&d->workspace, workspace_bytes) == cudaSuccess;
    for (int i = 0; i < repetitions && ok; i++)
        ok = cudaEventCreate(&d->begin[i]) == cudaSuccess && cudaEventCreate(&d->end[i]) == cudaSuccess;
    return ok;
}

// Inputs are random in (-1, 1): how much power a kernel draws, and so its clock, depends on the data.
static bool fill_inputs(device *d, int type) {
    const size_t bytes = (size_t)64 << 20;
    unsigned char *values = malloc(bytes);
    unsigned random = 1;
    for (size_t i = 0; values && i < bytes / 4; i++) {
        random = random * 1664525u + 1013904223u;
        const float number = (float)(int)random * 0x1p-31f;
        const unsigned *bits = (const void *)&(const float[1]){number};
        // Two of 16 bits, or one of 32. Of fp16, exponents are those below 1.
        const unsigned half = (*bits >> 16 & 0x8000u) | (random >> 9 & 0x3bffu), brain = *bits >> 16;
        ((unsigned *)values)[i] = type == 0 ? *bits : type == 1 ? brain | brain << 16 : half | (half ^ 0x8155u) << 16;
    }
    cudaError_t status = values ? cudaSuccess : cudaErrorMemoryAllocation;
    for (size_t at = 0; at < arena_bytes && status == cudaSuccess; at += bytes)
        status = at == 0 ? cudaMemcpy(d->arenas[0], values, bytes, cudaMemcpyHostToDevice)
                         : cudaMemcpy(d->arenas[0] + at, d->arenas[0], bytes, cudaMemcpyDeviceToDevice);
    free(values);
    return status == cudaSuccess;
}

static cudnnBackendDescriptor_t variant_pack(device *d, const graph *g) {
    static float small = 1e-3f; // does for the epsilon, for the momentum and, any half of it, for the bound of a mask
    cudnnBackendDescriptor_t pack = NULL;
    int64_t names[most_tensors];
    void *pointers[most_tensors];
    int count = 0;
    for (int i = 0; i < g->tensor_count; i++)
        if (g->roles[i] != inner && g->used[i]) {
            names[count] = i + 1;
            pointers[count++] =
                g->roles[i] == scalar ? (void *)&small : place_in(d, g->roles[i] == output, g->bytes[i]);
        }
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack) != CUDNN_STATUS_SUCCESS)
        return NULL;
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names);
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers);
    cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &d->workspace);
    cudnnBackendFinalize(pack);
    return pack;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

// Microseconds, the median of `count` runs: of a plan, or of a copy of `bytes` where there is none; below 0 where it
// failed. A long copy goes first, so that all is queued by the time the first run begins and no launch is waited for.
static double measure(device *d, const graph *g, const plan *p, size_t bytes, int count, char error[160]) {
    cudnnBackendDescriptor_t packs[repetitions] = {0};
    double times[repetitions];
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < count && p; i++)
        packs[i] = variant_pack(d, g);
    if (count > 1)
        cudaMemcpyAsync(d->arenas[1], d->arenas[0], arena_bytes, cudaMemcpyDeviceToDevice, d->stream);
    for (int i = 0; i < count && status == CUDNN_STATUS_SUCCESS; i++) {
        void *from = p ? NULL : place_in(d, 0, bytes), *to = p ? NULL : place_in(d, 1, bytes);
        cudaEventRecord(d->begin[i], d->stream);
        if (p)
            status = cudnnBackendExecute(d->to.handle, p->plan, packs[i]);
        else
            cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, d->stream);
        cudaEventRecord(d->end[i], d->stream);
    }
    d->late = cudaEventQuery(d->begin[0]) == cudaSuccess;
    if (status != CUDNN_STATUS_SUCCESS)
        describe(error, "execute:", status);
    const cudaError_t failed = cudaStreamSynchronize(d->stream);
    if (failed != cudaSuccess)
        snprintf(error, 160, "execute: %s", cudaGetErrorString(failed));
    for (int i = 0; i < count; i++) {
        float milliseconds = 0;
        cudaEventElapsedTime(&milliseconds, d->begin[i], d->end[i]);
        times[i] = milliseconds * 1000.0;
        if (packs[i])
            cudnnBackendDestroyDescriptor(packs[i]);
    }
    qsort(times, (size_t)count, sizeof times[0], by_size);
    cudaGetLastError(); // or the next one would be blamed for it
    return status != CUDNN_STATUS_SUCCESS || failed != cudaSuccess ? -1
                                                                   : (times[(count - 1) / 2] + times[count / 2]) / 2;
}

static void time_copies(device *d, int type, int shape) {
    const struct shape *s = &shapes[shape];
    const int size = output_size(s), width = types[type].bytes;
    const size_t bytes[2] = {(size_t)batch * s->c * s->size * s->size * width,
                             (size_t)batch * s->k * size * size * width};
    char error[160];
    for (int i = 0; i < 2 && all->copies[type][shape][i] <= 0; i++)
        all->copies[type][shape][i] = measure(d, NULL, NULL, bytes[i], repetitions, error);
}

static void keep(job *j, const plan *p, double time, bool late) {
    j->ran++;
    if (!(p->notes >> CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC & 1) && (j->deterministic <= 0 || time < j->deterministic))
        j->deterministic = time;
    if (j->best > 0 && time >= j->best)
        return;
    j->best = time;
    j->late = late;
    j->workspace = p->workspace;
    j->engine = p->engine;
    j->notes = p->notes;
    j->behaviour = p->behaviour;
}

// A first run loads the kernels; one more says whether ten are worth it. False where the device is lost.
static bool time_plans(device *d, job *j, const built *b) {
    for (int i = 0; i < b->list.count; i++) {
        const plan *p = &b->list.plans[i];
        if (p->workspace > (int64_t)workspace_bytes) {
            snprintf(j->message, sizeof j->message, "workspace of %lld MB", (long long)p->workspace >> 20);
            continue;
        }
        double time = measure(d, &b->graph, p, 0, 1, j->message);
        if (time >= 0)
            time = measure(d, &b->graph, p, 0, 1, j->message);
        if (time >= 0 && (j->best <= 0 || time < 3 * j->best + 50))
            time = measure(d, &b->graph, p, 0, repetitions, j->message);
        if (time >= 0)
            keep(j, p, time, d->late);
        else if (cudaDeviceSynchronize() != cudaSuccess)
            return false;
    }
    return true;
}

static void compare(job *j) {
    const double *copies = all->copies[j->type][j->shape];
    const bool around = patterns[j->pattern].where != norms;
    j->copy = around && copies[0] > copies[1] ? copies[0] : copies[1];
    for (int i = 0; i < all->count; i++) {
        const job *alone = &all->jobs[i];
        if (alone->type == j->type && alone->shape == j->shape && alone->pattern == patterns[j->pattern].alone &&
            alone->best > 0)
            j->parts = alone->best + patterns[j->pattern].copies_before * copies[0] +
                       patterns[j->pattern].copies_after * copies[1];
    }
}

// ---- what comes out ----

static const char *notes_text(const job *j, char text[16]) {
    static const char numerical[] = "TDRFNWWWW";
    int at = 0;
    for (int i = 0; numerical[i]; i++)
        if (j->notes >> i & 1)
            text[at++] = numerical[i];
    if (j->behaviour >> CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION & 1)
        text[at++] = 'c';
    if (j->behaviour >> CUDNN_BEHAVIOR_NOTE_SUPPORTS_CUDA_GRAPH_NATIVE_API & 1)
        text[at++] = 'g';
    if (j->narrow)
        text[at++] = 'h';
    if (j->late)
        text[at++] = '!';
    text[at] = 0;
    return text;
}

static const char *number(double value, char text[16]) {
    snprintf(text, 16, value <= 0 ? "-" : value < 10 ? "%.2f" : "%.1f", value);
    return text;
}

static void print_job(const job *j) {
    char shape[32], text[6][16];
    printf("%-4s %-18s %-16s %2d+%-2d %d/%d", types[j->type].name, shape_name(&shapes[j->shape], shape),
           patterns[j->pattern].name, j->configs[0], j->configs[1], j->finalised, j->tried);
    if (j->state == crashed || (j->finalised == 0 || (!options.offline && j->ran == 0)))
        printf("  %s%.64s\n", j->state == crashed ? "CRASHED " : "", j->message);
    else
        printf(" %7s %7s %7s %7s %5s %6.1f %3lld %s\n", number(j->best, text[0]), number(j->deterministic, text[1]),
               number(j->copy, text[2]), number(j->parts, text[3]),
               number(j->best > 0 ? j->parts / j->best : 0, text[5]), (double)j->workspace / 1e6, (long long)j->engine,
               notes_text(j, text[4]));
    fflush(stdout);
}

// The time of a pattern in a step of the network, where it can be had at every shape it is asked at.
static void print_totals(int type) {
    for (int p = 0; p < pattern_count; p++) {
        int asked_at = 0, had = 0;
        double total = 0, parts = 0;
        for (int i = 0; i < all->count; i++) {
            const job *j = &all->jobs[i];
            if (j->type != type || j->pattern != p)
                continue;
            int times = shapes[j->shape].times;
            for (int s = 0; patterns[p].where == norms && s < shape_count; s++)
                if (s != j->shape && shapes[s].k == shapes[j->shape].k &&
                    output_size(&shapes[s]) == output_size(&shapes[j->shape]))
                    times += shapes[s].times;
            asked_at++;
            had += j->finalised > 0;
            total += times * j->best / 1000;
            parts += times * (j->best > 0 ? j->parts : 0) / 1000;
        }
        if (asked_at > 0)
            printf("# %s %-16s %2d of %2d shapes; %6.2f ms for a step at those (their parts %.2f ms)\n",
                   types[type].name, patterns[p].name, had, asked_at, total, parts);
    }
}

static void write_json(void) {
    FILE *file = options.json ? fopen(options.json, "w") : NULL;
    char shape[32], notes[16];
    for (int i = 0; file && i < all->count; i++) {
        job j = all->jobs[i];
        for (char *at = j.message; *at; at++)
            *at = *at == '"' || *at == '\\' || (unsigned char)*at < ' ' ? '\'' : *at;
        fprintf(
            file,
            "%s{\"type\":\"%s\",\"shape\":\"%s\",\"times\":%d,\"pattern\":\"%s\",\"state\":\"%s\",\"configs_a\":%d,"
            "\"configs_fallback\":%d,\"tried\":%d,\"finalised\":%d,\"ran\":%d,\"us\":%.2f,\"us_deterministic\":%.2f,"
            "\"us_copy\":%.2f,\"us_parts\":%.2f,\"workspace\":%lld,\"engine\":%lld,\"notes\":\"%s\",\"message\":\"%"
            "s\"}",
            i ? ",\n" : "[", types[j.type].name, shape_name(&shapes[j.shape], shape), shapes[j.shape].times,
            patterns[j.pattern].name,
            j.state == done      ? "done"
            : j.state == crashed ? "crashed"
                                 : "not asked",
            j.configs[0], j.configs[1], j.tried, j.finalised, j.ran, j.best, j.deterministic, j.copy, j.parts,
            (long long)j.workspace, (long long)j.engine, notes_text(&j, notes), j.message);
    }
    if (file) {
        fprintf(file, "]\n");
        fclose(file);
    }
}

// ---- the child that works and the parent that watches ----

enum { no_device = 77, broken = 1, device_lost = 3 };

static bool run_job(device *d, job *j, built *b) {
    bool alive = true;
    j->state = running;
    alarm(watchdog_seconds);
    if (options.offline && b->list.count > 0)
        keep(j, &b->list.plans[0], 0, false);
    if (!options.offline) {
        time_copies(d, j->type, j->shape);
        alive = time_plans(d, j, b);
        compare(j);
    }
    if (!alive)
        return false;
    clear_plans(&b->list);
    clear(&b->graph);
    j->state = done;
    print_job(j);
    return true;
}

// All jobs of one type that are not done: built first, then timed with nothing else going on.
static int work(int first, int last, int threads) {
    device d = {0};
    build_queue queue = {first, last, first, {0}, calloc((size_t)(last - first), sizeof(built))};
    if (!open_target(&d.to)) {
        char error[160];
        describe(error, "cudnn_probe: cuDNN finds no device:", CUDNN_STATUS_NOT_INITIALIZED);
        printf("%s\n", error);
        fflush(stdout);
        return no_device;
    }
    if (!queue.graphs || (!options.offline && (!open_device(&d) || !fill_inputs(&d, all->jobs[first].type)))) {
        printf("cudnn_probe: not enough memory\n");
        fflush(stdout);
        return broken;
    }
    printf("# cuDNN %zu, %s, batch %d: building %d graphs in %d threads\n", cudnnGetVersion(),
           types[all->jobs[first].type].name, batch, last - first, threads);
    printf("%-4s %-18s %-16s %5s %3s %7s %7s %7s %7s %5s %6s %3s %s\n", "type", "shape", "pattern", "cfgs", "ok", "us",
           "det us", "copy", "parts", "gain", "ws MB", "eng", "notes");
    fflush(stdout);
    queue.to = d.to;
    for (int i = first; i < last; i++)
        if (all->jobs[i].state == building) // when the child before this one came down
            all->jobs[i].state = untouched;
    build_all(&queue, threads);
    for (int i = first; i < last; i++)
        if (all->jobs[i].state == untouched && !run_job(&d, &all->jobs[i], &queue.graphs[i - first]))
            return device_lost;
    return 0;
}

static bool blame(int first, int last, state what) {
    bool found = false;
    for (int i = first; i < last; i++)
        if (all->jobs[i].state == (int)what) {
            all->jobs[i].state = crashed;
            print_job(&all->jobs[i]);
            found = true;
        }
    return found;
}

// A graph that brings the child down is marked, and the rest goes on in a new one. Where it came down while several
// graphs were being built, they are built one at a time to see which it was.
static int run_type(int first, int last) {
    for (bool one_by_one = false;;) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0)
            _exit(work(first, last, one_by_one ? 1 : options.threads));
        if (child < 0 || waitpid(child, &status, 0) < 0)
            return broken;
        if (WIFEXITED(status) && WEXITSTATUS(status) != device_lost)
            return WEXITSTATUS(status);
        if (blame(first, last, running) || (one_by_one && blame(first, last, building)))
            one_by_one = false;
        else if (one_by_one)
            return broken;
        else
            one_by_one = true;
    }
}

static bool parse(int count, char **arguments) {
    for (int i = 1; i < count; i++) {
        const char *name = arguments[i], *given = i + 1 < count ? arguments[i + 1] : NULL;
        if (strcmp(name, "--offline") == 0) {
            options.offline = true;
            continue;
        }
        if (!given)
            return false;
        i++;
        if (strcmp(name, "--json") == 0)
            options.json = given;
        else if (strcmp(name, "--types") == 0)
            options.types = given;
        else if (strcmp(name, "--patterns") == 0)
            options.patterns = given;
        else if (strcmp(name, "--shapes") == 0)
            options.shapes = given;
        else if (strcmp(name, "--plans") == 0)
            options.plans = atoi(given);
        else if (strcmp(name, "--threads") == 0)
            options.threads = atoi(given);
        else
            return false;
    }
    if (options.threads == 0)
        options.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    options.threads = options.threads > most_threads ? most_threads : options.threads;
    return options.threads > 0 && options.plans > 0 && options.plans <= most_plans;
}

int main(int count, char **arguments) {
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || !parse(count, arguments)) {
        fprintf(stderr,
                "usage: cudnn_probe [--json FILE] [--types LIST] [--patterns LIST] [--shapes LIST] [--plans 1-8] "
                "[--threads N] [--offline]\n");
        return 2;
    }
    list_jobs();
    int status = 0;
    for (int first = 0, last; first < all->count && status == 0; first = last) {
        for (last = first; last < all->count && all->jobs[last].type == all->jobs[first].type;)
            last++;
        status = run_type(first, last);
        write_json();
        if (status == 0)
            print_totals(all->jobs[first].type);
    }
    return status;
}
