/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tags.h - which receive gets which message: MPI's rules, as pure functions of two tables. A message
 * goes to the first receive, in the order in which these were posted, that names its source and tag
 * or any. A receive takes the first message, in the order in which they came, that it names.
 * Messages of one source are entered in the order in which it has sent them.
 */
#ifndef HLY_TAGS_H
#define HLY_TAGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

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

#endif
