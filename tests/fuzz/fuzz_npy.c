/* SPDX-License-Identifier: Apache-2.0 */
/* .npy files: the first byte says which of --dtype, --layout and --shape are given, the rest is the file. */
#include "common/npy_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1)
        return 0;
    array_format format = {.has_dtype = data[0] & 1,
                           .dtype = (comet_dtype)(data[0] >> 1 & 3),
                           .has_layout = data[0] >> 3 & 1,
                           .layout = (comet_layout)((data[0] >> 4 & 3) % 3)};
    if (format.has_dtype && data[0] >> 6) { /* raw values: a shape of the size, or not */
        format.has_shape = 1;
        format.ndim = 2;
        format.shape[0] = (int64_t)((size - 1) / comet_dtype_size(format.dtype));
        format.shape[1] = data[0] >> 6;
    }
    size_t bytes = size - 1;
    uint8_t *file = malloc(bytes ? bytes : 1); /* exactly as long as it is, for the sanitizers */
    EXPECT(file != NULL);
    memcpy(file, data + 1, bytes);
    blob piece = {.name = "fuzz", .where = "'fuzz.npy'", .data = file, .bytes = bytes};
    check_array(&piece, &format);
    free(file);
    return 0;
}
