/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench: of tensors, or of a network's steps. */
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/bench/step/step.h"
#include "cmd/common/command.h"

int command_bench(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "step") == 0)
        return bench_step(argc - 1, argv + 1);
    return bench_tensors(argc, argv);
}
