/* SPDX-License-Identifier: Apache-2.0 */
/* session.h - the job's private folder, for the PMIx server's files. */
#ifndef HALAYRUN_SESSION_H
#define HALAYRUN_SESSION_H

struct hly_session {
    int lock_fd;
    char path[200];
};

/* Makes it under $TMPDIR or /tmp, after removing those that killed halayruns of this user left. 0
 * or -1, said. */
int hly_session_create(struct hly_session *session);

/* Removes it with all that is in it. */
void hly_session_remove(struct hly_session *session);

#endif
