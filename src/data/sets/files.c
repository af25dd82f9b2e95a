/* SPDX-License-Identifier: Apache-2.0 */
/* Image files of which nothing is known. */
#include <string.h>

#include "base/fail.h"
#include "data/sets/dataset_impl.h"

typedef struct files_set {
    comet_dataset set;
    const char *const *paths;
} files_set;

static const char *file_name(const comet_dataset *set, comet_split split, int64_t index) {
    (void)split;
    return ((const files_set *)set)->paths[index];
}

static comet_status read_sample(const comet_dataset *set, comet_split split, int64_t index, comet_decoder *decoder,
                                comet_image *image, comet_message *message) {
    return comet_decode(decoder, file_name(set, split, index), image, message);
}

static const comet_dataset_kind kind = {read_sample, NULL, file_name};
static const char *const no_name[] = {""};

enum { MOST_MEASURED = 50000 }; /* as of a folder */

comet_status comet_dataset_open_files(const char *const *paths, int64_t count, double centre,
                                      const comet_allocator *allocator, comet_dataset **out, comet_message *message) {
    comet_dataset *set;
    COMET_TRY(comet_dataset_new(&kind, sizeof(files_set), allocator, &set, message));
    ((files_set *)set)->paths = paths;
    set->info.name = "files";
    set->info.classes = 1;
    set->info.channels = 3;
    set->info.centre = centre;
    set->class_names = no_name;
    comet_status status = comet_dataset_reserve(set, COMET_SPLIT_EVALUATE, count, 0, message);
    if (status != COMET_OK) {
        comet_dataset_free(set);
        return status;
    }
    memset(set->parts[COMET_SPLIT_EVALUATE].labels, 0, (size_t)count * sizeof(int32_t));
    for (int64_t i = 0; i < count && count <= MOST_MEASURED; i++)
        comet_decode_measure(paths[i], &set->info.need);
    comet_dataset_complete(set);
    *out = set;
    return COMET_OK;
}
