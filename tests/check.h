/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - a failed check says where, and ends the process; or does what CHECK_FAILED is, if that
 * was defined before.
 */
#ifndef HALAY_TESTS_CHECK_H
#define HALAY_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>

#ifndef CHECK_FAILED
#define CHECK_FAILED exit(1)
#endif

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #condition);                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            CHECK_FAILED;                                                                          \
        }                                                                                          \
    } while (0)

/* The same, where the condition says it all. */
#define MUST(condition) CHECK(condition, "not so")

#endif
