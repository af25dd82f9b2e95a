/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/manual/catalogue.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text/nearest.h"
#include "cmd/common/command.h"

static const catalogue_entry commands[] = {
    {"demo", command_demo, "a small network, uncompressed and compressed: two minutes", "codec"},
    {"train", command_train, "trains a network on a data set", NULL},
    {"evaluate", command_evaluate, "how well a trained network does, class by class", NULL},
    {"predict", command_predict, "what a trained network sees in images", NULL},
    {"look", command_look, "what trained networks have learnt, side by side", NULL},
    {"plan", command_plan, "what a training would take, before anything is trained", NULL},
    {"compare", command_compare, "variants of a training: accuracy, memory, time", NULL},
    {"assess", command_assess, "gradient errors, predicted and measured", NULL},
    {"sweep", command_sweep, "what errors in one layer cost in accuracy", NULL},
    {"compress", command_compress, "tensors (.npy, .npz, raw) to Comet streams", NULL},
    {"decompress", command_decompress, "and back", NULL},
    {"inspect", command_inspect, "what is in a file of streams or tensors", NULL},
    {"bench", command_bench, "ratio, error and speed of the codecs", "codec norm step"},
    {"completion", command_completion, "a script that completes options, for bash or zsh", NULL},
    {"manual", command_manual, "the manual page", NULL},
};

const catalogue_entry *catalogue_at(int index) {
    return (size_t)index < sizeof commands / sizeof *commands ? &commands[index] : NULL;
}

const catalogue_entry *catalogue_find(const char *name) {
    for (int i = 0; catalogue_at(i); i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static const char *name_at(const void *context, int index) {
    (void)context;
    return catalogue_at(index) ? commands[index].name : NULL;
}

const char *catalogue_nearest(const char *name) {
    return comet_nearest(name, name_at, NULL);
}

static int run(const catalogue_entry *entry, const char *part, const char *argument) {
    static char program[] = "comet";
    char *argv[] = {program, (char *)entry->name, NULL, NULL, NULL};
    int argc = 1;
    if (part)
        argv[1 + argc++] = (char *)part;
    if (argument)
        argv[1 + argc++] = (char *)argument;
    return entry->run(argc, argv + 1); /* one before them, as main has it */
}

void catalogue_options(const catalogue_entry *entry, const char *part, void (*see)(void *context, const option *table),
                       void *context) {
    options_listen(see, context);
    run(entry, part, NULL);
    options_listen(NULL, NULL);
}

static char *read_back(FILE *file) {
    const long bytes = ftell(file);
    char *text = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;
    rewind(file);
    if (text)
        text[fread(text, 1, (size_t)bytes, file)] = '\0';
    return text;
}

/* It is printed: into a file in the place of standard output. */
char *catalogue_help(const catalogue_entry *entry, const char *part) {
    FILE *file = tmpfile();
    fflush(stdout);
    const int ours = file ? dup(STDOUT_FILENO) : -1;
    char *text = NULL;
    if (ours >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0) {
        const int answer = run(entry, part, "--help");
        fflush(stdout);
        dup2(ours, STDOUT_FILENO);
        fseek(file, 0, SEEK_END);
        text = answer == DONE ? read_back(file) : NULL;
    }
    if (ours >= 0)
        close(ours);
    if (file)
        fclose(file);
    return text;
}
