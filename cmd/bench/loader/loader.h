/* SPDX-License-Identifier: Apache-2.0 */
/* comet bench loader: how many images a second the loader makes, by itself. */
#ifndef COMET_CMD_BENCH_LOADER_H
#define COMET_CMD_BENCH_LOADER_H

/* argv[0] is "loader". */
int bench_loader(int argc, char **argv);

#endif
