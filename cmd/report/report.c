/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A report's file and page: opened under a temporary name, closed under its own; paragraphs, and the frame of figures.
 */
#include "cmd/report/report.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/report/command_line.h"
#include "cmd/report/report_impl.h"
#include "comet/version.h"

/* Renaming over a device or a folder would be a surprise. */
static int check_target(const char *path) {
    struct stat target;
    if (stat(path, &target) == 0 && !S_ISREG(target.st_mode))
        return fail("'%s' exists and is not a regular file; choose another name for the report", path);
    return DONE;
}

static void put_head(report *r, const char *title, const char *subtitle) {
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>",
          r->file);
    report_put(r, title);
    fprintf(r->file, "</title>\n<style>\n%s%s</style>\n</head>\n<body>\n<header>\n<h1>", report_style,
            report_style_pictures);
    report_put(r, title);
    fputs("</h1>\n", r->file);
    if (subtitle && *subtitle) {
        fputs("<p>", r->file);
        report_put(r, subtitle);
        fputs("</p>\n", r->file);
    }
    fputs("</header>\n<main>\n", r->file);
}

/* "cannot write 'FILE': why", with a word on what the file is. */
static int fail_to_write(const comet_message *message) {
    static const char start[] = "cannot write ";
    const size_t length = sizeof start - 1;
    const int is_usual = strncmp(message->text, start, length) == 0;
    return fail("cannot write the report%s%s", is_usual ? " " : ": ", message->text + (is_usual ? length : 0));
}

int report_open(report *r, const char *path, const char *title, const char *subtitle) {
    comet_message message;
    *r = (report){.path = path, .target = {.descriptor = -1}};
    if (check_target(path) != DONE)
        return FAILED;
    if (comet_atomic_file_open(&r->target, path, &message) != COMET_OK)
        return fail_to_write(&message);
    r->file = comet_atomic_file_stream(&r->target);
    if (!r->file) {
        comet_atomic_file_abandon(&r->target);
        return fail_memory();
    }
    put_head(r, title, subtitle);
    return DONE;
}

void report_text(report *r, const char *paragraph) {
    fputs("<p>", r->file);
    report_put(r, paragraph);
    fputs("</p>\n", r->file);
}

/* Ends the stream; 0 if all of it was written. */
static int close_stream(report *r) {
    int failed = ferror(r->file);
    failed |= fclose(r->file) != 0;
    r->file = NULL;
    return failed;
}

int report_close(report *r) {
    comet_message message;
    fprintf(r->file, "</main>\n<footer><p>Made by comet %s</p>\n", comet_version_string());
    if (*command_line_text()) {
        fputs("<pre>", r->file);
        report_put(r, command_line_text());
        fputs("</pre>\n", r->file);
    }
    fputs("</footer>\n</body>\n</html>\n", r->file);
    int answer = DONE;
    if (close_stream(r))
        answer = fail("cannot write the report '%s': %s", r->path, strerror(errno));
    else if (comet_atomic_file_commit(&r->target, &message) != COMET_OK)
        answer = fail_to_write(&message);
    comet_atomic_file_abandon(&r->target); /* harmless after a commit */
    return answer;
}

void report_abandon(report *r) {
    if (!r->file)
        return;
    (void)close_stream(r);
    comet_atomic_file_abandon(&r->target);
}

/* ---- figures ---- */

void report_figure_open(report *r, const char *title) {
    int number = ++r->figures;
    fprintf(r->file, "<figure id=\"figure-%d\">\n<figcaption><span>%d</span>", number, number);
    report_put(r, title);
    fputs("</figcaption>\n", r->file);
}

void report_figure_close(report *r) {
    fputs("</figure>\n", r->file);
}

void report_svg_open(report *r, const char *title, double height) {
    fprintf(r->file, "<div class=\"scroll\">\n<svg viewBox=\"0 0 %d %.0f\" role=\"img\" aria-label=\"", REPORT_WIDTH,
            height);
    report_put(r, title);
    fputs("\">\n", r->file);
}

void report_svg_close(report *r) {
    fputs("</svg>\n</div>\n", r->file);
}

int report_colour(int group) {
    int colour = group % REPORT_COLOURS;
    return colour < 0 ? colour + REPORT_COLOURS : colour;
}
