/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations to show things on when the user brings none: a small convolutional network, run in plain C on rendered
 * images. What it saves is what training saves, dense convolution outputs and sparse ReLU outputs; not noise, and the
 * same every time.
 */
#ifndef COMET_CMD_EXAMPLE_H
#define COMET_CMD_EXAMPLE_H

#include "cmd/files/tensors.h"

/* Adds the example's tensors, fp32 NCHW. */
int example_add(tensor_list *list);

#endif
