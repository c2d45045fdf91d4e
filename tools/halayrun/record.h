/* SPDX-License-Identifier: Apache-2.0 */
/* record.h - the ranks' flight records (docs/flight-record.md): halayrun makes and keeps them. */
#ifndef HALAYRUN_RECORD_H
#define HALAYRUN_RECORD_H

#include <sys/types.h>

struct hly_records;

/* For so many ranks, the first of which is that of the job. folder: where they go if the job fails;
 * or NULL. NULL: no memory; then the ranks make their own. */
struct hly_records *hly_records_create(int nranks, int first, const char *job, const char *host,
                                       const char *folder);
/* Makes a rank's, in place of an earlier process's, and tells it in its environment. 0 or -1. */
int hly_records_give(struct hly_records *records, int rank, char ***env);
/* The rank's process is `pid`; of one that did not come to halay_init() nobody else says so. */
void hly_records_started(struct hly_records *records, int rank, pid_t pid);
/* It is the first that ended so, as waitpid() has it. */
void hly_records_ended(struct hly_records *records, int rank, int status);
/* How far the rank has come, as its record says (record.h of Halay); -1: nobody knows. As a state:
 * it is or was in Halay, and has not finalized; */
int hly_records_state(const struct hly_records *records, int rank);
int hly_state_left_early(int state);
int hly_state_is_over(int state); /* it has finalized, or was never in Halay, or nobody knows; */
int hly_state_met(int state);     /* it has been in a job with others, or nobody knows */
/* What its halay_init has failed with. 0: it has not, or nobody knows why. */
int hly_records_why(const struct hly_records *records, int rank, char *text, size_t bytes);
/* The job's trouble begins: notes which ranks are stopped. */
void hly_records_trouble(struct hly_records *records);
/* Says where the ranks were. */
void hly_records_tell(const struct hly_records *records);
/* Writes those that no rank has written itself to the folder, if there is one. */
void hly_records_save(const struct hly_records *records);
void hly_records_destroy(struct hly_records *records);

#endif
