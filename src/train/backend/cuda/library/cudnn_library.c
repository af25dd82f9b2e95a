/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/library/cudnn_library.h"

enum { LEAST_VERSION = 90000 };

#define FUNCTION(member, name) COMET_LIBRARY_SYMBOL(comet_cudnn_functions, member, name)

static const char *const files[] = {"libcudnn.so.9", NULL};

static const comet_library_symbol symbols[] = {
    FUNCTION(version, "cudnnGetVersion"),
    FUNCTION(error_string, "cudnnGetErrorString"),
    FUNCTION(last_error, "cudnnGetLastErrorString"),
    FUNCTION(create, "cudnnCreate"),
    FUNCTION(destroy, "cudnnDestroy"),
    FUNCTION(set_stream, "cudnnSetStream"),
    FUNCTION(make, "cudnnBackendCreateDescriptor"),
    FUNCTION(unmake, "cudnnBackendDestroyDescriptor"),
    FUNCTION(finalize, "cudnnBackendFinalize"),
    FUNCTION(set, "cudnnBackendSetAttribute"),
    FUNCTION(get, "cudnnBackendGetAttribute"),
    FUNCTION(execute, "cudnnBackendExecute"),
};

static const comet_library_wanted wanted = {
    .product = "cuDNN 9", .files = files, .symbols = symbols, .count = sizeof symbols / sizeof *symbols};

/* Before 9 it was major * 1000 + minor * 100 + patch. */
static comet_status check_version(size_t version, comet_message *message) {
    if (version >= LEAST_VERSION)
        return COMET_OK;
    return comet_library_refuse(message, "cuDNN %zu.%zu.%zu was found, and 9.0.0 or later is needed: install cuDNN 9",
                                version / 1000, version / 100 % 10, version % 100);
}

comet_status comet_cudnn_library_open(const comet_library_loader *loader, comet_cudnn_library *library,
                                      comet_message *message) {
    *library = (comet_cudnn_library){.version = 0};
    comet_status status = comet_library_open(loader, &wanted, &library->call, &library->library, message);
    if (status != COMET_OK)
        return status;
    library->version = library->call.version();
    status = check_version(library->version, message);
    if (status != COMET_OK)
        comet_cudnn_library_close(library);
    return status;
}

void comet_cudnn_library_close(comet_cudnn_library *library) {
    comet_library_close(&library->library);
}
