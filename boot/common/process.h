/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - what /proc says of a process. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_PROCESS_H
#define HALAY_BOOT_PROCESS_H

#include <halay/boot.h>

/* This process; space is 0 where /proc does not say. */
void hly_boot_process_self(halay_process_t *self);
/* The letter of its state in proc(5), and when it was born; 0: it is not there. */
char hly_boot_process_look(int64_t pid, uint64_t *born);

#endif
