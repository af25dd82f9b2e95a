/* SPDX-License-Identifier: Apache-2.0 */
#include "comet/version.h"

const char *comet_version_string(void) {
    return COMET_VERSION_STRING;
}
