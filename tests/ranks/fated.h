/* SPDX-License-Identifier: Apache-2.0 */
/* fated.h - a late device that fails, breaks or never ends as its argument says, on one rank: the
 * first that opens its device is the victim. Set `opened` to 0 before each job. */
#ifndef HALAY_TESTS_FATED_H
#define HALAY_TESTS_FATED_H

#include <stdatomic.h>
#include <stdbool.h>

#include "device/device_builtin.h"

static _Thread_local bool is_victim;
static atomic_int opened;

static int fated_open(void *arg, const char *isa, halay_device_t **device)
{
    struct hly_device_late_arg mine = *(const struct hly_device_late_arg *)arg;
    is_victim = atomic_fetch_add(&opened, 1) == 0;
    if (!is_victim)
        mine.never = mine.fails = mine.breaks = 0;
    return hly_device_late.open(&mine, isa, device);
}

#endif
