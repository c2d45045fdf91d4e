/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - the messages of both agreements: that of survivors (agree.h), and that of the ranks
 * of a failing call (failing.h). Each message has a value: a flag and sets of ranks, or a verdict.
 * docs/agreements.md. */
#ifndef HLY_AGREE_MESSAGE_H
#define HLY_AGREE_MESSAGE_H

enum hly_agree_what {
    HLY_AGREE_NEWS = 0, /* failing call only: the call fails, with this verdict so far; no vote */
    HLY_AGREE_VOTE,     /* to the coordinator: the sender's value */
    /* From the coordinator: asks for a vote. If the value has its ballot, the value is proposed. */
    HLY_AGREE_ASK,
    HLY_AGREE_DECIDED,  /* this value is decided */
    HLY_AGREE_LEFT_OUT, /* survivors only: the others go on without the receiver */
    HLY_AGREE_BY_TIME,  /* failing call only: the sender has looked for absent ranks; to all */
    HLY_AGREE_LEAVES    /* failing call only: the sender ends, since a call of its own has failed */
};

#endif
