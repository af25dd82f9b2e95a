/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The real cuDNN without a GPU: it makes plans for one that is described to it. So our descriptors, the choice of
 * engines and saved choices are checked against the library itself, and not only against our stand-in for it. Nothing
 * is run: of each convolution the first plan that fits is taken.
 */
#include "support/assert_ok.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/backend/cuda/base/backend_cuda.h"
#include "train/backend/cuda/cudnn/cudnn.h"
#include "train/models/model.h"

enum { BATCH = 128, SIDE = 224, CLASSES = 1000 };

/* As cuDNN writes it of an H200. */
static const char properties[] =
    "{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"maxGridSize\":[2147483647,65535,65535],"
    "\"maxBlockSize\":[1024,1024,64],\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
    "\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,"
    "\"pciDeviceId\":0,\"isTccDriver\":0,\"supportCoopLaunch\":1,\"totalGlobalMem\":150000000000,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\"}";

/* ---- cuDNN with a description in the place of a handle ---- */

static comet_cudnn_functions real;
static cudnnBackendDescriptor_t described;
static size_t workspace_limit;
static int has_plan; /* of the graph that was made last */

static cudnnStatus_t create(cudnnHandle_t *handle) {
    *handle = (cudnnHandle_t)&described;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t destroy(cudnnHandle_t handle) {
    return handle == (cudnnHandle_t)&described ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
}

static cudnnStatus_t set_stream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)stream;
    return destroy(handle);
}

static cudnnStatus_t describe(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name) {
    return real.set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &described);
}

/* A second plan would only be there to be measured. */
static cudnnStatus_t set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE)
        return CUDNN_STATUS_SUCCESS;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
        return has_plan ? CUDNN_STATUS_NOT_SUPPORTED : describe(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
    if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS)
        has_plan = 0;
    const cudnnStatus_t status = real.set(descriptor, name, type, count, values);
    return status == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_ENGINEHEUR_MODE
               ? describe(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)
               : status;
}

