/* SPDX-License-Identifier: Apache-2.0 */
/* comet completion: scripts for shells, made from the tables of options. */
#include <stdio.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/manual/catalogue.h"
#include "train/models/model.h"

static const char help[] = "Usage: comet completion bash|zsh\n"
                           "\n"
                           "Prints a script that makes the shell complete commands, options and their values.\n"
                           "\n"
                           "  comet completion bash > ~/.local/share/bash-completion/completions/comet\n"
                           "  comet completion zsh > DIR/_comet                          DIR is in $fpath\n"
                           "\n"
                           "'make install' puts both where the shells look for them.\n";

/* ---- values ---- */

/* What may follow an option, in whatever command. */
static const struct {
    const char *option, *words;
} values[] = {{"--data", "fashion-mnist cifar10: folder: generated"},
              {"--codec", "none eb eb:0.1 pool:2 group:4 dct zvc offload recompute eb+offload"},
              {"--control", "comet comet:paper acgc budget fixed:0.3"},
              {"--optimiser", "sgd adamw"},
              {"--optimizer", "sgd adamw"},
              {"--schedule", "constant step cosine one-cycle"},
              {"--device", "cpu cuda"},
              {"--dtype", "fp32 tf32 bf16 fp16 f32 f16 u8"},
              {"--channels", "1 3"},
              {"--mode", "nearest keep grid training"},
              {"--layout", "nchw nhwc flat"},
              {"--isa", "auto avx512 avx2 reference"},
              {"--on", "gradient activation"}};

static const char files[] =
    "--weights --save-weights --json-log --csv-log --report --config --state --from --checkpoint "
    "--spill-dir --data --output -o";

static void put_models(const char *between) {
    for (int i = 0; comet_model_at(i); i++)
        printf("%s%s", i ? between : "", comet_model_at(i)->name);
}

static void put_files_pattern(void) {
    for (const char *c = files; *c; c++)
        putchar(*c == ' ' ? '|' : *c);
}

/* ---- options ---- */

static void put_table(void *context, const option *table) {
    (void)context;
    for (const option *entry = table; entry->name; entry++)
        if (strlen(entry->name) > 2)
            printf("%s%s", entry == table ? "" : " ", entry->name);
}

/* `format` has the command's name, with a part of it or not. */
static void put_cases(const catalogue_entry *entry, const char *format, const char *end) {
    char name[64];
    const char *parts = entry->parts ? entry->parts : "";
    while (*parts) {
        const int length = (int)strcspn(parts, " ");
        snprintf(name, sizeof name, "%.*s", length, parts);
        printf(format, entry->name, name);
        catalogue_options(entry, name, put_table, NULL);
        fputs(end, stdout);
        parts += length;
        parts += strspn(parts, " ");
    }
    printf(format, entry->name, "*");
    catalogue_options(entry, NULL, put_table, NULL);
    printf("%s%s%s", entry->parts ? " " : "", entry->parts ? entry->parts : "", end);
}

/* ---- bash ---- */

static void print_bash(void) {
    fputs("# bash completion of comet, as 'comet completion bash' prints it\n"
          "_comet() {\n"
          "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
          "    COMPREPLY=()\n"
          "    case $previous in\n"
          "        --model) words='",
          stdout);
    put_models(" ");
    fputs("' ;;\n", stdout);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        printf("        %s) words='%s' ;;\n", values[i].option, values[i].words);
    fputs("    esac\n    case $previous in ", stdout);
    put_files_pattern();
    fputs("|:) files=1 ;; esac\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        words='",
          stdout);
    for (int i = 0; catalogue_at(i); i++)
        printf("%s ", catalogue_at(i)->name);
    fputs("--help --version'\n"
          "    elif [ -z \"$words$files\" ]; then\n"
          "        case \"${COMP_WORDS[1]} ${COMP_WORDS[2]}\" in\n",
          stdout);
    for (int i = 0; catalogue_at(i); i++)
        put_cases(catalogue_at(i), "            '%s '%s) words='", "' ;;\n");
    fputs("        esac\n"
          "        case $current in -*) ;; *) files=1 ;; esac\n"
          "    fi\n"
          "    COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n"
          "    if [ -n \"$files\" ]; then\n"
          "        compopt -o filenames 2>/dev/null\n"
          "        COMPREPLY+=($(compgen -f -- \"$current\"))\n"
          "    fi\n"
          "}\n"
          "complete -F _comet comet\n",
          stdout);
}

/* ---- zsh ---- */

static void print_zsh(void) {
    fputs("#compdef comet\n"
          "# as 'comet completion zsh' prints it\n"
          "_comet() {\n"
          "    local -a commands options\n"
          "    commands=(\n",
          stdout);
    for (int i = 0; catalogue_at(i); i++)
        printf("        '%s:%s'\n", catalogue_at(i)->name, catalogue_at(i)->summary);
    fputs("    )\n"
          "    if (( CURRENT == 2 )); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    case ${words[CURRENT-1]} in\n"
          "        --model) compadd -- ",
          stdout);
    put_models(" ");
    fputs("; return ;;\n", stdout);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        printf("        %s) compadd -- %s;%s return ;;\n", values[i].option, values[i].words,
               strcmp(values[i].option, "--data") == 0 ? " _files;" : "");
    fputs("        ", stdout);
    put_files_pattern();
    fputs(") _files; return ;;\n"
          "    esac\n"
          "    case \"${words[2]} ${words[3]}\" in\n",
          stdout);
    for (int i = 0; catalogue_at(i); i++)
        put_cases(catalogue_at(i), "        '%s '%s) options=(", ") ;;\n");
    fputs("    esac\n"
          "    compadd -- $options\n"
          "    [[ $PREFIX == -* ]] || _files\n"
          "}\n"
          "_comet \"$@\"\n",
          stdout);
}

int command_completion(int argc, char **argv) {
    int wants_help = 0;
    text_array operands = {0};
    const option table[] = {
        {"--help", OPTION_FLAG, &wants_help}, {"-h", OPTION_FLAG, &wants_help}, {NULL, OPTION_FLAG, NULL}};
    int answer = options_parse(table, argc, argv, &operands);
    const char *shell = operands.count == 1 ? operands.items[0] : "";
    if (answer == DONE && wants_help)
        fputs(help, stdout);
    else if (answer == DONE && strcmp(shell, "bash") == 0)
        print_bash();
    else if (answer == DONE && strcmp(shell, "zsh") == 0)
        print_zsh();
    else if (answer == DONE)
        answer = misuse("for which shell? There are bash and zsh");
    text_array_free(&operands);
    return answer;
}
