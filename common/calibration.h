/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calibration.h - where what was measured is kept; and the file in which halay-bench calibrate
 * keeps rows, one for each kind of node: whether it may be used. docs/decisions/plans.md#0132.
 */
#ifndef HALAY_PROC_CALIBRATION_H
#define HALAY_PROC_CALIBRATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* How its first line begins; then the version of Halay that has written it, and a colon. */
#define HLY_CALIBRATION_HEAD "# kept by halay-bench calibrate of Halay "

enum {
    HLY_CALIBRATION_PATH = 512,
    HLY_CALIBRATION_TEXT = 256,
    HLY_CALIBRATION_BYTES = 512000 /* of a file */
};

/* HALAY_CALIBRATION=off. */
bool hly_calibration_off(void);
/* The user's folder for what was measured; false: there is no home, or its path is too long. */
bool hly_calibration_folder(char path[HLY_CALIBRATION_PATH]);
/* Makes the folders above this file, as far as they are not there; -errno of the last one. */
int hly_calibration_make_folder(const char *path);
/* What has to be the same for a measurement to hold on this node, in words, and their hash. */
uint32_t hly_calibration_kind(char text[HLY_CALIBRATION_TEXT]);
/* The file of this kind of nodes in the first folder for it, or in the second, ...; false: there
 * is none. library: the file of libhalay. */
bool hly_calibration_place(int n, const char *library, char path[HLY_CALIBRATION_PATH]);
/*
 * The first such file that there is, to be read. NULL: there is none, and `why` is empty; or `why`
 * says in a line why it is not used, and what to do. path: of the file, or where the first would
 * be; empty if nowhere. version: of this Halay.
 */
FILE *hly_calibration_open(const char *library, const char *version,
                           char path[HLY_CALIBRATION_PATH], char *why, size_t bytes);

#endif
