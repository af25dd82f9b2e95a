/* SPDX-License-Identifier: Apache-2.0 */
/* A run's folder: it is one run's at a time, and what an earlier run left there stays. */
#define _DEFAULT_SOURCE /* gethostname */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file/exclusive_file.h"
#include "train/checkpoint/checkpoint_impl.h"
#include "train/run/run_impl.h"

/* ---- one run at a time ---- */

enum { HOLDER = 128 };

static void lock_path(const comet_run_session *s, comet_checkpoint_path *path) {
    snprintf(path->text, sizeof path->text, "%.1000s/lock", s->options->folder);
}

/* Who has the lock, as that run wrote it: "process 1234 on host". */
static void read_holder(const char *path, char holder[HOLDER]) {
    FILE *file = fopen(path, "r");
    size_t length = file ? fread(holder, 1, HOLDER - 1, file) : 0;
    holder[length] = '\0';
    holder[strcspn(holder, "\n")] = '\0';
    if (file)
        fclose(file);
}

/* It is for people: if it cannot be written the lock still holds. */
static void write_holder(int descriptor) {
    char host[64] = "", line[HOLDER];
    gethostname(host, sizeof host - 1);
    int length = snprintf(line, sizeof line, "process %ld on %.60s\n", (long)getpid(), host);
    if (ftruncate(descriptor, 0) != 0 || write(descriptor, line, (size_t)length) != length)
        return;
}

static comet_status lock(comet_run_session *s) {
    comet_checkpoint_path path;
    char holder[HOLDER];
    lock_path(s, &path);
    comet_exclusive answer = comet_exclusive_open(path.text, &s->lock);
    if (answer == COMET_EXCLUSIVE_OK) {
        write_holder(s->lock);
        return COMET_OK;
    }
    if (answer == COMET_EXCLUSIVE_FAILED)
        return comet_message_set(s->message, COMET_ERROR_IO, "cannot write checkpoints to '%.300s': lock: %s",
                                 s->options->folder, strerror(errno));
    read_holder(path.text, holder);
    return comet_message_set(
        s->message, COMET_ERROR_IO,
        "another training is writing its checkpoints to '%.300s' (%s); wait for it, or give another "
        "folder: --checkpoint OTHER",
        s->options->folder, holder[0] ? holder : "its process is not known");
}

/* That nothing can be written there is better known now than after the first epoch. */
static comet_status make_folder(comet_run_session *s) {
    const char *folder = s->options->folder;
    s->made_folder = mkdir(folder, 0777) == 0;
    if ((!s->made_folder && errno != EEXIST) || access(folder, W_OK | X_OK) != 0)
        return comet_message_set(s->message, COMET_ERROR_IO, "cannot write checkpoints to '%s': %s", folder,
                                 strerror(errno));
    return COMET_OK;
}

comet_status comet_run_open_folder(comet_run_session *s) {
    const comet_run_options *o = s->options;
    comet_checkpoint_path path;
    if (!o->folder && o->resume)
        return comet_message_set(s->message, COMET_ERROR_ARGUMENT, "to resume takes a folder of checkpoints");
    if (!o->folder)
        return COMET_OK;
    comet_status status = comet_checkpoint_path_of(o->folder, COMET_CHECKPOINT_PREVIOUS, &path, s->message);
    const int must = o->resume == COMET_RUN_RESUME;
    if (status == COMET_OK && (!must || access(o->folder, F_OK) == 0)) {
        status = make_folder(s);
        if (status == COMET_OK)
            status = lock(s);
    }
    if (status == COMET_OK && must && !comet_checkpoint_exists(o->folder))
        status = comet_message_set(s->message, COMET_ERROR_IO,
                                   "there is no checkpoint in '%.300s' to resume from; --resume=auto begins anew where "
                                   "there is none",
                                   o->folder);
    return status;
}

void comet_run_close_folder(comet_run_session *s) {
    comet_checkpoint_path path;
    if (s->lock >= 0) {
        lock_path(s, &path);
        unlink(path.text); /* before the lock goes: it is ours */
        close(s->lock);
        s->lock = -1;
    }
    if (s->made_folder)
        rmdir(s->options->folder);
}

/* ---- an earlier run's checkpoints ---- */

/* *first: the newest file that is whole; COMET_CHECKPOINT_FILES: none is. */
static comet_status find_whole(const comet_run_session *s, int *first) {
    for (*first = 0; *first < COMET_CHECKPOINT_FILES; ++*first) {
        comet_checkpoint_path path;
        int whole = 0;
        comet_status status = comet_checkpoint_path_of(s->options->folder, *first, &path, s->message);
        if (status == COMET_OK && access(path.text, F_OK) == 0 &&
            comet_checkpoint_is_whole(path.text, s->allocator, &whole) != COMET_OK)
            status = comet_message_memory(s->message);
        if (status != COMET_OK || whole)
            return status;
    }
    return COMET_OK;
}

static comet_status failed(const comet_run_session *s, const char *what, const char *path) {
    return comet_message_set(s->message, COMET_ERROR_IO, "cannot %s '%.400s': %s", what, path, strerror(errno));
}

static comet_status rename_file(comet_run_session *s, const char *path, int whole) {
    char stem[1200], to[1300];
    comet_message note;
    snprintf(stem, sizeof stem, "%s/earlier", s->options->folder);
    if (comet_put_aside(path, stem, ".safetensors", to, sizeof to) != 0)
        return failed(s, "put aside", path);
    comet_message_set(&note, COMET_OK, "beginning anew; the earlier run's checkpoint%s is now '%.500s'",
                      whole ? "" : ", which is damaged,", to);
    comet_run_note(s, note.text);
    return COMET_OK;
}

/*
 * What is older than the one that is kept goes first; the newest gets its name last, and can be gone on from until
 * then.
 */
comet_status comet_run_put_aside(comet_run_session *s) {
    int whole;
    comet_status status = find_whole(s, &whole);
    for (int file = COMET_CHECKPOINT_FILES - 1; file >= 0 && status == COMET_OK; file--) {
        comet_checkpoint_path path;
        status = comet_checkpoint_path_of(s->options->folder, file, &path, s->message);
        if (status != COMET_OK || access(path.text, F_OK) != 0)
            continue;
        if (file <= whole)
            status = rename_file(s, path.text, file == whole);
        else if (unlink(path.text) != 0)
            status = failed(s, "remove", path.text);
    }
    return status;
}
