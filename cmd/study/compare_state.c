/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A head, the options as text, then a frame and a record for each run. Records are plain memory of this program:
 * another version does not read them. A frame is written behind its record: what a killed program leaves half written
 * has none, and is written over.
 */
#define _XOPEN_SOURCE 700 /* pread, pwrite */
#include "cmd/study/compare_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "base/file/exclusive_file.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/common/options.h"
#include "comet/version.h"

typedef struct head {
    char magic[16], version[40];
    uint32_t figures_bytes, layer_bytes, bound_bytes;
    uint32_t given_bytes; /* of the text behind it, with its end */
} head;

typedef struct frame {
    uint32_t mark;
    int32_t index;
    uint64_t bytes; /* of the record behind it */
    uint32_t crc, zero;
} frame;

enum { MARK = 0x6e757243, MOST_GIVEN = 1 << 20 };
static const char magic[16] = "comet runs 1\n";

static head our_head(const char *given) {
    head h;
    memset(&h, 0, sizeof h);
    memcpy(h.magic, magic, sizeof magic);
    snprintf(h.version, sizeof h.version, "%s", comet_version_string());
    h.figures_bytes = sizeof(record_figures);
    h.layer_bytes = sizeof(record_layer);
    h.bound_bytes = sizeof(record_bound);
    h.given_bytes = (uint32_t)strlen(given) + 1;
    return h;
}

/* ---- what is there ---- */

typedef enum content { EMPTY, FOREIGN, OTHER_VERSION, RUNS } content;

static int read_at(int file, void *data, size_t bytes, off_t at) {
    return pread(file, data, bytes, at) == (ssize_t)bytes;
}

/* *given: the options of then, to be freed; NULL unless there are runs. */
static content look(int file, char **given) {
    struct stat status;
    const head ours = our_head("");
    head h;
    memset(&h, 0, sizeof h);
    *given = NULL;
    if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode))
        return FOREIGN;
    const size_t begun = status.st_size < (off_t)sizeof h ? (size_t)status.st_size : sizeof h;
    if (!read_at(file, &h, begun, 0) || memcmp(h.magic, magic, begun < sizeof magic ? begun : sizeof magic) != 0)
        return FOREIGN;
    if (begun < sizeof h || status.st_size <= (off_t)(sizeof h + h.given_bytes))
        return EMPTY; /* or was killed before the first run was finished */
    if (memcmp(h.version, ours.version, sizeof h.version) != 0 || h.figures_bytes != ours.figures_bytes ||
        h.layer_bytes != ours.layer_bytes || h.bound_bytes != ours.bound_bytes || h.given_bytes == 0 ||
        h.given_bytes > MOST_GIVEN)
        return OTHER_VERSION;
    *given = malloc(h.given_bytes);
    if (!*given || !read_at(file, *given, h.given_bytes, sizeof h))
        return OTHER_VERSION;
    (*given)[h.given_bytes - 1] = '\0';
    return RUNS;
}

/* The sum of what follows the frame at `at`; 0 if not all of it is there. */
static int sum_record(int file, off_t at, uint64_t bytes, uint32_t *sum) {
    unsigned char piece[16384];
    uLong crc = crc32(0, NULL, 0);
    for (uint64_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < sizeof piece ? bytes - done : sizeof piece;
        if (!read_at(file, piece, (size_t)part, at + (off_t)(sizeof(frame) + done)))
            return 0;
        crc = crc32(crc, piece, (uInt)part);
    }
    *sum = (uint32_t)crc;
    return 1;
}

/* The record at `at`, and where the next one is; -1: there is no whole one. */
static off_t read_record(int file, off_t at, int runs, record *records) {
    frame f;
    uint32_t sum;
    if (!read_at(file, &f, sizeof f, at) || f.mark != MARK || f.index < 0 || f.index >= runs ||
        !sum_record(file, at, f.bytes, &sum) || sum != f.crc)
        return -1;
    record *r = &records[f.index];
    const off_t end = at + (off_t)(sizeof f + f.bytes);
    if (r->figures.name[0] || lseek(file, at + (off_t)sizeof f, SEEK_SET) < 0 || !record_read(r, file))
        return -1;
    if (lseek(file, 0, SEEK_CUR) == end)
        return end;
    record_free(r);
    return -1;
}

/* ---- opening ---- */

/* Behind the head, nothing. */
static int write_head(compare_state *s, const char *given) {
    const head h = our_head(given);
    if (ftruncate(s->file, 0) == 0 && pwrite(s->file, &h, sizeof h, 0) == (ssize_t)sizeof h &&
        pwrite(s->file, given, h.given_bytes, sizeof h) == (ssize_t)h.given_bytes &&
        lseek(s->file, 0, SEEK_END) == (off_t)(sizeof h + h.given_bytes))
        return DONE;
    return fail("--state: cannot write '%.400s': %s", s->path, strerror(errno));
}

