/* SPDX-License-Identifier: Apache-2.0 */
/* device_body.h - the contract test of devices (device.h), for any device. */
#ifndef TESTS_DEVICE_BODY_H
#define TESTS_DEVICE_BODY_H

#include <stdio.h>
#include <stdlib.h>

#include <halay/device.h>

/* Prints where and why, and ends the process: a test has one way to fail. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* All of it; `arg` goes to open, again and again. */
void device_body(const halay_device_ops_t *ops, void *arg);

#endif
