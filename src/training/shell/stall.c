/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stall.c - notices of which ranks have not submitted what; docs/decisions/training.md#0021. A
 * notice decides nothing: it changes neither records nor lists, except for when the next one is
 * due.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../waits/text.h"
#include "../../waits/waits.h"
#include "../core/negotiate.h"
#include "trainer.h"

#define NOTICE_S_MAX  1e6
#define ALARM_OF      16  /* deadline / this: a replayed group is out for long */
#define LINES         100 /* of one trainer */
#define PARTS         4   /* entries of a block that one question takes */
#define PART_BYTES    (sizeof(struct hlt_announcement) - 2 * sizeof(uint64_t))
#define QUESTION_BYTE (PARTS * PART_BYTES)
#define NAME_SHOWN    120

/* An entry of a block: a part of "name, zero, place, zero". */
struct part {
    uint64_t name;
    uint64_t what; /* kind, part << 8, milliseconds waited << 16 */
    char text[PART_BYTES];
};

_Static_assert(sizeof(struct part) == sizeof(struct hlt_announcement), "one is read as the other");

/* ------------------------------------------------------------------ settings */

/* HALAY_STALL in seconds; 0: no notices. halay_init has refused a value that is no number. */
void hlt_stall_init(halay_trainer_t *trainer)
{
    const char *text = getenv("HALAY_STALL"), *level = getenv("HALAY_DEBUG");
    const double seconds = text && *text ? strtod(text, NULL) : -1;
    trainer->stall.notice_ns =
        seconds >= 0 && seconds <= NOTICE_S_MAX ? (uint64_t)(seconds * 1e9) : HLY_FIRST_NOTICE_NS;
    const uint64_t notice_ns = trainer->stall.notice_ns,
                   wait_ns = trainer->core.deadline_ns / ALARM_OF;
    trainer->core.alarm_after_ns = notice_ns && notice_ns < wait_ns ? notice_ns : wait_ns;
    trainer->stall.mute = level && !strcmp(level, "error");
}

/* ------------------------------------------------------------------ places */

void hlt_stall_free(halay_trainer_t *trainer)
{
    hlt_tensor_map_finish(&trainer->stall.places, hlt_node_free);
}

/* Mutex held. Names that are used once push each other out. */
static void place_keep(struct hlt_stall *stall, struct hlt_place *place, int lasting)
{
    if (!lasting) {
        size_t at = stall->nonce++ % HLT_PLACES_ONCE;
        if (stall->once[at]) {
            hlt_tensor_map_remove(&stall->places, &stall->once[at]->node);
            free(stall->once[at]);
        }
        stall->once[at] = place;
    } else {
        stall->nlasting++;
    }
    hlt_tensor_map_add(&stall->places, &place->node);
}

/* The end of a long path is kept, from a whole character on. */
int halay_trainer_place(halay_trainer_t *trainer, const char *name, const char *place, int lasting)
{
    if (!trainer || !name || !name[0] || !place)
        return HALAY_EINVAL;
    size_t bytes = strlen(place);
    if (bytes >= HLT_PLACE_BYTES)
        place += bytes - (HLT_PLACE_BYTES - 1);
    while (bytes >= HLT_PLACE_BYTES && ((unsigned char)*place & 0xc0) == 0x80)
        place++;
    struct hlt_place *added = calloc(1, sizeof(*added));
    if (!added)
        return HALAY_ENOMEM;
    added->node.hash = hlt_tensor_hash(name);
    strcpy(added->text, place);
    int rc = hlt_trainer_enter(trainer);
    if (rc) {
        free(added);
        return rc;
    }
    struct hlt_stall *stall = &trainer->stall;
    int known = hlt_tensor_map_find(&stall->places, added->node.hash) != NULL;
    if (known || (lasting && stall->nlasting == HLT_PLACES))
        free(added);
    else
        place_keep(stall, added, lasting);
    return hlt_trainer_leave(trainer, 0);
}

