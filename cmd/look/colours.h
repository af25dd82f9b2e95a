/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers as colours: from dark blue over green to yellow, ever lighter, for any kind of colour blindness. */
#ifndef COMET_CMD_LOOK_COLOURS_H
#define COMET_CMD_LOOK_COLOURS_H

#include <stdint.h>

enum { COLOURS = 256 };

void colours_palette(uint8_t palette[3 * COLOURS]); /* RGB */

/* Where a value is between `low` and `high`; 0 if it is not a number, or both are the same. */
uint8_t colours_index(double value, double low, double high);

#endif
