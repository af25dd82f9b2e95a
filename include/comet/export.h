/* SPDX-License-Identifier: Apache-2.0 */
/* Symbol visibility. Everything not marked COMET_API stays inside the library. */
#ifndef COMET_EXPORT_H
#define COMET_EXPORT_H

#if defined(__GNUC__)
#define COMET_API __attribute__((visibility("default")))
#else
#define COMET_API
#endif

#endif
