/* SPDX-License-Identifier: Apache-2.0 */
/* Table-driven option parsing, and what was given as text. */
#include "cmd/common/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/nearest.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"

/* ---- parsing ---- */

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

static const char *option_at(const void *context, int index) {
    return ((const option *)context)[index].name;
}

static int refuse_option(const option *table, const char *argument) {
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(argument, "="), argument);
    const char *meant = argument[1] == '-' ? comet_nearest(name, option_at, table) : NULL;
    if (meant)
        return misuse("unknown option '%s' (did you mean %s?)", name, meant);
    return misuse("unknown option '%s'", argument);
}

static int take_option(const option *table, int argc, char **argv, int *index) {
    const char *value;
    const option *entry = find_option(table, argv[*index], &value);
    if (!entry)
        return refuse_option(table, argv[*index]);
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

static struct {
    void (*hear)(void *context, const option *table);
    void *context;
} listener;

void options_listen(void (*hear)(void *context, const option *table), void *context) {
    listener.hear = hear;
    listener.context = context;
}

int options_parse(const option *table, int argc, char **argv, text_array *operands) {
    int only_operands = 0, answer = DONE;
    if (listener.hear) {
        listener.hear(listener.context, table);
        return MISUSED;
    }
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

/* ---- as text ---- */

/* What was given for it; "" for a flag; NULL: nothing. */
static const char *value_of(const option *entry) {
    if (entry->kind == OPTION_FLAG)
        return *(const int *)entry->target ? "" : NULL;
    return entry->kind == OPTION_TEXT ? *(const char *const *)entry->target : NULL;
}

/* Another name of an option that comes before it. */
static int is_alias(const option *table, const option *entry) {
    for (const option *other = table; other < entry; other++)
        if (other->target == entry->target)
            return 1;
    return 0;
}

static int is_without(const char *name, const char *const *without) {
    for (; *without; without++)
        if (strcmp(name, *without) == 0)
            return 1;
    return 0;
}

char *given_text(const option *table, const char *const *without) {
    size_t bytes = 1, used = 0;
    for (const option *entry = table; entry->name; entry++)
        bytes += strlen(entry->name) + (value_of(entry) ? strlen(value_of(entry)) : 0) + 2;
    char *text = calloc(bytes, 1);
    for (const option *entry = table; text && entry->name; entry++) {
        const char *value = value_of(entry);
        if (!value || is_alias(table, entry) || is_without(entry->name, without))
            continue;
        char *line = text + used;
        used += (size_t)snprintf(line, bytes - used, "%s%s%s", entry->name, *value ? " " : "", value);
        for (char *c = line; *c; c++)
            if (*c == '\n')
                *c = ' ';
        text[used++] = '\n';
    }
    return text;
}

/* ---- differences ---- */

typedef struct line {
    const char *name, *value;
    int name_length, value_length;
} line;

/* The line that begins at `text`, and where the next one does. */
static const char *take_line(const char *text, line *l) {
    const size_t length = strcspn(text, "\n"), name = strcspn(text, " \n");
    *l = (line){text, text + name, (int)name, (int)(length - name)};
    if (l->value_length > 0) {
        l->value++;
        l->value_length--;
    } else {
        l->value = "given";
        l->value_length = 5;
    }
    return text + length + (text[length] != '\0');
}

static line find_line(const char *text, const line *like) {
    line l;
    while (*text) {
        text = take_line(text, &l);
        if (l.name_length == like->name_length && memcmp(l.name, like->name, (size_t)l.name_length) == 0)
            return l;
    }
    return (line){like->name, "not given", like->name_length, 9};
}

static void add(const line *then, const line *now, char *text, size_t capacity) {
    const size_t used = strlen(text);
    if (then->value_length != now->value_length || memcmp(then->value, now->value, (size_t)now->value_length) != 0)
        snprintf(text + used, capacity - used, "%s%.*s was %.*s, now %.*s", used ? "; " : "", now->name_length,
                 now->name, then->value_length, then->value, now->value_length, now->value);
}

void given_differences(const char *then, const char *now, char *text, size_t capacity) {
    line l, other;
    text[0] = '\0';
    for (const char *at = then; *at;) {
        at = take_line(at, &l);
        other = find_line(now, &l);
        add(&l, &other, text, capacity);
    }
    for (const char *at = now; *at;) {
        at = take_line(at, &l);
        other = find_line(then, &l);
        if (strncmp(other.value, "not given", 9) == 0)
            add(&other, &l, text, capacity);
    }
}
