/* SPDX-License-Identifier: Apache-2.0 */
/* Names of layers as users write them. */
#ifndef COMET_TRAIN_PATTERN_H
#define COMET_TRAIN_PATTERN_H

/* '*' and '?' as in a shell. */
int comet_pattern_fits(const char *pattern, const char *name);

#endif
