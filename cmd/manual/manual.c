/* SPDX-License-Identifier: Apache-2.0 */
/* comet manual: the manual page, made from what each command says of itself. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/manual/catalogue.h"
#include "comet/version.h"

static const char help[] = "Usage: comet manual\n"
                           "\n"
                           "Prints the manual page, for man: what 'make install' puts where man looks for it.\n"
                           "\n"
                           "  comet manual | man -l -\n";

/* Text as it is: what roff would take for its own is marked. */
static void put_text(const char *text) {
    for (int begins = 1; *text; text++) {
        if (begins && (*text == '.' || *text == '\''))
            fputs("\\&", stdout);
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else
            putchar(*text);
        begins = *text == '\n';
    }
}

static int put_help(const catalogue_entry *entry, const char *part) {
    char *text = catalogue_help(entry, part);
    if (!text)
        return fail("cannot get the help of comet %s", entry->name);
    printf(".SS comet %s%s%s\n.nf\n", entry->name, part ? " " : "", part ? part : "");
    put_text(text);
    fputs(".fi\n", stdout);
    free(text);
    return DONE;
}

static int put_command(const catalogue_entry *entry) {
    char part[32];
    const char *parts = entry->parts ? entry->parts : "";
    int answer = put_help(entry, NULL);
    while (*parts && answer == DONE) {
        const int length = (int)strcspn(parts, " ");
        snprintf(part, sizeof part, "%.*s", length, parts);
        answer = put_help(entry, part);
        parts += length;
        parts += strspn(parts, " ");
    }
    return answer;
}

static int print_page(void) {
    int answer = DONE;
    printf(
        ".TH COMET 1 \"\" \"comet %s\" \"User Commands\"\n"
        ".SH NAME\ncomet \\- trains convolutional networks with compressed activations\n"
        ".SH SYNOPSIS\n.B comet\n.I COMMAND\n[\\fIOPTION\\fR...]\n"
        ".SH DESCRIPTION\n"
        "Training keeps what each layer needs for its backward pass. Comet holds these activations compressed, with a\n"
        "strict bound on the error of every value, and trains inside a memory budget.\n",
        comet_version_string());
    for (int i = 0; catalogue_at(i); i++) {
        printf(".TP\n.B %s\n", catalogue_at(i)->name);
        put_text(catalogue_at(i)->summary);
        putchar('\n');
    }
    fputs(".SH COMMANDS\n", stdout);
    for (int i = 0; catalogue_at(i) && answer == DONE; i++)
        answer = put_command(catalogue_at(i));
    fputs(".SH EXIT STATUS\n0 done, 1 failed, 2 used wrongly; 128 and the signal's number if a training was stopped.\n",
          stdout);
    return answer;
}

int command_manual(int argc, char **argv) {
    int wants_help = 0;
    text_array operands = {0};
    const option table[] = {
        {"--help", OPTION_FLAG, &wants_help}, {"-h", OPTION_FLAG, &wants_help}, {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &operands);
    if (answer == DONE && operands.count)
        answer = misuse("unexpected '%s'", operands.items[0]);
    else if (answer == DONE && wants_help)
        fputs(help, stdout);
    else if (answer == DONE)
        answer = print_page();
    text_array_free(&operands);
    return answer;
}
