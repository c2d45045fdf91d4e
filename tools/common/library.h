/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - where the library that is loaded lies. */
#ifndef HLY_LIBRARY_H
#define HLY_LIBRARY_H

enum { HLY_PATH_BYTES = 4096 };

/* Without links; "?" if that cannot be told. */
void hly_library_path(char path[HLY_PATH_BYTES]);

#endif
