/* SPDX-License-Identifier: Apache-2.0 */
/* The device store over any driver. */
#ifndef COMET_STORE_DEVICE_STORE_H
#define COMET_STORE_DEVICE_STORE_H

#include "comet/device_store.h"
#include "store/device/device_store_driver.h"

enum {
    HELD_ALIGNMENT = 256,      /* of streams: comet/cuda.h */
    HELD_RECORD_BYTES = 128,   /* from one comet_cuda_result to the next */
    HELD_POOL_RECORDS = 4096,  /* results that are page-locked together */
    HELD_HEALTH_LOADS = 64,    /* the status word is copied to the host once in so many loads */
    HELD_LEAST_GUESS = 4 << 10 /* room for a stream of which nothing is known */
};

#define HELD_SEGMENT_UNIT ((size_t)2 << 20)

/* comet_device_store_new on a GPU with a driver, which must outlive the store. */
comet_status comet_device_store_create_with(const device_store_driver *driver,
                                            const comet_device_store_options *options, comet_device_store **store);

#endif
