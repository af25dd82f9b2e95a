/* SPDX-License-Identifier: Apache-2.0 */
#include "train/backend/cuda/library/library.h"

#include <dlfcn.h>
#include <string.h>

#include "base/fail.h"

/*
 * Libraries with device code register it with the process, and threads of theirs may still be there when we close them:
 * the last close leaves them in place, for whoever opens them next.
 */
static void *system_open(const char *name) {
#ifdef RTLD_NODELETE
    return dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#else
    return dlopen(name, RTLD_NOW | RTLD_LOCAL);
#endif
}

static void *system_symbol(void *library, const char *name) {
    return dlsym(library, name);
}

static void system_close(void *library) {
    dlclose(library);
}

const comet_library_loader comet_library_system = {.open = system_open, .symbol = system_symbol, .close = system_close};

comet_status comet_library_refuse(comet_message *message, const char *format, ...) {
    comet_message own, *to = message ? message : &own;
    va_list arguments;
    va_start(arguments, format);
    comet_message_set_list(to, format, arguments);
    va_end(arguments);
    return comet_fail(COMET_ERROR_UNSUPPORTED, "%s", to->text);
}

/* A pointer to an object is one to a function where there is dlsym, but C has no conversion. */
static void set_function(void *functions, size_t offset, void *address) {
    _Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym gives functions as pointers to objects");
    memcpy((char *)functions + offset, &address, sizeof address);
}

static comet_status find_symbols(const comet_library *library, const comet_library_wanted *wanted, void *functions,
                                 comet_message *message) {
    for (size_t i = 0; i < wanted->count; i++) {
        const comet_library_symbol *s = &wanted->symbols[i];
        void *address = library->loader->symbol(library->handle, s->name);
        if (!address)
            return comet_library_refuse(message, "%s has no %s: it is not %s, or is damaged; install %s anew",
                                        library->file, s->name, wanted->product, wanted->product);
        set_function(functions, s->offset, address);
    }
    return COMET_OK;
}

comet_status comet_library_open(const comet_library_loader *loader, const comet_library_wanted *wanted, void *functions,
                                comet_library *library, comet_message *message) {
    *library = (comet_library){.loader = loader ? loader : &comet_library_system};
    for (const char *const *file = wanted->files; *file && !library->handle; file++) {
        library->handle = library->loader->open(*file);
        library->file = *file;
    }
    if (!library->handle)
        return comet_library_refuse(message, "%s was not found: install %s or put its folder into LD_LIBRARY_PATH",
                                    wanted->files[0], wanted->product);
    comet_status status = find_symbols(library, wanted, functions, message);
    if (status != COMET_OK)
        comet_library_close(library);
    return status;
}

void comet_library_close(comet_library *library) {
    if (library->handle)
        library->loader->close(library->handle);
    library->handle = NULL;
}
