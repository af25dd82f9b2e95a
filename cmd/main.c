/* SPDX-License-Identifier: Apache-2.0 */
/* The comet command: finds the sub-command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/manual/catalogue.h"
#include "cmd/report/command_line.h"
#include "comet/version.h"

static void print_help(void) {
    fputs("Usage: comet COMMAND [OPTION...]             comet COMMAND --help says more\n"
          "\n"
          "Trains convolutional networks with their saved activations held compressed.\n"
          "\n"
          "Commands:\n",
          stdout);
    for (int i = 0; catalogue_at(i); i++)
        printf("  %-12s%s\n", catalogue_at(i)->name, catalogue_at(i)->summary);
    fputs("\n"
          "  comet demo\n"
          "  comet train --model resnet18 --data folder:pets --memory 1GiB\n"
          "  comet predict --from comet-resnet18-pets photo.jpg\n",
          stdout);
}

static int run_command(int argc, char **argv) {
    const catalogue_entry *entry = catalogue_find(argv[0]);
    if (entry) {
        message_command(entry->name);
        return entry->run(argc, argv);
    }
    const char *meant = catalogue_nearest(argv[0]);
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
    command_line_set(argc, argv);
    if (argc < 2)
        return misuse("no command given");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "help") == 0) {
        print_help();
        return finish(DONE);
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("comet %s, stream format %d\n", comet_version_string(), COMET_FORMAT_VERSION);
        return finish(DONE);
    }
    return finish(run_command(argc - 1, argv + 1));
}
