/* SPDX-License-Identifier: Apache-2.0 */
/* --device, --dtype and --deterministic: where a command trains, and with what numbers. */
#ifndef COMET_CMD_TRAIN_PLACE_H
#define COMET_CMD_TRAIN_PLACE_H

#include "train/backend/backend.h"

/* As they were given; NULL where they were not. */
typedef struct place_texts {
    const char *device, *dtype;
    int deterministic, no_graphs;
} place_texts;

/* The lines of --help about them. */
#define PLACE_HELP                                                                                                     \
    "  --device cpu|cuda[:N] where it is computed (cpu)\n"                                                             \
    "  --dtype fp32|tf32|bf16|fp16\n"                                                                                  \
    "                        on a GPU: what activations and products are in; tf32 is fp32 with quicker products\n"     \
    "                        (tf32; cpu: fp32)\n"                                                                      \
    "  --deterministic       on a GPU: only kernels that give the same bits in every run\n"                            \
    "  --no-graphs           on a GPU: every step is issued kernel by kernel, not replayed as a CUDA graph\n"

/* Their entries in a table of options. */
#define PLACE_OPTIONS(texts)                                                                                           \
    {"--device", OPTION_TEXT, &(texts).device}, {"--dtype", OPTION_TEXT, &(texts).dtype},                              \
        {"--deterministic", OPTION_FLAG, &(texts).deterministic}, {                                                    \
        "--no-graphs", OPTION_FLAG, &(texts).no_graphs                                                                 \
    }

/* DONE, or MISUSED after a line. */
int place_read(const place_texts *texts, comet_place *place);

#endif
