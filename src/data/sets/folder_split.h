/* SPDX-License-Identifier: Apache-2.0 */
/* Images to evaluate with, out of those to train with, where a folder has none of its own. */
#ifndef COMET_DATA_FOLDER_SPLIT_H
#define COMET_DATA_FOLDER_SPLIT_H

#include "data/sets/names.h"

/*
 * Moves a fifth of each class, at least one image, from `train` to `evaluate`: those whose names have the lowest
 * checksums, so that the same names are always split in the same way, and whatever numbers are in them does not matter.
 * Names are sorted, "CLASS/..."; both lists are, afterwards. COMET_ERROR_CORRUPT: a class has one image alone.
 */
comet_status comet_folder_split(comet_names *train, comet_names *evaluate, comet_message *message);

#endif
