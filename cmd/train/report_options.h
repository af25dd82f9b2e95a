/* SPDX-License-Identifier: Apache-2.0 */
/* What a run was asked for, as a table of a report: what the user gave and what was settled for him. */
#ifndef COMET_CMD_REPORT_OPTIONS_H
#define COMET_CMD_REPORT_OPTIONS_H

#include "cmd/report/report.h"
#include "train/run/run.h"

/* `form` 0: without how activations are held, where runs differ in that. */
void report_options(report *r, const comet_run_options *run, int form);

#endif
