/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs that are written at the end are tried at the beginning. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/files/file.h"

/* Files are written under another name in the same folder, then renamed: that name is tried. */
static int make_beside(const char *path) {
    char name[4096];
    const int length = snprintf(name, sizeof name, "%s.%ld.tmp", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof name)
        return ENAMETOOLONG;
    const int descriptor = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0)
        return errno;
    close(descriptor);
    return unlink(name) == 0 ? 0 : errno;
}

comet_status output_try(const char *option, const char *path, comet_message *message) {
    struct stat target;
    if (!path)
        return COMET_OK;
    if (stat(path, &target) == 0 && !S_ISREG(target.st_mode))
        return comet_message_set(message, COMET_ERROR_IO, "%s: '%.400s' exists and is not a regular file", option,
                                 path);
    char *real = realpath(path, NULL); /* where a link points; NULL if there is nothing yet */
    const int why = *path ? make_beside(real ? real : path) : ENOENT;
    free(real);
    if (why != 0)
        return comet_message_set(message, COMET_ERROR_IO, "%s: cannot write '%.400s': %s", option, path, strerror(why));
    return COMET_OK;
}
