/* SPDX-License-Identifier: Apache-2.0 */
#define _DEFAULT_SOURCE /* flock */
#include "base/file/exclusive_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one program at a time ---- */

static int same_file(const struct stat *a, const struct stat *b) {
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev;
}

/* Who had the file before may have removed it between our open and our lock. */
static int still_named(const char *path, int descriptor) {
    struct stat mine, named;
    return fstat(descriptor, &mine) == 0 && stat(path, &named) == 0 && same_file(&mine, &named);
}

/* A file system without locks is no reason not to write there. */
static int cannot_lock(int number) {
    return number == ENOLCK || number == EOPNOTSUPP || number == ENOSYS || number == EINVAL;
}

comet_exclusive comet_exclusive_open(const char *path, int *descriptor) {
    for (;;) {
        *descriptor = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (*descriptor < 0)
            return COMET_EXCLUSIVE_FAILED;
        if (flock(*descriptor, LOCK_EX | LOCK_NB) != 0 && !cannot_lock(errno)) {
            const int why = errno;
            close(*descriptor);
            *descriptor = -1;
            errno = why;
            return why == EWOULDBLOCK ? COMET_EXCLUSIVE_BUSY : COMET_EXCLUSIVE_FAILED;
        }
        if (still_named(path, *descriptor))
            return COMET_EXCLUSIVE_OK;
        close(*descriptor);
    }
}

/* ---- another name ---- */

static int is_there(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0;
}

/* A program that ended between the two steps of a move left the file under both names. */
static int is_linked(const char *path, const char *to) {
    struct stat a, b;
    return lstat(path, &a) == 0 && lstat(to, &b) == 0 && same_file(&a, &b);
}

/*
 * Not all file systems have links, nor renames that do not replace: there only a program without our locks comes
 * between.
 */
static int move(const char *path, const char *to) {
    const int why = link(path, to) == 0 ? 0 : errno;
    if (why == 0 || (why == EEXIST && is_linked(path, to)))
        return unlink(path);
    const int without_links = why == EPERM || why == EOPNOTSUPP || why == ENOSYS || why == EMLINK;
    if (without_links && !is_there(to))
        return rename(path, to);
    errno = without_links ? EEXIST : why;
    return -1;
}

int comet_put_aside(const char *path, const char *stem, const char *extension, char *to, size_t capacity) {
    int answer = -1;
    errno = EEXIST;
    for (int number = 1; answer != 0 && errno == EEXIST && number < 1000000; number++) {
        int length = number == 1 ? snprintf(to, capacity, "%s%s", stem, extension)
                                 : snprintf(to, capacity, "%s-%d%s", stem, number, extension);
        if (length < 0 || (size_t)length >= capacity) {
            errno = ENAMETOOLONG;
            return -1;
        }
        errno = 0;
        answer = move(path, to);
    }
    return answer;
}