void hlt_stall_place(halay_trainer_t *trainer, uint64_t name, char *text)
{
    pthread_mutex_lock(&trainer->mutex);
    const struct hlt_place *place =
        (const struct hlt_place *)hlt_tensor_map_find(&trainer->stall.places, name);
    strcpy(text, place ? place->text : "");
    pthread_mutex_unlock(&trainer->mutex);
}

/* ------------------------------------------------------------------ when */

static struct hly_notices notices_of(const struct hlt_stall *stall, const struct hlt_tensor *tensor)
{
    return (struct hly_notices){tensor->submit_ns, stall->notice_ns, tensor->notices};
}

/* The list is walked once in a notice's time, and when one is due. */
struct hlt_tensor *hlt_stall_due(halay_trainer_t *trainer)
{
    struct hlt_stall *stall = &trainer->stall;
    struct hlt_tensor *due = NULL;
    if (!stall->notice_ns || !trainer->core.waiting.head)
        return NULL;
    uint64_t now_ns = hlt_trainer_now_ns();
    if (now_ns < stall->check_ns)
        return NULL;
    uint64_t next_ns = now_ns + stall->notice_ns, due_ns = now_ns + 1;
    for (struct hlt_tensor *t = trainer->core.waiting.head; t; t = t->next) {
        const struct hly_notices notices = notices_of(stall, t);
        const uint64_t t_ns = hly_notices_due_ns(&notices);
        if (t_ns < due_ns) {
            due = t;
            due_ns = t_ns;
        } else if (t_ns > now_ns && t_ns < next_ns) {
            next_ns = t_ns;
        }
    }
    if (!due)
        stall->check_ns = next_ns;
    return due;
}

uint64_t hlt_stall_check_ns(const halay_trainer_t *trainer)
{
    const struct hlt_stall *stall = &trainer->stall;
    if (!stall->notice_ns || trainer->round) /* of a round that waits, the calls below say so */
        return 0;
    return trainer->core.waiting.head ? stall->check_ns : 0;
}

/* One notice is of all that wait for the same ranks, so one that was almost due counts as given. */
static void told(const struct hlt_stall *stall, struct hlt_tensor *tensor, uint64_t now_ns)
{
    struct hly_notices notices = notices_of(stall, tensor);
    hly_notices_give(&notices, now_ns + stall->notice_ns / 2);
    tensor->notices = notices.given;
}

/* ------------------------------------------------------------------ questions */

void hlt_stall_write(halay_trainer_t *trainer, struct hlt_block *block)
{
    char text[QUESTION_BYTE] = "", place[HLT_PLACE_BYTES];
    struct hlt_tensor *tensor = hlt_stall_due(trainer);
    if (!tensor || block->count + PARTS > HLT_ROUND_ENTRIES)
        return;
    uint64_t now_ns = hlt_trainer_now_ns();
    uint64_t waited_ms = (now_ns - tensor->submit_ns) / 1000000;
    hlt_stall_place(trainer, tensor->node.hash, place);
    int bytes = snprintf(text, sizeof(text), "%.*s", (int)hly_line_whole(tensor->name, NAME_SHOWN),
                         tensor->name) +
                1;
    assert((size_t)bytes + HLT_PLACE_BYTES <= sizeof(text));
    strcpy(text + bytes, place);
    for (uint64_t i = 0; i < PARTS; i++) {
        struct part *part = (struct part *)&block->entries[block->count++];
        part->name = tensor->node.hash;
        part->what = HLT_KIND_QUESTION | i << 8 | waited_ms << 16;
        memcpy(part->text, text + i * PART_BYTES, PART_BYTES);
    }
}

static int alike(const struct hlt_record *a, const struct hlt_record *b, int nranks)
{
    return !memcmp(a->announced, b->announced, hlt_rank_words(nranks) * sizeof(uint64_t));
}

