/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* fdopen, ftruncate */
#include "cmd/train/log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/exclusive_file.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"

/* Devices and pipes as they are; a file is one training's. */
static comet_exclusive open_file(const char *path, int *descriptor) {
    struct stat target;
    if (stat(path, &target) == 0 && !S_ISREG(target.st_mode)) {
        *descriptor = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
        return *descriptor < 0 ? COMET_EXCLUSIVE_FAILED : COMET_EXCLUSIVE_OK;
    }
    comet_exclusive answer = comet_exclusive_open(path, descriptor);
    if (answer == COMET_EXCLUSIVE_OK && fcntl(*descriptor, F_SETFL, O_APPEND) != 0)
        answer = COMET_EXCLUSIVE_FAILED;
    return answer;
}

comet_status log_file_open(log_file *log, const char *option, const char *path, int append, comet_message *message) {
    int descriptor = -1;
    *log = (log_file){.path = path, .fresh = !append};
    if (!path)
        return COMET_OK;
    comet_exclusive answer = open_file(path, &descriptor);
    log->file = answer == COMET_EXCLUSIVE_OK ? fdopen(descriptor, "a") : NULL;
    if (log->file)
        return COMET_OK;
    const int why = errno;
    if (descriptor >= 0)
        close(descriptor);
    return comet_message_set(message, COMET_ERROR_IO, "%s: cannot write '%.400s': %s", option, path,
                             answer == COMET_EXCLUSIVE_BUSY ? "another training is writing it" : strerror(why));
}

static long long size_of(const log_file *log) {
    struct stat status;
    return fstat(fileno(log->file), &status) == 0 && S_ISREG(status.st_mode) ? (long long)status.st_size : 0;
}

void log_file_begin_line(log_file *log) {
    if (log->fresh && size_of(log) > 0)
        log->failed |= ftruncate(fileno(log->file), 0) != 0;
    log->fresh = 0;
}

void log_file_end_line(log_file *log) {
    log->lines++;
    log->failed |= fflush(log->file) != 0; /* who follows the file sees it at once */
}

int log_file_is_empty(const log_file *log) {
    return log->lines == 0 && size_of(log) == 0;
}

int log_file_is_foreign(const log_file *log) {
    return log->fresh && size_of(log) > 0;
}

int log_file_close(log_file *log) {
    if (!log->file)
        return DONE;
    log->failed |= fclose(log->file) != 0;
    return log->failed ? fail("cannot write all of '%s': is the disk full?", log->path) : DONE;
}
