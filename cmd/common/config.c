/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/common/config.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text/nearest.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"

enum { MOST_BYTES = 1 << 16, MOST_OPTIONS = 96 };

/* Values point into it: it stays. */
static char text[MOST_BYTES + 1];

typedef struct place {
    const option *table;
    const char *path;
    int line;
    unsigned char given[MOST_OPTIONS]; /* by entry: on the command line */
} place;

static int is_given(const option *entry) {
    return entry->kind == OPTION_FLAG ? *(const int *)entry->target
                                      : entry->kind != OPTION_MANY && *(const char *const *)entry->target != NULL;
}

/* What is between the spaces, without quotes. */
static char *trim(char *from) {
    while (isspace((unsigned char)*from))
        from++;
    char *end = from + strlen(from);
    while (end > from && isspace((unsigned char)end[-1]))
        end--;
    if (end - from >= 2 && (*from == '"' || *from == '\'') && end[-1] == *from) {
        from++;
        end--;
    }
    *end = '\0';
    return from;
}

/* A '#' begins a comment at the start of a line and behind a space. */
static void cut_comment(char *line) {
    for (char *c = line; *c; c++)
        if (*c == '#' && (c == line || isspace((unsigned char)c[-1]))) {
            *c = '\0';
            return;
        }
}

static const char *option_at(const void *context, int index) {
    const char *name = ((const option *)context)[index].name;
    return name ? name + strspn(name, "-") : NULL;
}

static int refuse(const place *p, const char *key) {
    const char *meant = comet_nearest(key, option_at, p->table);
    return meant ? misuse("'%.300s', line %d: there is no option '%.60s' (did you mean %s?)", p->path, p->line, key,
                          meant)
                 : misuse("'%.300s', line %d: there is no option '%.60s'", p->path, p->line, key);
}

static int set_flag(const place *p, const option *entry, const char *value) {
    static const char *const words[2][4] = {{"no", "false", "off", "0"}, {"", "yes", "true", "1"}};
    for (int is_on = 0; is_on < 2; is_on++)
        for (int i = 0; i < 4; i++)
            if (strcmp(value, words[is_on][i]) == 0) {
                *(int *)entry->target = is_on;
                return DONE;
            }
    return misuse("'%.300s', line %d: %s is yes or no, not '%.60s'", p->path, p->line, entry->name, value);
}

static int set(const place *p, const option *entry, char *value) {
    if (p->given[entry - p->table])
        return DONE;
    if (entry->kind == OPTION_FLAG)
        return set_flag(p, entry, value);
    if (entry->kind == OPTION_MANY)
        return misuse("'%.300s', line %d: %s cannot be given here", p->path, p->line, entry->name);
    if (!*value && entry->kind == OPTION_TEXT)
        return misuse("'%.300s', line %d: %s needs a value", p->path, p->line, entry->name);
    *(const char **)entry->target = value;
    return DONE;
}

static int read_line(const place *p, char *line) {
    cut_comment(line);
    char *equals = strchr(line, '=');
    if (equals)
        *equals = '\0';
    const char *key = trim(line);
    char *value = trim(equals ? equals + 1 : line + strlen(line));
    if (!*key && !equals)
        return DONE;
    key += strspn(key, "-");
    for (const option *entry = p->table; entry->name; entry++)
        if (strcmp(entry->name + strspn(entry->name, "-"), key) == 0)
            return set(p, entry, value);
    return refuse(p, key);
}

static int read_file(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file)
        return fail("--config: cannot open '%.400s': %s", path, strerror(errno));
    const size_t bytes = fread(text, 1, sizeof text, file);
    const int failed = ferror(file);
    fclose(file);
    if (failed || bytes > MOST_BYTES || memchr(text, '\0', bytes))
        return fail("--config: '%.400s' is no file of options", path);
    text[bytes] = '\0';
    return DONE;
}

int config_read(const option *table, const char *path) {
    place p = {.table = table, .path = path};
    int answer = read_file(path), count = 0;
    for (const option *entry = table; entry->name && count < MOST_OPTIONS; entry++)
        p.given[count++] = (unsigned char)is_given(entry);
    for (char *at = text; answer == DONE && *at;) {
        char *line = at;
        at += strcspn(at, "\n");
        if (*at)
            *at++ = '\0';
        p.line++;
        answer = read_line(&p, line);
    }
    return answer;
}
