/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tags.h - which receive gets which message: MPI's rules, as pure functions of two tables. A
 * message goes to the first receive, in the order in which these were posted, that names its source
 * and tag or any. A receive takes the first message, in the order in which they came, that it
 * names. Messages of one source are entered in the order in which it has sent them.
 */
#ifndef HLY_TAGS_H
#define HLY_TAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct halay_request;
struct hly_early;
struct hly_send;

#define HLY_ANY         (-1) /* source or tag of a receive: HALAY_ANY_SOURCE, HALAY_ANY_TAG */
#define HLY_TAG_BUCKETS 64

struct hly_tag {          /* a receive that waits, or a message that has no receive yet */
    struct hly_link near; /* in its bucket; a receive with ANY: in `wild` */
    struct hly_link all;  /* in order, with all of its kind */
    int source, tag;
    uint64_t order;
};

struct hly_tags {
    struct hly_link receives[HLY_TAG_BUCKETS], wild, all_receives;
    struct hly_link messages[HLY_TAG_BUCKETS], all_messages;
    uint64_t posted, came;
};

void hly_tags_init(struct hly_tags *tags);
/* The receive that gets this message; NULL: none does yet. It stays in its table. */
struct hly_tag *hly_tags_receive_for(struct hly_tags *tags, int source, int tag);
/* The message that such a receive takes; NULL: there is none yet. It stays in its table. */
struct hly_tag *hly_tags_message_for(struct hly_tags *tags, int source, int tag);
void hly_tags_add_receive(struct hly_tags *tags, struct hly_tag *receive, int source, int tag);
void hly_tags_add_message(struct hly_tags *tags, struct hly_tag *message, int source, int tag);
void hly_tags_remove(struct hly_tag *entry);

/* A send or a receive of a message with a tag, which has no plan: wire/message.h. */
enum hly_message_is { HLY_NO_MESSAGE, HLY_MESSAGE_SEND, HLY_MESSAGE_RECV };
struct hly_message {
    struct hly_tag at;  /* RECV: among those that wait; SEND: in the list of offers */
    uint64_t id, bytes; /* id: the offer's; bytes: RECV: room for them */
    char *buffer;
    struct hly_early *found;     /* RECV: its message, before it is received */
    struct halay_request *other; /* the call between both ranks that moves the bytes, and back */
    struct hly_send *sending;    /* SEND: by which the transport has its buffer; or NULL */
    uint64_t came_bytes;
    int came_from, came_tag;
    uint32_t turn; /* SEND: 1 + the number of that call; 0: it is not received yet */
    uint8_t is, type;
    bool cancelled, lost; /* lost: the transport did not send it */
    bool waits;           /* in a list of hly_messages */
};

#endif
