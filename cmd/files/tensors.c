/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of tensors. */
#include "cmd/files/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd/common/command.h"
#include "cmd/common/message.h"
#include "cmd/files/values.h"

static int make_room(tensor_list *list) {
    named_tensor *items =
        comet_array_reserve(NULL, list->items, list->count, list->count + 1, &list->room, sizeof *items);
    if (!items)
        return fail_memory();
    list->items = items;
    return DONE;
}

int tensors_add(tensor_list *list, const char *name, comet_dtype dtype, comet_layout layout, int32_t ndim,
                const int64_t *shape, array **added) {
    if (make_room(list) != DONE)
        return FAILED;
    named_tensor *item = &list->items[list->count];
    if (array_new(&item->array, dtype, layout, ndim, shape) != DONE)
        return FAILED;
    item->name = strdup(name);
    if (!item->name) {
        array_give(&item->array);
        return fail_memory();
    }
    *added = &item->array;
    list->count++;
    return DONE;
}

static int add_packed(tensor_list *list, const char *name, const comet_tensor *view) {
    array *added;
    if (tensors_add(list, name, view->dtype, view->layout, view->ndim, view->shape, &added) != DONE)
        return FAILED;
    values_pack(view, added->tensor.data);
    return DONE;
}

static int load_piece(tensor_list *list, const bundle *in, size_t index) {
    const array_format as_the_file_says = {0};
    blob piece;
    array a;
    if (bundle_get(in, index, &piece) != DONE)
        return FAILED;
    char name[512];
    if (in->is_archive)
        snprintf(name, sizeof name, "%s/%.*s", in->stem, (int)(sizeof name - 1 - sizeof in->stem), piece.name);
    else
        snprintf(name, sizeof name, "%s", in->stem);
    if (file_has_extension(name, ".npy"))
        name[strlen(name) - 4] = '\0';
    int answer = array_from_blob(&piece, &as_the_file_says, &a);
    if (answer == DONE) {
        answer = add_packed(list, name, &a.tensor);
        array_give(&a);
    }
    blob_give(&piece);
    return answer;
}

int tensors_load(tensor_list *list, const char *path) {
    bundle in;
    if (bundle_open(&in, path, 0) != DONE)
        return FAILED;
    int answer = DONE;
    for (size_t i = 0; i < in.count && answer == DONE; i++)
        answer = load_piece(list, &in, i);
    bundle_close(&in);
    return answer;
}

static void free_item(named_tensor *item) {
    free(item->name);
    array_give(&item->array);
}

void tensors_remove(tensor_list *list, size_t index) {
    free_item(&list->items[index]);
    list->count--;
    memmove(&list->items[index], &list->items[index + 1], (list->count - index) * sizeof *list->items);
}

void tensors_free(tensor_list *list) {
    for (size_t i = 0; i < list->count; i++)
        free_item(&list->items[i]);
    free(list->items);
    *list = (tensor_list){0};
}
