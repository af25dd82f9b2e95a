/* SPDX-License-Identifier: Apache-2.0 */
/* The commands, and what they say of themselves: their options and the text of --help. */
#ifndef COMET_CMD_CATALOGUE_H
#define COMET_CMD_CATALOGUE_H

#include "cmd/common/options.h"

typedef struct catalogue_entry {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary; /* for lists: a line of no more than 62 characters */
    const char *parts;   /* words behind the name that have options of their own: "codec norm step"; NULL: none */
} catalogue_entry;

/* In the order for lists; NULL behind the last. */
const catalogue_entry *catalogue_at(int index);
const catalogue_entry *catalogue_find(const char *name); /* NULL: there is none */
const char *catalogue_nearest(const char *name);         /* NULL: nothing is like it */

/* `see` is told the table of options of the command, or of a part of it (NULL: itself). */
void catalogue_options(const catalogue_entry *entry, const char *part, void (*see)(void *context, const option *table),
                       void *context);

/* What --help prints, to be freed; NULL: it cannot be had. */
char *catalogue_help(const catalogue_entry *entry, const char *part);

#endif
