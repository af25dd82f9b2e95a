/* SPDX-License-Identifier: Apache-2.0 */
/* Tables. */
#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "cmd/report/report_impl.h"

/* Longer ones scroll inside their box. */
enum { TALL_ROWS = 24 };

/* Behind a number: nothing, or a unit, or an interval; another digit means that it is a name or a shape. */
static int is_tail(const char *tail) {
    while (*tail == ' ')
        tail++;
    if (strncmp(tail, "\u00b1", 2) == 0 || strncmp(tail, "+-", 2) == 0)
        return 1;
    while (*tail && !isdigit((unsigned char)*tail))
        tail++;
    return *tail == '\0';
}

/* "", "-", "12", "-0.5 %", "1.2e-3", "3.4 MiB", "91.2 ± 0.3". */
static int is_number(const char *cell) {
    if (!cell || !*cell || strcmp(cell, "-") == 0)
        return 1;
    if (*cell == '-' || *cell == '+')
        cell++;
    if (!isdigit((unsigned char)*cell) && !(*cell == '.' && isdigit((unsigned char)cell[1])))
        return 0;
    while (isdigit((unsigned char)*cell) || *cell == '.' || *cell == ',')
        cell++;
    if (*cell == 'e' &&
        (isdigit((unsigned char)cell[1]) || ((cell[1] == '-' || cell[1] == '+') && isdigit((unsigned char)cell[2]))))
        for (cell += 2; isdigit((unsigned char)*cell);)
            cell++;
    return is_tail(cell);
}

static int is_number_column(const char *const *cells, int columns, int rows, int column) {
    for (int row = 0; row < rows; row++)
        if (!is_number(cells[row * columns + column]))
            return 0;
    return rows > 0;
}

/* A bit for each column of numbers; those behind the 64th stand to the left. */
static uint64_t number_columns(const char *const *cells, int columns, int rows) {
    uint64_t numbers = 0;
    for (int c = 0; c < columns && c < 64; c++)
        numbers |= (uint64_t)is_number_column(cells, columns, rows, c) << c;
    return numbers;
}

static void put_row(report *r, const char *tag, uint64_t numbers, const char *const *cells, int count) {
    fputs("<tr>", r->file);
    for (int c = 0; c < count; c++) {
        fprintf(r->file, c < 64 && (numbers >> c & 1) ? "<%s class=\"n\">" : "<%s>", tag);
        report_put(r, cells[c]);
        fprintf(r->file, "</%s>", tag);
    }
    fputs("</tr>\n", r->file);
}

void report_table(report *r, const char *title, const char *const *columns, int column_count, const char *const *cells,
                  int row_count) {
    const uint64_t numbers = number_columns(cells, column_count, row_count);
    fputs("<section>\n<h2>", r->file);
    report_put(r, title);
    fprintf(r->file, "</h2>\n<div class=\"scroll%s\">\n<table>\n<thead>\n", row_count > TALL_ROWS ? " tall" : "");
    put_row(r, "th", numbers, columns, column_count);
    fputs("</thead>\n<tbody>\n", r->file);
    for (int row = 0; row < row_count; row++)
        put_row(r, "td", numbers, cells + (size_t)row * (size_t)column_count, column_count);
    fputs("</tbody>\n</table>\n</div>\n</section>\n", r->file);
}
