/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of store/cuda where there is no CUDA compiler. */
#include "store/device/arena_driver.h"
#include "store/device/device_store_driver.h"

const arena_driver *comet_arena_driver_cuda(void) {
    return NULL;
}

const device_store_driver *comet_device_store_driver_cuda(void) {
    return NULL;
}
