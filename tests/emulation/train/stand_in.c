/* SPDX-License-Identifier: Apache-2.0 */
/* A loader over the libraries that the tests have themselves. */
#include "stand_in.h"

#include <string.h>

static const comet_stand_in_library *const libraries[] = {&comet_stand_in_cudnn, &comet_stand_in_cublaslt_13,
                                                          &comet_stand_in_cublaslt_12};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static const char *hidden;
static int open_count;

static int is_hidden(const char *name) {
    return hidden && strcmp(hidden, name) == 0;
}

static void *stand_in_open(const char *name) {
    for (int i = 0; i < LIBRARIES; i++)
        if (strcmp(libraries[i]->file, name) == 0 && !is_hidden(name)) {
            open_count++;
            return (void *)libraries[i];
        }
    return NULL;
}

static void *stand_in_symbol(void *library, const char *name) {
    const comet_stand_in_library *l = library;
    for (size_t i = 0; i < l->count && !is_hidden(name); i++)
        if (strcmp(l->functions[i].name, name) == 0) {
            void *address;
            memcpy(&address, &l->functions[i].function, sizeof address);
            return address;
        }
    return NULL;
}

static void stand_in_close(void *library) {
    (void)library;
    open_count--;
}

const comet_library_loader *comet_stand_in_loader(void) {
    static const comet_library_loader loader = {
        .open = stand_in_open, .symbol = stand_in_symbol, .close = stand_in_close};
    return &loader;
}

void comet_stand_in_reset(void) {
    hidden = NULL;
    for (int i = 0; i < LIBRARIES; i++)
        if (libraries[i]->reset)
            libraries[i]->reset();
}

void comet_stand_in_hide(const char *name) {
    hidden = name;
}

int comet_stand_in_open_libraries(void) {
    return open_count;
}
