/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/cublaslt/cublaslt_library.h"

enum { LEAST_VERSION = 120000 };

#define FUNCTION(member, name) COMET_LIBRARY_SYMBOL(comet_cublaslt_functions, member, name)

static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12", NULL};

static const comet_library_symbol symbols[] = {
    FUNCTION(version, "cublasLtGetVersion"),
    FUNCTION(status_string, "cublasLtGetStatusString"),
    FUNCTION(create, "cublasLtCreate"),
    FUNCTION(destroy, "cublasLtDestroy"),
    FUNCTION(matmul, "cublasLtMatmul"),
    FUNCTION(heuristic, "cublasLtMatmulAlgoGetHeuristic"),
    FUNCTION(operation_make, "cublasLtMatmulDescCreate"),
    FUNCTION(operation_free, "cublasLtMatmulDescDestroy"),
    FUNCTION(operation_set, "cublasLtMatmulDescSetAttribute"),
    FUNCTION(layout_make, "cublasLtMatrixLayoutCreate"),
    FUNCTION(layout_free, "cublasLtMatrixLayoutDestroy"),
    FUNCTION(preference_make, "cublasLtMatmulPreferenceCreate"),
    FUNCTION(preference_free, "cublasLtMatmulPreferenceDestroy"),
    FUNCTION(preference_set, "cublasLtMatmulPreferenceSetAttribute"),
};

static const comet_library_wanted wanted = {
    .product = "cuBLASLt 12 or 13", .files = files, .symbols = symbols, .count = sizeof symbols / sizeof *symbols};

comet_status comet_cublaslt_library_open(const comet_library_loader *loader, comet_cublaslt_library *library,
                                         comet_message *message) {
    *library = (comet_cublaslt_library){.library = {.handle = NULL}};
    comet_status status = comet_library_open(loader, &wanted, &library->call, &library->library, message);
    if (status != COMET_OK)
        return status;
    const size_t version = library->call.version();
    if (version >= LEAST_VERSION)
        return COMET_OK;
    comet_cublaslt_library_close(library);
    return comet_library_refuse(message,
                                "cuBLASLt %zu.%zu.%zu was found, and 12.0.0 or later is needed: install cuBLAS 12",
                                version / 10000, version / 100 % 100, version % 100);
}

void comet_cublaslt_library_close(comet_cublaslt_library *library) {
    comet_library_close(&library->library);
}
