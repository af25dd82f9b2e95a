/* SPDX-License-Identifier: Apache-2.0 */
/* The trained network that a command uses: which one it is, from the options, and its memory. */
#ifndef COMET_CMD_PREDICT_NETWORK_H
#define COMET_CMD_PREDICT_NETWORK_H

#include "cmd/train/train_place.h"
#include "train/predict/predictor.h"

/* As they were given; NULL where they were not. */
typedef struct network_texts {
    const char *from, *model, *image, *batch, *threads;
    place_texts place;
} network_texts;

/* The lines of --help about them. */
#define NETWORK_HELP                                                                                                   \
    "  --from PATH           weights: a folder of checkpoints (its best ones, else its last), a checkpoint, or a\n"    \
    "                        .safetensors file\n"                                                                      \
    "  --model NAME          the network, where the weights do not say\n"                                              \
    "  --image N             images of N x N (what the network was trained with)\n"

#define NETWORK_HELP_MACHINE                                                                                           \
    "  --batch B             images at a time (32)\n"                                                                  \
    "  --threads N           0: one for each core (0)\n" PLACE_HELP

/* Their entries in a table of options. */
#define NETWORK_OPTIONS(texts)                                                                                         \
    {"--from", OPTION_TEXT, &(texts).from}, {"--model", OPTION_TEXT, &(texts).model},                                  \
        {"--image", OPTION_TEXT, &(texts).image}, {"--batch", OPTION_TEXT, &(texts).batch},                            \
        {"--threads", OPTION_TEXT, &(texts).threads}, PLACE_OPTIONS((texts).place)

typedef struct network {
    char path[COMET_ABOUT_PATH]; /* of the file that was taken */
    comet_about about;
    int batch;
    unsigned threads;
    comet_place place;
    comet_predictor *predictor;
} network;

/* DONE, or MISUSED or FAILED after a line. network_free in any case. */
int network_open(const network_texts *texts, network *n);
void network_free(network *n);

/* The name of a class, or its number in `text`. */
enum { NETWORK_NAME = 24 };
const char *network_label(const network *n, int label, char text[NETWORK_NAME]);

#endif
