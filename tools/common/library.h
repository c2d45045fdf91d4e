/* SPDX-License-Identifier: Apache-2.0 */
/* library.h - where the library that is loaded lies, and its plug-ins. */
#ifndef HLY_LIBRARY_H
#define HLY_LIBRARY_H

#include <stddef.h>

enum { HLY_PATH_BYTES = 4096 };

/* Without links; "?" if that cannot be told. */
void hly_library_path(char path[HLY_PATH_BYTES]);

/* Where the library looks for its plug-ins. */
void hly_plugin_dir(char dir[HLY_PATH_BYTES]);
/* The file of a plug-in there. */
void hly_plugin_path(const char *kind, const char *name, char path[2 * HLY_PATH_BYTES]);
/* dlerror()'s reason, short where it is a library that this system does not have. */
void hly_plugin_reason(const char *error, char *text, size_t bytes);
/* What to do about a plug-in that is missing, or needs something that is missing. */
void hly_plugin_remedy(const char *name, const char *path, char *text, size_t bytes);

#endif
