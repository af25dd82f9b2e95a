/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench on the emulated device, for test_bench_gpu.py: what it measures is right, how long that takes is not. */
#include <stdio.h>
#include <string.h>

#include "cmd/bench/bench.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "emulation/emulation.h"

int main(int argc, char **argv) {
    if (argc < 2 || strcmp(argv[1], "bench") != 0)
        return misuse("this is comet bench alone");
    message_command("bench");
    emulation_set_l2((size_t)1 << 10); /* calls go round over buffers of four times as much: few, then */
    int answer = bench_tensors(argc - 1, argv + 1);
    return fflush(stdout) == 0 ? answer : FAILED;
}
