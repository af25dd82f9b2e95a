/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/predict/image_files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "data/sets/scan.h"

/* A copy of folder/name, or of the name alone. */
static char *join(const char *folder, const char *name) {
    const size_t length = folder ? strlen(folder) : 0, slash = length > 0 && folder[length - 1] != '/';
    char *path = malloc(length + slash + strlen(name) + 1);
    if (!path)
        return NULL;
    if (length)
        memcpy(path, folder, length);
    if (slash)
        path[length] = '/';
    strcpy(path + length + slash, name);
    return path;
}

static int add(image_files *files, const char *folder, const char *name) {
    const char **paths = comet_array_reserve(NULL, files->paths, (size_t)files->count, (size_t)files->count + 1,
                                             &files->room, sizeof *paths);
    char *path = paths ? join(folder, name) : NULL;
    if (paths)
        files->paths = paths;
    if (!path)
        return fail_memory();
    files->paths[files->count++] = path;
    return DONE;
}

static int add_folder(image_files *files, const char *folder) {
    comet_names names = {.allocator = NULL};
    comet_message message;
    int answer = DONE;
    comet_status status = comet_scan_images(folder, "", &names, &message);
    if (status == COMET_OK)
        status = comet_names_sort(&names, &message);
    if (status != COMET_OK)
        answer = fail("%s", message.text);
    else if (names.count == 0)
        answer = fail("'%s' has no JPEG or PNG file", folder);
    for (size_t i = 0; i < names.count && answer == DONE; i++)
        answer = add(files, folder, names.items[i]);
    comet_names_free(&names);
    return answer;
}

int image_files_find(image_files *files, const text_array *named) {
    int answer = DONE;
    for (int i = 0; i < named->count && answer == DONE; i++) {
        struct stat status;
        if (stat(named->items[i], &status) != 0)
            answer = fail("cannot open '%s': %s", named->items[i], strerror(errno));
        else if (S_ISDIR(status.st_mode))
            answer = add_folder(files, named->items[i]);
        else if (!S_ISREG(status.st_mode))
            answer = fail("'%s' is not a regular file", named->items[i]);
        else
            answer = add(files, NULL, named->items[i]);
    }
    return answer;
}

void image_files_free(image_files *files) {
    for (int64_t i = 0; i < files->count; i++)
        free((char *)files->paths[i]);
    free(files->paths);
    *files = (image_files){0};
}