static int open_file(compare_state *s) {
    switch (comet_exclusive_open(s->path, &s->file)) {
    case COMET_EXCLUSIVE_OK:
        return DONE;
    case COMET_EXCLUSIVE_BUSY:
        return fail("another comparison keeps its runs in '%.400s'; wait for it, or give another file: --state OTHER",
                    s->path);
    default:
        return fail("--state: cannot write '%.400s': %s; another file, or none, will do", s->path, strerror(errno));
    }
}

/* The runs of an interrupted comparison stay, under another name. */
static int put_aside(compare_state *s) {
    char stem[4096], to[4200];
    snprintf(stem, sizeof stem, "%.4000s.earlier", s->path);
    if (comet_put_aside(s->path, stem, "", to, sizeof to) != 0)
        return fail("cannot put aside '%.400s': %s", s->path, strerror(errno));
    note("beginning anew; the finished runs of an earlier comparison are now in '%.400s'", to);
    close(s->file);
    return open_file(s);
}

static int go_on(compare_state *s, const compare_state_plan *plan, const char *then, record *records) {
    char differences[600];
    given_differences(then, plan->given, differences, sizeof differences);
    if (differences[0])
        return fail("the runs in '%.200s' are of another comparison: %s", s->path, differences);
    off_t at = (off_t)(sizeof(head) + strlen(then) + 1), end = at;
    while ((at = read_record(s->file, at, plan->runs, records)) > 0) {
        end = at;
        s->kept++;
    }
    if (ftruncate(s->file, end) != 0 || lseek(s->file, end, SEEK_SET) != end)
        return fail("--state: cannot write '%.400s': %s", s->path, strerror(errno));
    note("going on: %d of %d runs are finished", s->kept, plan->runs);
    return DONE;
}

static int refuse_empty(const compare_state *s) {
    return fail("there are no finished runs in '%.400s' to go on with; --resume=auto begins anew where there are none",
                s->path);
}

static int begin(compare_state *s, const compare_state_plan *plan, record *records) {
    char *then;
    const content c = look(s->file, &then);
    int answer = DONE;
    if (c == FOREIGN)
        answer = fail("--state: '%.400s' is not a file of finished runs; choose another name", s->path);
    else if (c == EMPTY && plan->resume == COMET_RUN_RESUME)
        answer = refuse_empty(s);
    else if (c == OTHER_VERSION && plan->resume)
        answer =
            fail("the runs in '%.400s' were kept by another version of comet; begin anew, without --resume", s->path);
    else if (c == RUNS && plan->resume)
        answer = go_on(s, plan, then, records);
    else {
        if (plan->resume)
            note("there are no finished runs in '%.400s': beginning anew", s->path);
        if (c != EMPTY)
            answer = put_aside(s);
        if (answer == DONE)
            answer = write_head(s, plan->given);
    }
    free(then);
    return answer;
}

int compare_state_open(compare_state *s, const compare_state_plan *plan, record *records) {
    *s = (compare_state){.path = plan->path, .file = -1};
    if (!plan->path)
        return DONE;
    if (plan->resume == COMET_RUN_RESUME && access(plan->path, F_OK) != 0)
        return refuse_empty(s);
    int answer = open_file(s);
    if (answer == DONE)
        answer = begin(s, plan, records);
    if (answer != DONE)
        compare_state_leave(s);
    return answer;
}

/* ---- keeping ---- */

/* The frame last: until then there is no record. */
static int put_record(compare_state *s, off_t at, int index, const record *r) {
    frame f = {.mark = MARK, .index = index};
    if (lseek(s->file, at + (off_t)sizeof f, SEEK_SET) < 0 || !record_write(r, s->file))
        return 0;
    const off_t end = lseek(s->file, 0, SEEK_CUR);
    f.bytes = (uint64_t)(end - at) - sizeof f;
    return sum_record(s->file, at, f.bytes, &f.crc) && fsync(s->file) == 0 &&
           pwrite(s->file, &f, sizeof f, at) == (ssize_t)sizeof f && fsync(s->file) == 0;
}

void compare_state_add(compare_state *s, int index, const record *r) {
    if (s->file < 0)
        return;
    const off_t at = lseek(s->file, 0, SEEK_CUR);
    if (put_record(s, at, index, r)) {
        s->kept++;
        return;
    }
    note("cannot keep this run in '%.400s': %s; it would be lost if the comparison were interrupted", s->path,
         strerror(errno));
    if (ftruncate(s->file, at) != 0 || lseek(s->file, at, SEEK_SET) != at)
        compare_state_leave(s);
}

void compare_state_leave(compare_state *s) {
    if (s->file >= 0)
        close(s->file);
    s->file = -1;
}

void compare_state_close(compare_state *s, int complete) {
    if (s->file >= 0 && (complete || s->kept == 0))
        unlink(s->path); /* before the lock goes: it is ours */
    compare_state_leave(s);
}