/* A rank with a full block may have more to say: then it is asked again in the next round. */
static int all_said(const halay_trainer_t *trainer)
{
    for (int r = 0; r < trainer->core.nranks; r++)
        if (trainer->core.rounds.blocks[r].count == HLT_ROUND_ENTRIES)
            return 0;
    return 1;
}

/* Marks all records that wait for the same ranks as told. Returns how many they are. */
static int tell(halay_trainer_t *trainer, const struct hlt_record *record)
{
    int count = 0;
    uint64_t now_ns = hlt_trainer_now_ns();
    for (size_t i = 0; i <= trainer->core.rounds.records.mask; i++) {
        for (struct hlt_node *node = trainer->core.rounds.records.buckets[i]; node;
             node = node->next) {
            struct hlt_record *other = (struct hlt_record *)node;
            if (!alike(record, other, trainer->core.nranks))
                continue;
            other->noticed_round = trainer->core.counters.control_rounds;
            count++;
        }
    }
    for (struct hlt_tensor *t = trainer->core.waiting.head; t; t = t->next) {
        struct hlt_node *node = hlt_tensor_map_find(&trainer->core.rounds.records, t->node.hash);
        if (node &&
            ((struct hlt_record *)node)->noticed_round == trainer->core.counters.control_rounds)
            told(&trainer->stall, t, now_ns);
    }
    return count;
}

static void say(halay_trainer_t *trainer, const char *text)
{
    struct hlt_stall *stall = &trainer->stall;
    if (!stall->notice_ns || stall->mute || stall->lines > LINES)
        return;
    fprintf(stderr, "halay: rank %d: %s%s\n", trainer->core.rank, text,
            stall->lines == LINES ? " (no more notices from this rank)" : "");
    stall->lines++;
}

/* It knows most: where it has submitted the name before, and what it waits for itself. */
static int first_missing(const halay_trainer_t *trainer, const struct hlt_record *record)
{
    int r = 0;
    while (r < trainer->core.nranks - 1 && !hlt_join_missing(&trainer->core, record, r))
        r++;
    return r;
}

static void asked(halay_trainer_t *trainer, int rank, const struct part *parts)
{
    char question[QUESTION_BYTE], text[HLT_TEXT_BYTES];
    char here[HLT_PLACE_BYTES], waits[HLT_PLACE_BYTES] = "";
    const struct hlt_tensor *own = trainer->core.waiting.head;
    struct hlt_record *record =
        (struct hlt_record *)hlt_tensor_map_find(&trainer->core.rounds.records, parts->name);
    if (!record || record->noticed_round == trainer->core.counters.control_rounds ||
        !all_said(trainer))
        return;
    for (size_t i = 0; i < PARTS; i++)
        memcpy(question + i * PART_BYTES, parts[i].text, PART_BYTES);
    question[QUESTION_BYTE - 1] = 0;
    struct hlt_notice notice = {
        .rank = rank,
        .waited_ns = (parts->what >> 16) * 1000000,
        .name = question,
        .place = strlen(question) + 1 < QUESTION_BYTE ? question + strlen(question) + 1 : "",
        .others = tell(trainer, record) - 1,
        .here = here,
        .waits = waits,
    };
    if (trainer->core.rank != first_missing(trainer, record)) /* all read it, and one says it */
        return;
    hlt_stall_place(trainer, record->node.hash, here);
    if (own)
        hlt_stall_place(trainer, own->node.hash, waits);
    hlt_text_notice(text, &trainer->core, record, &notice);
    say(trainer, text);
}

void hlt_stall_read(halay_trainer_t *trainer)
{
    for (int r = 0; r < trainer->core.nranks; r++) {
        const struct hlt_block *block = &trainer->core.rounds.blocks[r];
        for (uint64_t i = 0; i + PARTS <= block->count; i++) {
            const struct hlt_announcement *says = &block->entries[i];
            if (hlt_announcement_kind(says) == HLT_KIND_QUESTION && !(says->what >> 8 & 0xff))
                asked(trainer, r, (const struct part *)says);
        }
    }
}
