/* SPDX-License-Identifier: Apache-2.0 */
/* Images whose classes are known, for a trained network: which set, and how its classes are called there. */
#ifndef COMET_CMD_PREDICT_NETWORK_DATA_H
#define COMET_CMD_PREDICT_NETWORK_DATA_H

#include "cmd/predict/network.h"
#include "data/sets/dataset.h"

/* The set that was given, or, where `given` is NULL, that the network was trained on. *name: what it is called. */
int network_data_open(const network *n, const char *given, const char **name, comet_dataset **data);

/*
 * The network's class for each label of the set, to be freed. By their names, where the weights have them; else they
 * must be as many, and are taken in their order.
 */
int network_data_classes(const network *n, const comet_dataset *data, const char *name, int32_t **classes);

#endif
