/* SPDX-License-Identifier: Apache-2.0 */
/* What the command runs on, in words. */
#ifndef COMET_CMD_MACHINE_H
#define COMET_CMD_MACHINE_H

#include <stddef.h>

/* "Linux x86_64, <processor>, 16 cores" (those it may use), as far as it is known. Returns `text`. */
const char *machine_text(char *text, size_t capacity);

/* The version of NVIDIA's kernel driver, "550.54.15"; "" if it cannot be told. Returns `text`. */
const char *machine_nvidia_driver(char *text, size_t capacity);

#endif
