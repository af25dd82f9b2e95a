/* SPDX-License-Identifier: Apache-2.0 */
/* The options that a user gave, to be compared with those of another day. */
#ifndef COMET_CMD_GIVEN_H
#define COMET_CMD_GIVEN_H

#include <stddef.h>

#include "cmd/common/options.h"

/* A line each, in the order of the table: "--lr 0.1", "--nesterov". `without`: names that are left out, NULL behind them. Freed by the caller;
   NULL: no memory. */
char *given_text(const option *table, const char *const *without);

/* "--lr was 0.1, now 0.05; --seeds was 3, now not given"; empty where they are the same. */
void given_differences(const char *then, const char *now, char *text, size_t capacity);

#endif
