/* SPDX-License-Identifier: Apache-2.0 */
/* A program outside Comet: the headers and the library it finds must be of the same version, and calls must link. */
#include <comet/comet.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    printf("headers %s, library %s\n", COMET_VERSION_STRING, comet_version_string());
    if (strcmp(COMET_VERSION_STRING, comet_version_string()) != 0)
        return 1;
    printf("GPU: %s\n", comet_status_string(comet_cuda_check(0))); /* without one, the library must still load */
    comet_codec codec;
    return comet_codec_from_name("eb", &codec) == COMET_OK && codec == COMET_CODEC_EB ? 0 : 1;
}
