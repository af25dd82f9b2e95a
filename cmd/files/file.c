/* SPDX-License-Identifier: Apache-2.0 */
/* Reading whole files, and taking names apart. */
#include "cmd/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

static int read_all(FILE *file, const char *path, buffer *content) {
    struct stat status;
    if (fstat(fileno(file), &status) != 0)
        return fail("cannot read '%s': %s", path, strerror(errno));
    if (!S_ISREG(status.st_mode))
        return fail("'%s' is not a regular file", path);
    if (buffer_take(content, (size_t)status.st_size) != DONE)
        return FAILED;
    if (fread(content->data, 1, content->bytes, file) != content->bytes) {
        buffer_give(content);
        return fail("cannot read all of '%s'", path);
    }
    return DONE;
}

int file_read(const char *path, buffer *content) {
    *content = (buffer){0};
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe would wait for its other end */
    FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "rb");
    if (!file && descriptor >= 0)
        close(descriptor);
    if (!file)
        return fail("cannot open '%s': %s", path, strerror(errno));
    int answer = read_all(file, path, content);
    fclose(file);
    return answer;
}

int file_has_extension(const char *path, const char *extension) {
    size_t length = strlen(path), tail = strlen(extension);
    return length > tail && strcasecmp(path + length - tail, extension) == 0;
}

void file_stem(const char *path, char *stem, size_t capacity) {
    const char *slash = strrchr(path, '/');
    snprintf(stem, capacity, "%s", slash ? slash + 1 : path);
    char *dot = strrchr(stem, '.');
    if (dot && dot != stem)
        *dot = '\0';
}
