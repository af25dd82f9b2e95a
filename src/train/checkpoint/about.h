/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a file of weights says of its network beside the values: model and sizes, how images were normalised, what the
 * classes are called, and where the data lay. Who has the file can classify images then, and needs nothing else. Weight
 * files have it as metadata, checkpoints as blobs (docs/checkpoints.md).
 */
#ifndef COMET_TRAIN_ABOUT_H
#define COMET_TRAIN_ABOUT_H

#include "data/files/safetensors.h"
#include "data/sets/dataset.h"

/* The names of the blobs, and of the metadata behind "comet.". */
#define COMET_ABOUT_IMAGES "images"
#define COMET_ABOUT_DATA   "data"

/*
 * "centre=0.875 mean=0.485,0.456,0.406 deviation=0.229,0.224,0.225", then a line for each class, with its name. Of
 * images of so many channels, normalised so. To be given back with comet_memory_give; *bytes with the zero behind it.
 */
comet_status comet_about_text(const comet_dataset *data, const comet_normalisation *normalisation, int channels,
                              const comet_allocator *allocator, char **text, size_t *bytes, comet_message *message);

typedef struct comet_about {
    const comet_allocator *allocator;
    char model[64];                       /* "": it does not say */
    int classes, height, width, channels; /* 0: likewise */
    int is_normalised;                    /* 1: it says how: */
    comet_normalisation normalisation;    /* of `channels` */
    double centre;                        /* the part of an image that is looked at */
    char data[1024];                      /* "folder:/home/me/pets"; "": it does not say */
    double accuracy;                      /* per cent, of the best weights of a run; below 0: it does not say */
    int64_t step;                         /* after which they were; below 0: likewise */
    char *labels;                         /* text of the names, zeros between them; NULL: it does not say */
    size_t label_bytes;
} comet_about;

/* Of an open file: what it does not say, or says in another way than here, is left out. COMET_ERROR_MEMORY alone. */
comet_status comet_about_read(const comet_safetensors *file, const comet_allocator *allocator, comet_about *about);
void comet_about_free(comet_about *about);

/* The name of a class; NULL where it is not known. */
const char *comet_about_label(const comet_about *about, int label);

/*
 * The file that `from` names: itself, or of a folder of checkpoints best.safetensors, or the newest one that is whole.
 * COMET_ERROR_IO, with a line, if there is none.
 */
enum { COMET_ABOUT_PATH = 1100 };
comet_status comet_about_find(const char *from, const comet_allocator *allocator, char path[COMET_ABOUT_PATH],
                              comet_message *message);

/*
 * What the run was asked for that wrote the weights at `path`, as its checkpoint has it ("codec=eb error=0.1 ..."): of
 * that file, or, of the best weights of a run, of the last checkpoint beside them. "" where neither says.
 */
enum { COMET_ABOUT_GIVEN = 2048 };
comet_status comet_about_given(const char *path, const comet_allocator *allocator, char given[COMET_ABOUT_GIVEN]);

#endif
