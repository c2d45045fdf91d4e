/* SPDX-License-Identifier: Apache-2.0 */
/* output.h - copies the ranks' output line by line, with "[rank] " in front or the time, too. Lines
 * above 4 KiB are cut; without a mark only where another rank's come between. */
#ifndef HALAYRUN_OUTPUT_H
#define HALAYRUN_OUTPUT_H

#include <poll.h>

struct hly_output;

enum hly_marks { HLY_MARK_NONE, HLY_MARK_RANK, HLY_MARK_TIME };

/* For so many ranks, the first of which is that of the job. */
struct hly_output *hly_output_create(int nranks, int first, enum hly_marks marks);
void hly_output_destroy(struct hly_output *output); /* takes NULL */

/* Makes FOLDER, with those that it is in, and FOLDER/rank.N for so many ranks from 0 on, N with so
 * many digits at least. 0 or -1, said.
 */
int hly_output_folders(const char *folder, int nranks, int digits);
/* That the last of these ranks has. */
int hly_output_digits(int nranks, int first);

/* What a rank that is started from now on prints goes to FOLDER/rank.N/stdout and stderr, too, as
 * it is. The name is not copied. 0 or -1, said. */
int hly_output_keep(struct hly_output *output, const char *folder);

/* The two write ends for a rank, to be closed by the caller once it is started. 0 or -1 (errno).
 * What was written at earlier ones is read first, and nothing that comes later. */
int hly_output_pipes(struct hly_output *output, int rank, int *out, int *err);

/* Fills in what to wait for; room for 2 * nranks + 2 is needed. */
int hly_output_poll(struct hly_output *output, struct pollfd *fds);

/* In how many ms hly_output_copy has something to do, whatever comes; -1: nothing. */
int hly_output_due(const struct hly_output *output);

/* Copies what can be copied without waiting. -1 once nobody reads the output any more. */
int hly_output_copy(struct hly_output *output);

/* 1 while there is, or can come, more from any rank. */
int hly_output_open(const struct hly_output *output);

/* 1 if lines for halayrun's own output were lost, said. */
int hly_output_lost(const struct hly_output *output);

/* Nobody writes any more: what is in the pipes is all that comes. */
void hly_output_last(struct hly_output *output);

#endif
