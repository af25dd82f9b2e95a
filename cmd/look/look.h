/* SPDX-License-Identifier: Apache-2.0 */
/* comet look: trained networks and what they make of the same images. */
#ifndef COMET_CMD_LOOK_H
#define COMET_CMD_LOOK_H

#include "cmd/look/look_images.h"
#include "cmd/look/look_names.h"
#include "cmd/report/report.h"
#include "study/look.h"

enum { LOOK_MOST = LOOK_NAMES };

/* Of a network what stays when it has gone. */
typedef struct look_network {
    look_name name;
    char path[COMET_ABOUT_PATH];
    comet_about about;
    comet_look *look;
    int32_t *taken; /* by image: the class that it was taken for; -1: its probabilities are not numbers */
    /* The first convolution's weights, out x in x height x width. */
    float *filters;
    int64_t filter_shape[4];
    char filter_layer[COMET_NAME_BYTES];
} look_network;

typedef struct look_case {
    look_images images;
    int batch;
    look_network networks[LOOK_MOST]; /* the first is that which others are put beside */
    int count;
} look_case;

/* Per cent of the images. */
double look_accuracy(const look_case *c, int which);
double look_agreement(const look_case *c, int which); /* taken for the same class as by the first network */

double look_cka(const look_case *c, int which, int layer); /* with the first network */

/* "resnet8 on fashion-mnist: 256 images of 28x28, 64 at a time". */
void look_describe(const look_case *c, char *text, size_t capacity);

/* What the networks call a class; -1: "nothing". */
const char *look_label(const look_case *c, int label, char text[NETWORK_NAME]);

/* "28x28x16" for maps, "10" for a vector. Returns `text`. */
enum { LOOK_SHAPE = 48 };
const char *look_shape_text(comet_shape shape, char text[LOOK_SHAPE]);

/* ---- look_print.c ---- */

void look_print(const look_case *c);
void look_print_json(const look_case *c);

/* ---- look_report.c, and its pictures: look_filters.c, look_maps.c ---- */

int look_report(const char *path, const look_case *c);
int look_put_filters(report *r, const look_case *c);
int look_put_maps(report *r, const look_case *c);

#endif
