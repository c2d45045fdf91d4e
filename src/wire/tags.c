/* SPDX-License-Identifier: Apache-2.0 */
/* tags.c - which receive gets which message (tags.h). */
#include "wire/tags.h"

static uint32_t bucket_of(int source, int tag)
{
    const uint32_t mixed = (uint32_t)source * 0x9e3779b1u ^ (uint32_t)tag * 0x85ebca6bu;
    return (mixed ^ mixed >> 15) % HLY_TAG_BUCKETS;
}

void hly_tags_init(struct hly_tags *t)
{
    for (uint32_t i = 0; i < HLY_TAG_BUCKETS; i++) {
        hly_link_init(&t->receives[i]);
        hly_link_init(&t->messages[i]);
    }
    hly_link_init(&t->wild);
    hly_link_init(&t->all_receives);
    hly_link_init(&t->all_messages);
    t->posted = t->came = 0;
}

/* Does a receive with these name a message with those? */
static bool names(int source, int tag, int from, int with)
{
    return (source == HLY_ANY || source == from) && (tag == HLY_ANY || tag == with);
}

static struct hly_tag *first_receive(struct hly_link *list, int source, int tag)
{
    for (struct hly_link *l = list->next; l != list; l = l->next) {
        struct hly_tag *r = HLY_OF(l, struct hly_tag, near);
        if (names(r->source, r->tag, source, tag))
            return r;
    }
    return NULL;
}

struct hly_tag *hly_tags_receive_for(struct hly_tags *t, int source, int tag)
{
    struct hly_tag *exact = first_receive(&t->receives[bucket_of(source, tag)], source, tag);
    struct hly_tag *wild = first_receive(&t->wild, source, tag);
    if (exact && wild)
        return exact->order < wild->order ? exact : wild;
    return exact ? exact : wild;
}

struct hly_tag *hly_tags_message_for(struct hly_tags *t, int source, int tag)
{
    if (source != HLY_ANY && tag != HLY_ANY) {
        struct hly_link *list = &t->messages[bucket_of(source, tag)];
        for (struct hly_link *l = list->next; l != list; l = l->next) {
            struct hly_tag *m = HLY_OF(l, struct hly_tag, near);
            if (m->source == source && m->tag == tag)
                return m;
        }
        return NULL;
    }
    for (struct hly_link *l = t->all_messages.next; l != &t->all_messages; l = l->next) {
        struct hly_tag *m = HLY_OF(l, struct hly_tag, all);
        if (names(source, tag, m->source, m->tag))
            return m;
    }
    return NULL;
}

void hly_tags_add_receive(struct hly_tags *t, struct hly_tag *r, int source, int tag)
{
    const bool wild = source == HLY_ANY || tag == HLY_ANY;
    r->source = source;
    r->tag = tag;
    r->order = t->posted++;
    hly_link_append(wild ? &t->wild : &t->receives[bucket_of(source, tag)], &r->near);
    hly_link_append(&t->all_receives, &r->all);
}

void hly_tags_add_message(struct hly_tags *t, struct hly_tag *m, int source, int tag)
{
    m->source = source;
    m->tag = tag;
    m->order = t->came++;
    hly_link_append(&t->messages[bucket_of(source, tag)], &m->near);
    hly_link_append(&t->all_messages, &m->all);
}

void hly_tags_remove(struct hly_tag *entry)
{
    hly_link_remove(&entry->near);
    hly_link_remove(&entry->all);
}
