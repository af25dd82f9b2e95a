/* SPDX-License-Identifier: Apache-2.0 */
/* Constants of the zip format (PKWARE APPNOTE 6.3), shared by reader and writer. */
#ifndef COMET_CMD_ZIP_FORMAT_H
#define COMET_CMD_ZIP_FORMAT_H

enum {
    ZIP_LOCAL = 0x04034b50,
    ZIP_CENTRAL = 0x02014b50,
    ZIP_END = 0x06054b50,
    ZIP_END64 = 0x06064b50,
    ZIP_LOCATOR64 = 0x07064b50,

    ZIP_LOCAL_BYTES = 30,
    ZIP_CENTRAL_BYTES = 46,
    ZIP_END_BYTES = 22,
    ZIP_END64_BYTES = 56,
    ZIP_LOCATOR64_BYTES = 20,

    ZIP_STORED = 0,
    ZIP_DEFLATED = 8,
    ZIP_ENCRYPTED = 1,  /* flag */
    ZIP_UTF8 = 1 << 11, /* flag */
    ZIP_EXTRA64 = 1,    /* extra field */
    ZIP_VERSION64 = 45
};

#endif
