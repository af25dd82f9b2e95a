/* SPDX-License-Identifier: Apache-2.0 */
/* What the command runs on. What Linux does not tell is left out. */
#include "cmd/common/machine.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "base/parallel.h"

/* Of the first line of a file that starts with `key`: what is behind the colon and the spaces after it. */
static int find_line(const char *path, const char *key, char *value, size_t capacity) {
    FILE *file = fopen(path, "r");
    char line[512];
    int found = 0;
    while (file && !found && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        found = colon && strncmp(line, key, strlen(key)) == 0;
        if (found) {
            const char *text = colon + 1 + strspn(colon + 1, " \t");
            snprintf(value, capacity, "%.*s", (int)strcspn(text, "\n"), text);
        }
    }
    if (file)
        fclose(file);
    return found;
}

const char *machine_text(char *text, size_t capacity) {
    struct utsname name;
    char processor[256];
    int used = uname(&name) < 0 ? snprintf(text, capacity, "?")
                                : snprintf(text, capacity, "%s %s", name.sysname, name.machine);
    if (find_line("/proc/cpuinfo", "model name", processor, sizeof processor) && (size_t)used < capacity)
        used += snprintf(text + used, capacity - (size_t)used, ", %s", processor);
    if ((size_t)used < capacity)
        snprintf(text + used, capacity - (size_t)used, ", %u cores", comet_usable_cores());
    return text;
}

/* The line is "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  <date>"; the words change with the driver. */
const char *machine_nvidia_driver(char *text, size_t capacity) {
    char line[256];
    text[0] = '\0';
    if (!find_line("/proc/driver/nvidia/version", "NVRM version", line, sizeof line))
        return text;
    for (const char *word = line + strspn(line, " "); *word;) {
        size_t length = strcspn(word, " ");
        if (isdigit((unsigned char)*word) && memchr(word, '.', length)) {
            snprintf(text, capacity, "%.*s", (int)length, word);
            break;
        }
        word += length;
        word += strspn(word, " ");
    }
    return text;
}
