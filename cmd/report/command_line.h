/* SPDX-License-Identifier: Apache-2.0 */
/* What was typed, for files that are looked at later. */
#ifndef COMET_CMD_COMMAND_LINE_H
#define COMET_CMD_COMMAND_LINE_H

/* main's arguments, which must stay. */
void command_line_set(int argc, char **argv);

/* "comet train --model resnet8": as a shell would take it, cut where it is very long; "" where nothing was set. */
const char *command_line_text(void);

#endif
