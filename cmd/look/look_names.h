/* SPDX-License-Identifier: Apache-2.0 */
/* What a trained network is called beside others: by the form of its run's activations, else by its file. */
#ifndef COMET_CMD_LOOK_NAMES_H
#define COMET_CMD_LOOK_NAMES_H

enum { LOOK_NAME = 96, LOOK_NAMES = 6 /* at a time, at most */ };

typedef struct look_name {
    char text[LOOK_NAME];
    char seed[24]; /* of its run; "": it is not known */
} look_name;

/* Of the weights at `path`, which were named as `from`. FAILED after a line. */
int look_name_of(const char *path, const char *from, look_name *name);

/*
 * Names that several have get their seeds behind them; where these are the same, or unknown, what they were named as.
 */
void look_names_apart(look_name *const *names, const char *const *from, int count);

#endif
