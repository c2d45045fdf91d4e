/* SPDX-License-Identifier: Apache-2.0 */
/* switch.h - settings that are 1 or 0, as a context reads them. */
#ifndef HLY_SWITCH_H
#define HLY_SWITCH_H

#include <stddef.h>

/* 1, or 0, also if it is not set. -1: it is neither; `wrong` says so in a context's words. */
int hly_switch_read(const char *variable, char *wrong, size_t bytes);

#endif
