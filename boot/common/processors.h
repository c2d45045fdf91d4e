/* SPDX-License-Identifier: Apache-2.0 */
/* processors.h - how many of them a node's ranks have. Inside boot/ and pmix/ only. */
#ifndef HALAY_BOOT_PROCESSORS_H
#define HALAY_BOOT_PROCESSORS_H

/*
 * Those that this process or its parent, the launcher, may use: a launcher that binds each rank to
 * one is not bound itself; halayrun says it (HALAY_PROCESSORS), to be heard behind a shell.
 */
int hly_boot_processors(void);

#endif
