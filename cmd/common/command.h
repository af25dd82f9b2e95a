/* SPDX-License-Identifier: Apache-2.0 */
/* The sub-commands, and what the process answers with. */
#ifndef COMET_CMD_COMMAND_H
#define COMET_CMD_COMMAND_H

/*
 * Exit codes. Functions of the command return these too: whoever returns another one than DONE has said why. What a
 * signal has stopped answers with stop_code() (stop.h): 129, 130, 143.
 */
enum { DONE = 0, FAILED = 1, MISUSED = 2 };

/* argv[0] is the sub-command's name. */
int command_compress(int argc, char **argv);
int command_decompress(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_train(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_demo(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_assess(int argc, char **argv);
int command_sweep(int argc, char **argv);
int command_evaluate(int argc, char **argv);
int command_predict(int argc, char **argv);
int command_look(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_manual(int argc, char **argv);

#endif
