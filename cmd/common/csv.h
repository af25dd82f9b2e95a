/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of CSV as RFC 4180 has them, but with lines that end as elsewhere: fields are in quotes where they have to be,
 * numbers that are not finite are empty.
 */
#ifndef COMET_CMD_CSV_H
#define COMET_CMD_CSV_H

#include <stdint.h>
#include <stdio.h>

typedef struct csv {
    FILE *file;
    int filled; /* the row has a field */
} csv;

void csv_text(csv *c, const char *text);
void csv_integer(csv *c, int64_t value);
void csv_number(csv *c, double value);
void csv_end(csv *c); /* of the row */

/* A row of names, in one text with commas. */
void csv_head(csv *c, const char *names);

#endif
