/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE     /* flock */
#define _XOPEN_SOURCE   700 /* realpath */
#include "base/file/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static comet_status failed(const char *path, comet_message *message) {
    return comet_message_set(message, COMET_ERROR_IO, "cannot write '%s': %s%s", path, strerror(errno),
                             errno == ENOSPC || errno == EDQUOT ? "; make room and try again" : "");
}

static comet_status take_names(comet_atomic_file *file, const char *path, comet_message *message) {
    struct stat status;
    if (stat(path, &status) == 0 && !S_ISREG(status.st_mode))
        return comet_message_set(message, COMET_ERROR_IO, "cannot write '%s': it is not a regular file", path);
    file->path = realpath(path, NULL); /* where a link points; NULL if there is nothing yet */
    if (!file->path)
        file->path = strdup(path);
    if (!file->path)
        return comet_message_memory(message);
    size_t bytes = strlen(file->path) + 5;
    file->temporary = malloc(bytes);
    if (!file->temporary)
        return comet_message_memory(message);
    snprintf(file->temporary, bytes, "%s.tmp", file->path);
    return COMET_OK;
}

/* 1 if the file that is open still has its name: who had it before may have finished between our open and our lock. */
static int is_same(const comet_atomic_file *file) {
    struct stat mine, named;
    return fstat(file->descriptor, &mine) == 0 && stat(file->temporary, &named) == 0 && mine.st_ino == named.st_ino &&
           mine.st_dev == named.st_dev;
}

static comet_status open_temporary(comet_atomic_file *file, comet_message *message) {
    for (;;) {
        file->descriptor = open(file->temporary, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (file->descriptor < 0)
            return failed(file->path, message);
        if (flock(file->descriptor, LOCK_EX | LOCK_NB) != 0) {
            close(file->descriptor);
            file->descriptor = -1;
            return comet_message_set(message, COMET_ERROR_IO, "cannot write '%s': another program is writing it",
                                     file->path);
        }
        if (is_same(file))
            break;
        close(file->descriptor);
    }
    return ftruncate(file->descriptor, 0) == 0 ? COMET_OK : failed(file->path, message);
}

comet_status comet_atomic_file_open(comet_atomic_file *file, const char *path, comet_message *message) {
    *file = (comet_atomic_file){.descriptor = -1};
    comet_status status = take_names(file, path, message);
    if (status == COMET_OK)
        status = open_temporary(file, message);
    if (status != COMET_OK)
        comet_atomic_file_abandon(file);
    return status;
}

comet_status comet_atomic_file_write(comet_atomic_file *file, const void *data, size_t bytes, comet_message *message) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t written = write(file->descriptor, at, bytes > 1 << 30 ? 1 << 30 : bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return failed(file->path, message);
        at += written;
        bytes -= (size_t)written;
    }
    return COMET_OK;
}

FILE *comet_atomic_file_stream(comet_atomic_file *file) {
    int descriptor = dup(file->descriptor);
    FILE *stream = descriptor >= 0 ? fdopen(descriptor, "wb") : NULL;
    if (!stream && descriptor >= 0)
        close(descriptor);
    return stream;
}

/* The name is in the folder: only when that is on the disk is the new file there after a power cut. */
static int sync_folder(const char *path) {
    char *folder = strdup(path);
    if (!folder)
        return -1;
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int descriptor = open(slash ? folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    if (descriptor < 0)
        return -1;
    int answer = fsync(descriptor);
    if (answer != 0 && errno == EINVAL) /* some file systems cannot */
        answer = 0;
    close(descriptor);
    return answer;
}

static void give_names(comet_atomic_file *file) {
    free(file->path);
    free(file->temporary);
    file->path = file->temporary = NULL;
}

comet_status comet_atomic_file_commit(comet_atomic_file *file, comet_message *message) {
    if (fsync(file->descriptor) != 0 || rename(file->temporary, file->path) != 0)
        return failed(file->path, message);
    int closed = close(file->descriptor);
    file->descriptor = -1;
    comet_status status = closed == 0 && sync_folder(file->path) == 0 ? COMET_OK : failed(file->path, message);
    give_names(file);
    return status;
}

void comet_atomic_file_abandon(comet_atomic_file *file) {
    if (file->descriptor >= 0) {
        unlink(file->temporary); /* before the lock goes: it is ours */
        close(file->descriptor);
        file->descriptor = -1;
    }
    give_names(file);
}
