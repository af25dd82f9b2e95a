/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for cuDNN's header of this name: all that is emulated is in cudnn_graph.h. */
#include "cudnn_graph.h"