static cudnnStatus_t get(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *values) {
    const cudnnStatus_t status = real.get(descriptor, name, type, room, count, values);
    if (status == CUDNN_STATUS_SUCCESS && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
        has_plan = (size_t) * (const int64_t *)values <= workspace_limit;
    return status;
}

/* Where the CUDA toolkit is, or where the system looks. */
static void *open_library(const char *name) {
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", COMET_CUDA_LIBRARIES, name);
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static void close_library(void *library) {
    dlclose(library);
}

static const comet_library_loader plain = {.open = open_library, .symbol = dlsym, .close = close_library};

static void *find_symbol(void *library, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } ours[] = {{"cudnnCreate", (void (*)(void))create},
                {"cudnnDestroy", (void (*)(void))destroy},
                {"cudnnSetStream", (void (*)(void))set_stream},
                {"cudnnBackendSetAttribute", (void (*)(void))set},
                {"cudnnBackendGetAttribute", (void (*)(void))get}};
    void *address = dlsym(library, name);
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
        if (strcmp(name, ours[i].name) == 0)
            memcpy(&address, &ours[i].function, sizeof address);
    return address;
}

static const comet_library_loader offline = {.open = open_library, .symbol = find_symbol, .close = close_library};

/* ---- a backend that has no more than that ---- */

static void open_backend(comet_backend_cuda *b, comet_dtype dtype, int exact, int deterministic) {
    comet_message message;
    memset(b, 0, sizeof *b);
    b->base.dtype = dtype;
    b->options = (comet_backend_cuda_options){.dtype = dtype,
                                              .exact_products = exact,
                                              .deterministic = deterministic,
                                              .workspace_bytes = COMET_CUDA_WORKSPACE,
                                              .loader = &offline};
    workspace_limit = b->options.workspace_bytes;
    if (comet_cudnn_new(b, &b->cudnn, &message) != COMET_OK)
        fail_msg("%s", message.text);
}

static comet_graph *graph_of(const char *model) {
    comet_graph *g;
    comet_message message;
    assert_ok(comet_graph_new(NULL, &g));
    if (comet_model_build(g, model, CLASSES, SIDE, SIDE, 3, &message) != COMET_OK)
        fail_msg("%s: %s", model, message.text);
    return g;
}

/* Plans for all convolutions of a network. */
static void prepare_all(comet_backend_cuda *b, const char *model) {
    comet_graph *g = graph_of(model);
    for (int i = 0; i < g->node_count; i++) {
        const comet_op_call call = {
            .backend = &b->base, .graph = g, .node = &g->nodes[i], .batch = BATCH, .training = 1};
        void *state = NULL;
        if (call.node->kind != COMET_OP_CONV)
            continue;
        const comet_status status = comet_cuda_conv.prepare(&call, &state);
        if (status != COMET_OK)
            fail_msg("%s, %s in %s: %s", model, call.node->name, comet_dtype_name(b->base.dtype), comet_last_error());
        assert_true(comet_cuda_conv.scratch(&(comet_op_call){.backend = call.backend,
                                                             .graph = g,
                                                             .node = call.node,
                                                             .batch = BATCH,
                                                             .training = 1,
                                                             .state = state},
                                            1) < (size_t)4 << 30);
        comet_cuda_conv.forget(state);
    }
    comet_graph_free(g);
}

static char *choices_of(const comet_cudnn *cudnn) {
    const size_t length = comet_cudnn_choices_write(cudnn, NULL, 0);
    char *text = malloc(length + 1);
    assert_non_null(text);
    assert_int_equal(comet_cudnn_choices_write(cudnn, text, length + 1), length);
    return text;
}

/* ---- tests ---- */

static const char *const networks[] = {"resnet18", "resnet50", "vgg16", "alexnet", "efficientnet_b0", "resnet8"};

/* Each convolution has a plan in every type, also where results must be reproducible or exact. */
static void test_all_have_plans(void **state) {
    static const struct {
        comet_dtype dtype;
        int exact, deterministic;
    } kinds[] = {{COMET_F32, 0, 0}, {COMET_F32, 0, 1}, {COMET_F32, 1, 1}, {COMET_BF16, 0, 0}, {COMET_F16, 0, 1}};
    (void)state;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        comet_backend_cuda b;
        open_backend(&b, kinds[k].dtype, kinds[k].exact, kinds[k].deterministic);
        for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
            prepare_all(&b, networks[i]);
        assert_true(comet_cudnn_planned(b.cudnn) > 100);
        assert_int_equal(comet_cudnn_timed(b.cudnn), 0);
        comet_cudnn_free(b.cudnn);
    }
}

/* What was saved makes the same plans: same engines, same knobs. */
static void test_choices_are_made_again(void **state) {
    (void)state;
    comet_backend_cuda first, second;
    open_backend(&first, COMET_BF16, 0, 0);
    prepare_all(&first, "resnet50");
    char *saved = choices_of(first.cudnn);
    int lines = 0;
    for (const char *at = saved; *at; at++)
        lines += *at == '\n';
    assert_int_equal(lines, comet_cudnn_planned(first.cudnn) + 1);
    assert_non_null(strchr(saved, '=')); /* knobs were told */
    open_backend(&second, COMET_BF16, 0, 0);
    assert_ok(comet_cudnn_choices_read(second.cudnn, saved));
    prepare_all(&second, "resnet50");
    char *again = choices_of(second.cudnn);
    assert_string_equal(saved, again);
    comet_cudnn_free(first.cudnn);
    comet_cudnn_free(second.cudnn);
    free(saved);
    free(again);
}

static int describe_gpu(void) {
    return real.make(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &described) == CUDNN_STATUS_SUCCESS &&
           real.set(described, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof properties - 1,
                    properties) == CUDNN_STATUS_SUCCESS &&
           real.finalize(described) == CUDNN_STATUS_SUCCESS;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all_have_plans),
                                       cmocka_unit_test(test_choices_are_made_again)};
    comet_cudnn_library library;
    comet_message message;
    if (comet_cudnn_library_open(&plain, &library, &message) != COMET_OK) {
        printf("skipped: %s\n", message.text);
        return 77;
    }
    real = library.call;
    if (!describe_gpu()) {
        printf("skipped: cuDNN %zu makes no plans for a GPU that is described to it\n", library.version);
        return 77;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    (void)real.unmake(described);
    comet_cudnn_library_close(&library);
    return failed;
}
