/* SPDX-License-Identifier: Apache-2.0 */
/* What every call of the library answers. Results travel through out-pointers; the return value is only ever this. */
#ifndef COMET_STATUS_H
#define COMET_STATUS_H

#include "comet/export.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum comet_status {
    COMET_OK = 0,
    COMET_ERROR_ARGUMENT = 1,    /* a NULL, negative, non-finite or contradictory argument */
    COMET_ERROR_UNSUPPORTED = 2, /* valid, but this build or this codec does not do it */
    COMET_ERROR_MEMORY = 3,      /* the allocator returned NULL */
    COMET_ERROR_CAPACITY = 4,    /* output buffer or workspace smaller than asked for, or no room within a limit */
    COMET_ERROR_CORRUPT = 5,     /* the stream contradicts itself or is cut short */
    COMET_ERROR_VERSION = 6,     /* the stream was written by another version of the format */
    COMET_ERROR_CHECKSUM = 7,    /* the stream carries a checksum and it does not match */
    COMET_ERROR_MISMATCH = 8,    /* the stream is fine but does not fit the tensor or the parameters given */
    COMET_ERROR_NO_DEVICE = 9,   /* no CUDA device, no driver, or a library built without CUDA */
    COMET_ERROR_DRIVER = 10,     /* the driver is older than the CUDA runtime of this library */
    COMET_ERROR_DEVICE = 11,     /* a CUDA call failed, or work given to the device earlier did */
    COMET_ERROR_IO = 12,         /* a file is missing, or could not be made, read or written */
    COMET_ERROR_DISK_FULL = 13,  /* no space left for a file, or its size limit is reached */
    COMET_ERROR_DIVERGED = 14    /* training: values became infinite or NaN, and there is nothing to go on with */
} comet_status;

/* One short English line, never NULL, for any value (unknown ones included). Static storage. Thread-safe. */
COMET_API const char *comet_status_string(comet_status status);

/*
 * Why the last call of this thread failed, of those that return a status: one line that says which argument is wrong
 * and what it must be. "" if that call succeeded, or has nothing to add to its status. Never NULL. Valid until the
 * thread's next such call; other threads do not see it. It lies in thread-local memory, which is all that the library
 * keeps outside of what its caller holds.
 */
COMET_API const char *comet_last_error(void);

#ifdef __cplusplus
}
#endif

#endif
