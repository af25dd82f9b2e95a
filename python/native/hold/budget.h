/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A budget for the memory of a GPU, PyTorch's own included. Each site has a place that a plan chose (budget.py): as it
 * is, as a stream on the device, or as a stream on the host. For the plan must be known what the network itself needs
 * at each site, beside what is held. So a pass with sites that have no plan yet is as frugal as can be, and measured:
 * nothing lives on, all streams go to the host, and PyTorch's peak is read from one tensor to the next.
 */
#ifndef LIBCOMET_BUDGET_H
#define LIBCOMET_BUDGET_H

#include "hold/session.h"

/* Where the tensor of a site belongs in this pass. Begins to measure where there is no plan. */
place budget_place(session *s, site *at);

/* How many bytes may live on until their streams are settled, behind this site. */
size_t budget_lead(const session *s, const site *at);

/* An entry that is about to be saved: its stream goes to the host when it is settled, if its place is there. */
void budget_list(entry *e);
void budget_unlist(entry *e);

/* After every poll: what is settled goes to the host. */
int budget_spill(session *s);

/* At the end of a save, and at the beginning of a read: what was the peak since the last of these. -1: exception. */
int budget_note_saved(session *s, comet_device_store *store, site *at);
int budget_note_read(entry *e);

/* Methods of the session in Python. */
PyObject *budget_set(PyObject *self, PyObject *args);
PyObject *budget_plan(PyObject *self, PyObject *plan);
PyObject *budget_begin_measuring(PyObject *self, PyObject *forgets);
PyObject *budget_end_measuring(PyObject *self, PyObject *unused);
PyObject *budget_held_bytes(PyObject *self, PyObject *unused);
PyObject *budget_measured(PyObject *self, PyObject *unused);
void budget_clear(session *s);

#endif
