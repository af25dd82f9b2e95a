/* SPDX-License-Identifier: Apache-2.0 */
/* Table-driven option parsing. */
#include "cmd/common/options.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

void text_array_free(text_array *texts) {
    free(texts->items);
    *texts = (text_array){0};
}

/* `limit` is the most that can ever be added: the number of arguments. */
static int text_array_add(text_array *texts, const char *text, int limit) {
    if (!texts->items) {
        texts->items = calloc((size_t)limit, sizeof *texts->items);
        if (!texts->items)
            return fail_memory();
    }
    texts->items[texts->count++] = text;
    return DONE;
}

static int is_option(const char *argument) {
    return argument[0] == '-' && argument[1] != '\0';
}

/* A value may start with one dash (a negative number, a file), not with two. */
static int is_value(const char *argument) {
    return argument && strncmp(argument, "--", 2) != 0;
}

/* The entry that `argument` names; *value is what follows '=', or NULL. */
static const option *find_option(const option *table, const char *argument, const char **value) {
    size_t length = strcspn(argument, "=");
    *value = argument[length] == '=' ? argument + length + 1 : NULL;
    for (const option *entry = table; entry->name; entry++)
        if (strlen(entry->name) == length && strncmp(entry->name, argument, length) == 0)
            return entry;
    return NULL;
}

static int take_many(const option *entry, const char *value, int argc, char **argv, int *index) {
    text_array *texts = entry->target;
    if (value)
        return text_array_add(texts, value, argc);
    if (!argv[*index + 1] || is_option(argv[*index + 1]))
        return misuse("%s needs at least one value", entry->name);
    while (argv[*index + 1] && !is_option(argv[*index + 1]))
        if (text_array_add(texts, argv[++*index], argc) != DONE)
            return FAILED;
    return DONE;
}

static int take_option(const option *table, int argc, char **argv, int *index) {
    const char *value;
    const option *entry = find_option(table, argv[*index], &value);
    if (!entry)
        return misuse("unknown option '%s'", argv[*index]);
    if (entry->kind == OPTION_MANY)
        return take_many(entry, value, argc, argv, index);
    if (entry->kind == OPTION_FLAG) {
        *(int *)entry->target = 1;
        return value ? misuse("%s takes no value", entry->name) : DONE;
    }
    if (!value && entry->kind == OPTION_MAYBE)
        value = "";
    if (!value) {
        if (!is_value(argv[*index + 1]))
            return misuse("%s needs a value", entry->name);
        value = argv[++*index];
    }
    *(const char **)entry->target = value;
    return DONE;
}

int options_parse(const option *table, int argc, char **argv, text_array *operands) {
    int only_operands = 0, answer = DONE;
    for (int i = 1; i < argc && answer == DONE; i++) {
        if (!only_operands && strcmp(argv[i], "--") == 0)
            only_operands = 1;
        else if (!only_operands && is_option(argv[i]))
            answer = take_option(table, argc, argv, &i);
        else
            answer = text_array_add(operands, argv[i], argc);
    }
    return answer;
}
