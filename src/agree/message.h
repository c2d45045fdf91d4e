/* SPDX-License-Identifier: Apache-2.0 */
/* message.h - what the messages of both agreements say: that of survivors (agree.h), and that of
 * the ranks of a failing call (failing.h). Each has a value: failed ranks and a flag, or a verdict.
 */
#ifndef HLY_AGREE_MESSAGE_H
#define HLY_AGREE_MESSAGE_H

enum hly_agree_what {
    HLY_AGREE_NEWS = 0, /* of a failing call: its sender has this verdict; no vote */
    HLY_AGREE_VOTE,     /* to the coordinator: its sender's value */
    /* From the coordinator: it asks for votes. It proposes this value, if that has its ballot. */
    HLY_AGREE_ASK,
    HLY_AGREE_DECIDED,  /* this value is decided */
    HLY_AGREE_LEFT_OUT, /* of survivors: the others go on without you */
    HLY_AGREE_BY_TIME,  /* of a failing call, from one rank to all: the clock ends it */
    HLY_AGREE_LEAVES    /* of a failing call: its sender leaves, since its own call has failed */
};

#endif
