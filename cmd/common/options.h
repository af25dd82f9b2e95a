/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a sub-command: --name, --name VALUE, --name=VALUE, --name VALUE..., --name or --name=VALUE, in any order with the operands. */
#ifndef COMET_CMD_OPTIONS_H
#define COMET_CMD_OPTIONS_H

typedef enum option_kind {
    OPTION_FLAG,  /* target: int, set to 1 */
    OPTION_TEXT,  /* target: const char *, the last one given */
    OPTION_MAYBE, /* target: const char *: what follows '=', or "" where there is none */
    OPTION_MANY   /* target: text_array, all values up to the next option */
} option_kind;

typedef struct option {
    const char *name; /* with its dashes; NULL ends a table */
    option_kind kind;
    void *target;
} option;

/* Pointers into argv; the array itself is freed with text_array_free. */
typedef struct text_array {
    const char **items;
    int count;
} text_array;

void text_array_free(text_array *texts);

/* Fills the targets and collects the operands. Everything behind "--" is an operand. */
int options_parse(const option *table, int argc, char **argv, text_array *operands);

#endif
