/* SPDX-License-Identifier: Apache-2.0 */
#ifndef LIBCOMET_TELL_H
#define LIBCOMET_TELL_H

#include "hold/entry.h"
#include "pass/frame.h"

/*
 * Tells who watches a pass (frame.observer) that an operation has run, by
 * observer(op, function or module, node, input, weight, args, kwargs, result, kin or -1, is it controlled,
 *          (mean, 1 / deviation) or None, held or None)
 * `input`: of a curve that holds one, what it holds: SiLU may have written over its argument.
 * `held`: the held input; or a fused norm. result NULL: it has failed. -1: exception.
 */
int tell_operation(frame *f, const operation_call *call, PyObject *result);
int tell_norm(frame *f, const operation_call *call, PyObject *result, entry *e, PyObject *of);

#endif
