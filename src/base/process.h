/* SPDX-License-Identifier: Apache-2.0 */
/* process.h - which process a rank is, and what another process of its node sees of it. */
#ifndef HLY_PROCESS_H
#define HLY_PROCESS_H

#include <stdbool.h>

#include <halay/boot.h>

#include "waits/waits.h"

/* By a signal, as its parent will hear that has not waited for it yet. A process that is reaped,
 * hidden or of another namespace is not known to have been. */
bool hly_process_was_killed(const halay_process_t *process);
/* UNKNOWN too: it is in another namespace, it has ended, or /proc does not show it. */
enum hly_doing hly_process_look(const halay_process_t *process);

#endif
