/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/report/command_line.h"

#include <ctype.h>
#include <string.h>

enum { MOST = 4096 };

static char text[MOST];
static size_t used;

static void put(char c) {
    if (used + 1 < sizeof text)
        text[used++] = c;
}

/* What no shell changes needs no quotes. */
static int is_plain(const char *word) {
    for (const char *c = word; *c; c++)
        if (!isalnum((unsigned char)*c) && !strchr("_-./:=,+@%", *c) && (unsigned char)*c < 0x80)
            return 0;
    return *word != '\0';
}

static void put_word(const char *word) {
    const int quoted = !is_plain(word);
    if (quoted)
        put('\'');
    for (; *word; word++) {
        if (*word == '\'')
            for (const char *escape = "'\\'"; *escape; escape++)
                put(*escape);
        put(*word);
    }
    if (quoted)
        put('\'');
}

void command_line_set(int argc, char **argv) {
    used = 0;
    put_word("comet");
    for (int i = 1; i < argc; i++) {
        put(' ');
        put_word(argv[i]);
    }
    text[used] = '\0';
}

const char *command_line_text(void) {
    return text;
}
