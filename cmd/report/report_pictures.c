/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of little pictures, in rows and columns. */
#include "cmd/report/report_impl.h"

static void put_picture(report *r, const report_picture *p) {
    const int height = p->width > 0 ? (p->size * p->height + p->width / 2) / p->width : 0;
    fputs("<span><img src=\"", r->file);
    if (!report_put_png(r, p))
        fputs("data:,", r->file);
    fprintf(r->file, "\" width=\"%d\" height=\"%d\" alt=\"", p->size, height > 0 ? height : 1);
    report_put(r, p->label);
    fputs("\"/>", r->file);
    if (p->label) {
        fputs("<small>", r->file);
        report_put(r, p->label);
        fputs("</small>", r->file);
    }
    fputs("</span>", r->file);
}

static void put_head(report *r, const report_gallery *g) {
    fputs("<thead><tr>", r->file);
    if (g->rows)
        fputs("<th></th>", r->file);
    for (int c = 0; c < g->column_count; c++) {
        fputs("<th>", r->file);
        report_put(r, g->columns[c]);
        fputs("</th>", r->file);
    }
    fputs("</tr></thead>\n", r->file);
}

static void put_name(report *r, const report_gallery *g, int row) {
    fputs("<th>", r->file);
    report_put(r, g->rows[row]);
    if (g->notes && g->notes[row]) {
        fputs("<small>", r->file);
        report_put(r, g->notes[row]);
        fputs("</small>", r->file);
    }
    fputs("</th>", r->file);
}

void report_pictures(report *r, const report_gallery *g) {
    report_figure_open(r, g->title);
    if (g->text) {
        fputs("<p class=\"empty\">", r->file);
        report_put(r, g->text);
        fputs("</p>\n", r->file);
    }
    fputs("<div class=\"scroll\">\n<table class=\"pictures\">\n", r->file);
    put_head(r, g);
    fputs("<tbody>\n", r->file);
    for (int row = 0; row < g->row_count; row++) {
        fputs("<tr>", r->file);
        if (g->rows)
            put_name(r, g, row);
        for (int c = 0; c < g->column_count; c++) {
            const report_cell *cell = &g->cells[row * g->column_count + c];
            fputs("<td>", r->file);
            for (int i = 0; i < cell->count; i++)
                put_picture(r, &cell->pictures[i]);
            fputs("</td>", r->file);
        }
        fputs("</tr>\n", r->file);
    }
    fputs("</tbody>\n</table>\n</div>\n", r->file);
    report_figure_close(r);
}
