/* SPDX-License-Identifier: Apache-2.0 */
/* One network after the other: opened, shown the images, and gone again. */
#ifndef COMET_CMD_LOOK_NETWORK_H
#define COMET_CMD_LOOK_NETWORK_H

#include "cmd/common/progress.h"
#include "cmd/look/look.h"

/* Shows `open` the images; what stays of it goes into the case, as its next network. */
int look_network_add(look_case *c, network *open, const char *from, progress *bar);
void look_network_free(look_network *n);

#endif
