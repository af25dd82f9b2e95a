/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench codec --device cuda, as far as it is the same with every GPU. */
#include "cmd/bench/bench_cuda.h"

#include <stdlib.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "comet/cuda.h"

#ifdef COMET_HAVE_CUDA

int bench_cuda_check(const bench_plan *plan) {
    comet_status status = comet_cuda_check(plan->device.index);
    if (status == COMET_ERROR_NO_DEVICE)
        return fail(
            "there is no CUDA GPU number %d; --device cuda needs an NVIDIA GPU and its driver (nvidia-smi lists "
            "them); without --device the CPU is measured",
            (int)plan->device.index);
    if (status == COMET_ERROR_DRIVER)
        return fail("the NVIDIA driver is older than the CUDA that comet was built with; update the driver, or build "
                    "comet with an older CUDA toolkit");
    if (status == COMET_ERROR_UNSUPPORTED)
        return fail("GPU number %d is older than those comet was built for; build it again with its compute capability "
                    "in COMET_CUDA_ARCHS",
                    (int)plan->device.index);
    return status == COMET_OK ? DONE : fail("the GPU cannot be used: %s", comet_status_string(status));
}

int bench_cuda(const bench_plan *plan, int as_json) {
    cuda_results results = {0};
    cuda_summary summary = {0};
    if (!as_json)
        bench_cuda_print_head();
    int answer = bench_cuda_run(plan, as_json ? NULL : bench_cuda_print_result, &results);
    if (answer == DONE)
        answer = bench_cuda_summarise(&results, &summary);
    if (answer == DONE && as_json)
        bench_cuda_print_json(plan, &results, &summary);
    else if (answer == DONE)
        bench_cuda_print_summary(&results, &summary);
    if (answer == DONE && results.left_out)
        note("%zu combinations left out: on a GPU the codec does not take such tensors", results.left_out);
    free(summary.items);
    free(results.items);
    return answer;
}

#else

int bench_cuda_check(const bench_plan *plan) {
    (void)plan;
    return fail("this comet was built without CUDA; install the CUDA toolkit (nvcc) and build it again, or leave "
                "--device cuda out");
}

int bench_cuda(const bench_plan *plan, int as_json) {
    (void)as_json;
    return bench_cuda_check(plan);
}

#endif
