/* SPDX-License-Identifier: Apache-2.0 */
/* Plain files and zip archives seen alike. */
#include "cmd/files/bundle.h"

#include <stdlib.h>
#include <string.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"

int bundle_open(bundle *b, const char *path, int as_plain) {
    *b = (bundle){.path = path, .count = 1};
    if (file_read(path, &b->file) != DONE)
        return FAILED;
    file_stem(path, b->stem, sizeof b->stem);
    b->is_archive = !as_plain && (zip_is(b->file.data, b->file.bytes) || file_has_extension(path, ".npz"));
    if (!b->is_archive)
        return DONE;
    const char *problem = zip_open(&b->archive, b->file.data, b->file.bytes);
    if (problem) {
        bundle_close(b);
        return fail("cannot read '%s': %s", path, problem);
    }
    b->count = b->archive.count;
    return DONE;
}

void bundle_close(bundle *b) {
    zip_close(&b->archive);
    buffer_give(&b->file);
}

int bundle_get(const bundle *b, size_t index, blob *piece) {
    *piece = (blob){.name = b->stem, .data = b->file.data, .bytes = b->file.bytes};
    snprintf(piece->where, sizeof piece->where, "'%s'", b->path);
    if (!b->is_archive)
        return DONE;
    piece->name = b->archive.entries[index].name;
    snprintf(piece->where, sizeof piece->where, "'%s' in '%s'", piece->name, b->path);
    const char *problem = zip_read(&b->archive, index, &piece->memory, &piece->data, &piece->bytes);
    return problem ? fail("cannot read %s: %s", piece->where, problem) : DONE;
}

void blob_give(blob *piece) {
    buffer_give(&piece->memory);
}

char *name_replace_ending(const char *name, const char *from, const char *to) {
    size_t length = strlen(name), tail = strlen(to);
    if (file_has_extension(name, from))
        length -= strlen(from);
    char *replaced = malloc(length + tail + 1);
    if (replaced) {
        memcpy(replaced, name, length);
        memcpy(replaced + length, to, tail + 1);
    }
    return replaced;
}
