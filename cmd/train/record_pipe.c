/* SPDX-License-Identifier: Apache-2.0 */
/* Records through a pipe, between two processes of the same program: plain memory, one array behind the other. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd/train/record.h"

static int put(int file, const void *data, size_t bytes) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t done = write(file, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

static int get(int file, void *data, size_t bytes) {
    char *at = data;
    while (bytes > 0) {
        ssize_t done = read(file, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

/* A new array of what comes. */
static int get_array(int file, void *pointer, size_t count, size_t size) {
    void *array = malloc(count * size + 1);
    *(void **)pointer = array;
    return array && get(file, array, count * size);
}

int record_write(const record *r, int file) {
    const record_figures *f = &r->figures;
    return put(file, f, sizeof *f) && put(file, r->loss_step, f->loss_count * sizeof *r->loss_step) &&
           put(file, r->loss, f->loss_count * sizeof *r->loss) &&
           put(file, r->ratio, f->loss_count * sizeof *r->ratio) &&
           put(file, r->evaluation_step, f->evaluation_count * sizeof *r->evaluation_step) &&
           put(file, r->accuracy, f->evaluation_count * sizeof *r->accuracy) &&
           put(file, r->memory, f->time_count * sizeof *r->memory) &&
           put(file, r->layers, f->layer_count * sizeof *r->layers) &&
           put(file, r->bounds, f->bound_count * sizeof *r->bounds) &&
           put(file, r->bounded, f->bounded_count * sizeof *r->bounded);
}

int record_read(record *r, int file) {
    record_figures *f = &r->figures;
    *r = (record){.stride = 1};
    if (get(file, f, sizeof *f) && get_array(file, &r->loss_step, f->loss_count, sizeof *r->loss_step) &&
        get_array(file, &r->loss, f->loss_count, sizeof *r->loss) &&
        get_array(file, &r->ratio, f->loss_count, sizeof *r->ratio) &&
        get_array(file, &r->evaluation_step, f->evaluation_count, sizeof *r->evaluation_step) &&
        get_array(file, &r->accuracy, f->evaluation_count, sizeof *r->accuracy) &&
        get_array(file, &r->memory, f->time_count, sizeof *r->memory) &&
        get_array(file, &r->layers, f->layer_count, sizeof *r->layers) &&
        get_array(file, &r->bounds, f->bound_count, sizeof *r->bounds) &&
        get_array(file, &r->bounded, f->bounded_count, sizeof *r->bounded))
        return 1;
    record_free(r);
    return 0;
}
