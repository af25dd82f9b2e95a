/* SPDX-License-Identifier: Apache-2.0 */
/* What the library says of itself in words: statuses, and its version. */
#include "comet/status.h"

#include "comet/version.h"

const char *comet_status_string(comet_status status) {
    switch (status) {
    case COMET_OK:
        return "no error";
    case COMET_ERROR_ARGUMENT:
        return "invalid argument";
    case COMET_ERROR_UNSUPPORTED:
        return "not supported";
    case COMET_ERROR_MEMORY:
        return "out of memory";
    case COMET_ERROR_CAPACITY:
        return "buffer, workspace or limit too small";
    case COMET_ERROR_CORRUPT:
        return "corrupt or truncated stream";
    case COMET_ERROR_VERSION:
        return "stream of another format version";
    case COMET_ERROR_CHECKSUM:
        return "checksum of the stream does not match";
    case COMET_ERROR_MISMATCH:
        return "stream does not fit the tensor or the parameters";
    case COMET_ERROR_NO_DEVICE:
        return "no CUDA device";
    case COMET_ERROR_DRIVER:
        return "driver too old for this library's CUDA runtime";
    case COMET_ERROR_DEVICE:
        return "a CUDA call, or earlier work on the device, failed";
    case COMET_ERROR_IO:
        return "a file could not be made, read or written";
    case COMET_ERROR_DISK_FULL:
        return "no space left for a file";
    case COMET_ERROR_DIVERGED:
        return "training has diverged: values are not finite";
    }
    return "unknown status";
}

const char *comet_version_string(void) {
    return COMET_VERSION_STRING;
}
