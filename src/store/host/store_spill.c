/* SPDX-License-Identifier: Apache-2.0 */
#include "store/host/store_spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fail.h"

/* ---- the file ---- */

static comet_status system_failed(comet_status status, const char *what, int error) {
    char why[128] = "";
    (void)strerror_r(error, why, sizeof why);
    return comet_fail(status, "%s: %s", what, why);
}

comet_status comet_spill_open(spill_file *spill, const store_io *io, const char *directory, uint64_t limit) {
    *spill = (spill_file){.io = io, .file = -1, .limit = limit ? limit : INT64_MAX};
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/comet-spill-XXXXXX", directory);
    if (length < 0 || (size_t)length >= sizeof path)
        return comet_fail(COMET_ERROR_IO, "options->spill_directory is too long a name");
    int file = mkstemp(path);
    if (file < 0)
        return system_failed(COMET_ERROR_IO, "options->spill_directory: no file can be made there", errno);
    (void)unlink(path); /* it goes with the process, however that ends */
    (void)fcntl(file, F_SETFD, FD_CLOEXEC);
    spill->file = file;
    return COMET_OK;
}

void comet_spill_close(spill_file *spill) {
    if (spill->file >= 0)
        close(spill->file);
    spill->file = -1;
}

static comet_status status_of(int error) {
    int is_full = error == ENOSPC || error == EFBIG || error == EDQUOT;
    return system_failed(is_full ? COMET_ERROR_DISK_FULL : COMET_ERROR_IO, "the spill file cannot be written", error);
}

comet_status comet_spill_write(const spill_file *spill, const spill_extent *extent, uint64_t at, const void *data,
                               size_t bytes) {
    const char *from = data;
    for (size_t done = 0; done < bytes;) {
        off_t offset = (off_t)(extent->offset + at + done);
        ssize_t n = spill->io->write(spill->io->context, spill->file, from + done, bytes - done, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return status_of(errno);
        if (n == 0)
            return comet_fail(COMET_ERROR_DISK_FULL, "the spill file takes no more, and the system gives no reason");
        done += (size_t)n;
    }
    return COMET_OK;
}

comet_status comet_spill_read(const spill_file *spill, const spill_extent *extent, uint64_t at, void *data,
                              size_t bytes) {
    char *to = data;
    for (size_t done = 0; done < bytes;) {
        off_t offset = (off_t)(extent->offset + at + done);
        ssize_t n = spill->io->read(spill->io->context, spill->file, to + done, bytes - done, offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return system_failed(COMET_ERROR_IO, "the spill file cannot be read", errno);
        if (n == 0)
            return comet_fail(COMET_ERROR_CORRUPT, "the spill file was cut short");
        done += (size_t)n;
    }
    return COMET_OK;
}

void comet_spill_read_ahead(const spill_file *spill, const spill_extent *extent) {
#ifdef POSIX_FADV_WILLNEED
    (void)posix_fadvise(spill->file, (off_t)extent->offset, (off_t)extent->bytes, POSIX_FADV_WILLNEED);
#else
    (void)spill, (void)extent;
#endif
}

/* ---- its extents ---- */

static void link_above(spill_file *spill, spill_extent *below, spill_extent *extent) {
    extent->below = below;
    extent->above = below ? below->above : spill->first;
    *(below ? &below->above : &spill->first) = extent;
    *(extent->above ? &extent->above->below : &spill->last) = extent;
}

static void unlink_extent(spill_file *spill, spill_extent *extent) {
    *(extent->below ? &extent->below->above : &spill->first) = extent->above;
    *(extent->above ? &extent->above->below : &spill->last) = extent->below;
}

/* The smallest free extent that is large enough. */
static spill_extent *best_fit(const spill_file *spill, uint64_t bytes) {
    spill_extent *best = NULL;
    for (spill_extent *e = spill->first; e; e = e->above)
        if (!e->used && e->bytes >= bytes && (!best || e->bytes < best->bytes))
            best = e;
    return best;
}

comet_status comet_spill_place(spill_file *spill, uint64_t bytes, spill_extent *spare, spill_extent **extent,
                               spill_extent **unused) {
    bytes = (bytes + SPILL_UNIT - 1) / SPILL_UNIT * SPILL_UNIT;
    spill_extent *hole = best_fit(spill, bytes);
    *unused = spare;
    if (hole && hole->bytes == bytes) {
        hole->used = 1;
        *extent = hole;
        return COMET_OK;
    }
    if (!hole && (spill->end > spill->limit || spill->limit - spill->end < bytes))
        return comet_fail(COMET_ERROR_DISK_FULL, "the spill file is at options->spill_limit_bytes");
    *spare = (spill_extent){.offset = hole ? hole->offset : spill->end, .bytes = bytes, .used = 1};
    link_above(spill, hole ? hole->below : spill->last, spare);
    if (hole) {
        hole->offset += bytes;
        hole->bytes -= bytes;
    } else {
        spill->end += bytes;
        spill->peak_end = spill->end > spill->peak_end ? spill->end : spill->peak_end;
    }
    *extent = spare;
    *unused = NULL;
    return COMET_OK;
}

/* Adds `gone`, the free neighbour above `kept`, to it. */
static void merge(spill_file *spill, spill_extent *kept, spill_extent *gone) {
    kept->bytes += gone->bytes;
    unlink_extent(spill, gone);
}

void comet_spill_free(spill_file *spill, spill_extent *extent, spill_extent *unused[3]) {
    int count = 0;
    memset(unused, 0, 3 * sizeof *unused);
    extent->used = 0;
    if (extent->above && !extent->above->used) {
        unused[count++] = extent->above;
        merge(spill, extent, extent->above);
    }
    if (extent->below && !extent->below->used) {
        spill_extent *below = extent->below;
        unused[count++] = extent;
        merge(spill, below, extent);
        extent = below;
    }
    if (!extent->above) {
        spill->end = extent->offset;
        unlink_extent(spill, extent);
        unused[count] = extent;
    }
    if (spill->end == 0) /* dead bytes need not reach the disk; if it fails they only take space */
        (void)spill->io->truncate(spill->io->context, spill->file, 0);
}
