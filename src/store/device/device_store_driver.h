/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the device store needs of a device, so that its logic is plain C and can be tested without one. Every call that
 * returns a status may fail; one that fails has done nothing. All but enter, leave and queue_health are called between
 * enter and leave, which may be nested. queue_health, with its enter and leave, is called from any thread.
 */
#ifndef COMET_STORE_DEVICE_STORE_DRIVER_H
#define COMET_STORE_DEVICE_STORE_DRIVER_H

#include <stddef.h>
#include <stdint.h>

#include "comet/cuda.h"

typedef struct device_store_driver device_store_driver;

struct device_store_driver {
    /* Makes `device` current; *scope is what leave needs to go back. */
    comet_status (*enter)(const device_store_driver *self, int32_t device, int *scope);
    void (*leave)(const device_store_driver *self, int scope);

    /* Host memory, 256-byte aligned, that kernels can write to at the address it has on the host. */
    comet_status (*take)(const device_store_driver *self, size_t bytes, void **page_locked);
    void (*give)(const device_store_driver *self, void *page_locked);

    /* The most bytes of a stream, and the workspace for making and reading it. */
    comet_status (*measure)(const device_store_driver *self, const comet_tensor *tensor,
                            const comet_codec_params *params, size_t *most, size_t *workspace);
    comet_status (*workspace_init)(const device_store_driver *self, void *workspace, size_t bytes, void *queue);
    comet_status (*compress)(const device_store_driver *self, const comet_tensor *tensor,
                             const comet_codec_params *params, const comet_codec_exec *exec,
                             const comet_cuda_slot *slot);
    comet_status (*decompress)(const device_store_driver *self, const comet_cuda_slot *slot,
                               const comet_codec_params *params, const comet_cuda_epilogue *epilogue,
                               const comet_codec_exec *exec, const comet_tensor *tensor, int32_t *status);

    /* Ordered on `queue`. */
    comet_status (*zero)(const device_store_driver *self, void *memory, size_t bytes, void *queue);
    comet_status (*to_host)(const device_store_driver *self, void *page_locked, const void *memory, size_t bytes,
                            void *queue);
    comet_status (*to_device)(const device_store_driver *self, void *memory, const void *page_locked, size_t bytes,
                              void *queue);

    /* A queue that runs beside all others, the default one too. */
    comet_status (*queue_new)(const device_store_driver *self, void **queue);
    void (*queue_free)(const device_store_driver *self, void *queue);
    comet_status (*queue_wait)(const device_store_driver *self, void *queue);
    comet_status (*queue_capturing)(const device_store_driver *self, void *queue, int *capturing);
    /* COMET_OK as long as nothing that was issued to it is known to have failed; does not wait. */
    comet_status (*queue_health)(const device_store_driver *self, void *queue);

    comet_status (*event_new)(const device_store_driver *self, void **event);
    void (*event_free)(const device_store_driver *self, void *event);
    comet_status (*event_record)(const device_store_driver *self, void *event, void *queue);
    comet_status (*event_query)(const device_store_driver *self, void *event, int *reached);
    /* What is issued to `queue` from now on comes after what `event` was recorded behind; it may be recorded anew. */
    comet_status (*queue_follow)(const device_store_driver *self, void *queue, void *event);
};

/* NULL in a library built without CUDA. */
const device_store_driver *comet_device_store_driver_cuda(void);

#endif
