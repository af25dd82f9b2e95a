/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Options of a sub-command: --name, --name VALUE, --name=VALUE, --name VALUE..., --name or --name=VALUE, in any order
 * with the operands.
 */
#ifndef COMET_CMD_OPTIONS_H
#define COMET_CMD_OPTIONS_H

#include <stddef.h>

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

/*
 * While there is one who hears, options_parse tells him its table and does nothing else; what it answers then ends the
 * command. NULL: nobody.
 */
void options_listen(void (*hear)(void *context, const option *table), void *context);

/* ---- what a user gave, to be compared with that of another day ---- */

/*
 * A line each, in the order of the table: "--lr 0.1", "--nesterov". `without`: names that are left out, NULL behind
 * them. Freed by the caller; NULL: no memory.
 */
char *given_text(const option *table, const char *const *without);

/* "--lr was 0.1, now 0.05; --seeds was 3, now not given"; empty where they are the same. */
void given_differences(const char *then, const char *now, char *text, size_t capacity);

#endif
