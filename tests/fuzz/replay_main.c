/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a fuzz target once over each file given, and over each file of a folder given: the corpus as an ordinary test.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* 0 if the file cannot be read. */
static int replay_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t size = 0, capacity = 1 << 16;
    uint8_t *data = malloc(capacity);
    for (size_t got; data && (got = fread(data + size, 1, capacity - size, file)) > 0;) {
        size += got;
        if (size == capacity)
            data = realloc(data, capacity *= 2); /* leaked when it fails: the program ends */
    }
    int ok = data && !ferror(file);
    fclose(file);
    if (ok) {
        uint8_t *exact = malloc(size ? size : 1); /* so that a sanitizer sees reads behind the end */
        ok = exact != NULL;
        if (ok) {
            memcpy(exact, data, size);
            LLVMFuzzerTestOneInput(exact, size);
        }
        free(exact);
    }
    free(data);
    return ok;
}

/* The number of files replayed, -1 if one could not be. */
static int replay(const char *path) {
    DIR *folder = opendir(path);
    if (!folder)
        return replay_file(path) ? 1 : -1;
    int count = 0;
    for (struct dirent *entry; count >= 0 && (entry = readdir(folder));) {
        char name[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
        count = replay_file(name) ? count + 1 : -1;
    }
    closedir(folder);
    return count;
}

int main(int argc, char **argv) {
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int count = replay(argv[i]);
        if (count < 0) {
            fprintf(stderr, "%s: cannot be read\n", argv[i]);
            return 1;
        }
        total += count;
    }
    printf("%d inputs replayed\n", total);
    return total > 0 ? 0 : 1;
}
