/* SPDX-License-Identifier: Apache-2.0 */
/* comet evaluate: what is asked for, and how the answer is shown. */
#ifndef COMET_CMD_EVALUATE_H
#define COMET_CMD_EVALUATE_H

#include "cmd/common/options.h"
#include "cmd/predict/network.h"
#include "cmd/predict/tally.h"

typedef struct evaluation {
    network network;
    comet_dataset *data;
    const char *data_name; /* as it was given, or as the weights say */
    int32_t *classes;      /* of the network, by label of the data */
    tally tally;
    int64_t broken; /* files that cannot be used */
    double seconds;
} evaluation;

void evaluate_print(const evaluation *e);
void evaluate_print_json(const evaluation *e);

#endif
