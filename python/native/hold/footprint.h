/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How far the host may be ahead of a GPU. Tensors live on until their streams have settled, which takes memory in the
 * forward pass. There is room for them as long as all that is allocated stays below what backward will need anyway. So
 * a pass now and then is measured: what PyTorch has allocated when each tensor is saved, and when it is read. In that
 * pass the host is not ahead, so all that is there is needed. No result depends on it.
 */
#ifndef LIBCOMET_FOOTPRINT_H
#define LIBCOMET_FOOTPRINT_H

#include "hold/session.h"

int footprint_is_measured(const session *s, const comet_device_store *store);
int footprint_is_to_come(const session *s, const comet_device_store *store); /* it never was so far */

/* At the end of a save, and of a read that decoded something; to_come: bytes of the gradient that its reader makes
 * beside it. -1: exception. */
int footprint_note_saved(session *s, const comet_device_store *store, site *at);
int footprint_note_read(session *s, const comet_device_store *store, size_t to_come);

/* Bytes that may be unsettled behind a site for which there was a measurement. */
size_t footprint_room(const session *s, const site *at);

/*
 * Methods of the session in Python: set_footprint(device, or -1: the CPU, ask), measure_footprint(whether from
 * now on). When a measurement ends, site.free_bytes has what is free behind each site.
 */
PyObject *footprint_set(PyObject *self, PyObject *args);
PyObject *footprint_measure(PyObject *self, PyObject *wanted);
void footprint_clear(session *s);

#endif
