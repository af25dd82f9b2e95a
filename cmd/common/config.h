/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options from a file: a line each, "lr = 0.1" or "--lr = 0.1", flags alone or with yes or no; '#' begins a comment.
 * Quotes around a value are left out.
 */
#ifndef COMET_CMD_CONFIG_H
#define COMET_CMD_CONFIG_H

#include "cmd/common/options.h"

/*
 * Fills the targets that are still empty: what was given on the command line comes first; of two lines about the same
 * option the last counts. Texts stay as long as the process. FAILED or MISUSED after a line that names the file's line.
 */
int config_read(const option *table, const char *path);

#endif
