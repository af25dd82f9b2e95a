/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* d_type */
#include "data/sets/scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { MOST_DEPTH = 16 }; /* links may lead back */

typedef enum entry_type { ENTRY_OTHER, ENTRY_FILE, ENTRY_FOLDER } entry_type;

/* A path that grows and shrinks with the folder that is looked at. */
typedef struct walk {
    char path[COMET_SCAN_PATH_BYTES];
    size_t length, root; /* of the path now; of the part that names leave out */
    comet_names *names;
    comet_message *message;
} walk;

static comet_status descend(walk *w, const char *name) {
    size_t bytes = strlen(name);
    if (w->length + 1 + bytes + 1 > sizeof w->path)
        return comet_message_set(w->message, COMET_ERROR_IO, "the path '%.64s...' is too long", w->path);
    w->path[w->length] = '/';
    memcpy(w->path + w->length + 1, name, bytes + 1);
    w->length += 1 + bytes;
    return COMET_OK;
}

static void ascend(walk *w, size_t length) {
    w->length = length;
    w->path[length] = '\0';
}

static entry_type type_of(const walk *w, const struct dirent *entry) {
    struct stat status;
    if (entry->d_type == DT_REG)
        return ENTRY_FILE;
    if (entry->d_type == DT_DIR)
        return ENTRY_FOLDER;
    if (stat(w->path, &status) != 0) /* a link to nowhere */
        return ENTRY_OTHER;
    return S_ISREG(status.st_mode) ? ENTRY_FILE : S_ISDIR(status.st_mode) ? ENTRY_FOLDER : ENTRY_OTHER;
}

static int is_image(const char *name) {
    static const char *const endings[] = {".jpg", ".jpeg", ".png"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t tail = strlen(endings[i]);
        if (length > tail && strcasecmp(name + length - tail, endings[i]) == 0)
            return 1;
    }
    return 0;
}

typedef comet_status visitor(walk *w, const char *name, entry_type type, int depth);

/* Calls `visit` for each entry, with the path at it. */
static comet_status each_entry(walk *w, visitor *visit, int depth) {
    DIR *folder = opendir(w->path);
    if (!folder)
        return comet_message_set(w->message, COMET_ERROR_IO, "cannot read the folder '%s': %s", w->path,
                                 strerror(errno));
    size_t length = w->length;
    comet_status status = COMET_OK;
    errno = 0;
    for (struct dirent *entry; status == COMET_OK && (entry = readdir(folder)); ascend(w, length), errno = 0) {
        if (entry->d_name[0] == '.')
            continue;
        status = descend(w, entry->d_name);
        if (status == COMET_OK)
            status = visit(w, entry->d_name, type_of(w, entry), depth);
    }
    if (status == COMET_OK && errno)
        status =
            comet_message_set(w->message, COMET_ERROR_IO, "cannot read the folder '%s': %s", w->path, strerror(errno));
    closedir(folder);
    return status;
}

static comet_status visit_folder(walk *w, const char *name, entry_type type, int depth) {
    (void)depth;
    return type == ENTRY_FOLDER ? comet_names_add(w->names, name, w->message) : COMET_OK;
}

static comet_status visit_image(walk *w, const char *name, entry_type type, int depth) {
    if (type == ENTRY_FILE)
        return is_image(name) ? comet_names_add(w->names, w->path + w->root, w->message) : COMET_OK;
    if (type == ENTRY_OTHER)
        return COMET_OK;
    if (depth == MOST_DEPTH)
        return comet_message_set(w->message, COMET_ERROR_IO,
                                 "folders are more than %d deep at '%s': does a link lead back?", MOST_DEPTH, w->path);
    return each_entry(w, visit_image, depth + 1);
}

static comet_status begin(walk *w, const char *path, comet_names *names, comet_message *message) {
    size_t length = strlen(path);
    if (length + 1 > sizeof w->path)
        return comet_message_set(message, COMET_ERROR_IO, "the path '%.64s...' is too long", path);
    memcpy(w->path, path, length + 1);
    w->length = length;
    w->root = length + 1;
    w->names = names;
    w->message = message;
    return COMET_OK;
}

comet_status comet_scan_folders(const char *path, comet_names *names, comet_message *message) {
    walk w;
    comet_status status = begin(&w, path, names, message);
    return status == COMET_OK ? each_entry(&w, visit_folder, 0) : status;
}

comet_status comet_scan_images(const char *root, const char *start, comet_names *names, comet_message *message) {
    walk w;
    comet_status status = begin(&w, root, names, message);
    if (status == COMET_OK && *start)
        status = descend(&w, start);
    return status == COMET_OK ? each_entry(&w, visit_image, 0) : status;
}

int comet_scan_is_folder(const char *path) {
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}
