/* SPDX-License-Identifier: Apache-2.0 */
/* The two demonstrations of comet demo. */
#ifndef COMET_CMD_DEMO_H
#define COMET_CMD_DEMO_H

/* The codecs alone, on built-in activations. argv[0] is not looked at. */
int demo_codec(int argc, char **argv);

#endif
