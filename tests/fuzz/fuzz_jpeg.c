/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG files as they come: baseline, progressive, several scans, grey, RGB, CMYK; cut, damaged, with huge sizes. */
#include "common/image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const uint8_t magic[3] = {0xff, 0xd8, 0xff};
    if (size < sizeof magic || memcmp(data, magic, sizeof magic) != 0)
        return -1; /* not for the corpus: fuzz_png has the others */
    image_check(folder_put("image", data, size));
    return 0;
}
