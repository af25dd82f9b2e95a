/* SPDX-License-Identifier: Apache-2.0 */
/* The comet command: finds the sub-command and runs it. */
#include <stdio.h>
#include <string.h>

#include "base/text/nearest.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "comet/version.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"demo", command_demo},       {"train", command_train},       {"plan", command_plan},
    {"compare", command_compare}, {"compress", command_compress}, {"decompress", command_decompress},
    {"inspect", command_inspect}, {"bench", command_bench},       {"assess", command_assess},
    {"sweep", command_sweep},     {"evaluate", command_evaluate}, {"predict", command_predict},
};

static const char help[] =
    "Usage: comet COMMAND [OPTION...]\n"
    "\n"
    "Keeps the activations that training saves small, with a strict bound on the error of every value.\n"
    "\n"
    "Commands:\n"
    "  demo          trains a small network, uncompressed and compressed: what this is about, in two minutes\n"
    "  train         trains a network on a data set, its saved activations held compressed\n"
    "  evaluate      how well a trained network does: accuracy of each class, what is taken for what\n"
    "  predict       what a trained network sees in images\n"
    "  plan          what training a network would take, before anything is trained\n"
    "  compare       variants of a training side by side: accuracy, memory, time\n"
    "  assess        gradient errors as the theory predicts them beside what they are, for your network and data\n"
    "  sweep         what an error in one layer's gradient, or in what it saves, costs in accuracy\n"
    "  compress      tensors (.npy, .npz, raw) to Comet streams\n"
    "  decompress    and back\n"
    "  inspect       what is in a file of streams or tensors\n"
    "  bench codec   ratio, error and speed of the codecs, on your tensors or on built-in ones\n"
    "\n"
    "  comet COMMAND --help says more, with examples.  --version prints the version.\n"
    "\n"
    "Examples:\n"
    "  comet demo\n"
    "  comet train --model resnet18 --data cifar10:DIR --codec eb --memory 1GiB\n"
    "  comet compare --model resnet8 --variants none,eb,pool:2 --seeds 3\n"
    "  comet compress --error-rel 0.1 conv1.npy -o conv1.comet\n"
    "\n"
    "Exit codes: 0 done, 1 failed (a file is missing, damaged, ...), 2 used wrongly; 128 and the signal's number if a\n"
    "training was stopped: Ctrl-C 130, SIGTERM 143, SIGHUP 129.\n";

static const char *name_at(const void *context, int index) {
    (void)context;
    return (size_t)index < sizeof commands / sizeof *commands ? commands[index].name : NULL;
}

static int run_command(int argc, char **argv) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        if (strcmp(argv[0], commands[i].name) == 0) {
            message_command(commands[i].name);
            return commands[i].run(argc, argv);
        }
    const char *meant = comet_nearest(argv[0], name_at, NULL);
    return meant ? misuse("unknown command '%s' (did you mean %s?)", argv[0], meant)
                 : misuse("unknown command '%s'", argv[0]);
}

/* Output that did not arrive is a failure too: a full disk, a closed pipe. */
static int finish(int answer) {
    if ((fflush(stdout) != 0 || ferror(stdout)) && answer == DONE)
        return fail("cannot write to standard output");
    return answer;
}

int main(int argc, char **argv) {
    if (argc < 2)
        return misuse("no command given");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(help, stdout);
        return finish(DONE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("comet %s, stream format %d\n", comet_version_string(), COMET_FORMAT_VERSION);
        return finish(DONE);
    }
    return finish(run_command(argc - 1, argv + 1));
}
