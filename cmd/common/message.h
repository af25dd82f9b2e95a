/* SPDX-License-Identifier: Apache-2.0 */
/* What the command says on standard error: one line each, "comet: ...", without control characters. */
#ifndef COMET_CMD_MESSAGE_H
#define COMET_CMD_MESSAGE_H

#include "comet/status.h"

#if defined(__GNUC__)
#define MESSAGE_FORMAT __attribute__((format(printf, 1, 2)))
#else
#define MESSAGE_FORMAT
#endif

/* Names the sub-command whose --help misuse() points to. `name` must stay valid. */
void message_command(const char *name);

/* Prints the line and returns FAILED. */
int fail(const char *format, ...) MESSAGE_FORMAT;

/* Prints the line, with a pointer to --help, and returns MISUSED. */
int misuse(const char *format, ...) MESSAGE_FORMAT;

/* Prints the line. */
void note(const char *format, ...) MESSAGE_FORMAT;

/* Of the call of libcomet that just failed: its reason, or the status in words if it gave none. */
const char *why(comet_status status);

/* fail() for memory. */
int fail_memory(void);

#endif
