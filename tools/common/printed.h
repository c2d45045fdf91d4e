/* SPDX-License-Identifier: Apache-2.0 */
/* printed.h - output that could not be written is an error. */
#ifndef HLY_PRINTED_H
#define HLY_PRINTED_H

/* The status that a program ends with: `status`; `failed`, and why on standard error, where what
 * it has printed on standard output is lost (a full disk). */
int hly_printed(const char *program, int status, int failed);

#endif
