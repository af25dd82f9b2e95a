/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear complete or not at all, also where a signal ends the command. */
#define _XOPEN_SOURCE 700 /* realpath */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/files/file.h"

/* What a signal handler removes. A copy: the file's own names go with it. */
static char doomed[4096];
static volatile sig_atomic_t is_doomed;

static void remove_and_die(int number) {
    if (is_doomed)
        unlink(doomed);
    signal(number, SIG_DFL);
    raise(number);
}

static void watch_signals(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction action = {0};
        sigaction(numbers[i], NULL, &action);
        if (action.sa_handler == SIG_IGN)
            continue; /* nohup */
        action.sa_handler = remove_and_die;
        sigaction(numbers[i], &action, NULL);
    }
}

static int check_target(const char *path, const char *input) {
    struct stat target, source;
    if (stat(path, &target) != 0)
        return DONE;
    if (!S_ISREG(target.st_mode))
        return fail("'%s' exists and is not a regular file; choose another name for -o", path);
    if (input && stat(input, &source) == 0 && source.st_dev == target.st_dev && source.st_ino == target.st_ino)
        return fail("'%s' is the input itself; choose another name for -o", path);
    return DONE;
}

static int fail_write(const output_file *out) {
    return fail("cannot write '%s': %s", out->given, strerror(errno));
}

int output_open(output_file *out, const char *path, const char *input) {
    comet_message message;
    *out = (output_file){.given = path, .target = {.descriptor = -1}};
    if (check_target(path, input) != DONE)
        return FAILED;
    watch_signals();
    if (comet_atomic_file_open(&out->target, path, &message) != COMET_OK)
        return fail("%s", message.text);
    int length = snprintf(doomed, sizeof doomed, "%s", out->target.temporary);
    is_doomed = (size_t)length < sizeof doomed;
    out->file = comet_atomic_file_stream(&out->target);
    if (out->file)
        return DONE;
    output_abandon(out);
    return fail_memory();
}

int output_write(output_file *out, const void *data, size_t bytes) {
    return bytes && fwrite(data, 1, bytes, out->file) != bytes ? fail_write(out) : DONE;
}

int output_commit(output_file *out) {
    comet_message message;
    int closed = fclose(out->file);
    out->file = NULL;
    if (closed != 0)
        return fail_write(out);
    if (comet_atomic_file_commit(&out->target, &message) != COMET_OK)
        return fail("%s", message.text);
    is_doomed = 0;
    return DONE;
}

void output_abandon(output_file *out) {
    if (out->file)
        fclose(out->file);
    out->file = NULL;
    comet_atomic_file_abandon(&out->target);
    is_doomed = 0;
}

/* ---- tried at the beginning, for what is written at the end ---- */

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
    const int failure = *path ? make_beside(real ? real : path) : ENOENT;
    free(real);
    if (failure != 0)
        return comet_message_set(message, COMET_ERROR_IO, "%s: cannot write '%.400s': %s", option, path,
                                 strerror(failure));
    return COMET_OK;
}
