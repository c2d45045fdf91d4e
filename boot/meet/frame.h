/* SPDX-License-Identifier: Apache-2.0 */
/*
 * frame.h - what the head of a job and its agents say to each other, behind hello and answer:
 * frames of one size, each proved with the job's secret and the challenges of both, and numbered.
 * Inside boot/meet/ only.
 */
#ifndef HALAY_BOOT_MEET_FRAME_H
#define HALAY_BOOT_MEET_FRAME_H

#include <halay/launch.h>

#include "../common/meet.h"

enum hly_frame_from { HLY_FROM_HEAD = 1, HLY_FROM_AGENT };

struct hly_frame {
    uint64_t number;
    uint32_t from, what; /* enum hly_frame_from, enum halay_launch_what */
    int32_t rank, value; /* rank: a place of the head's numbering */
    int32_t state;
    char text[252];
    uint8_t mac[32];
};
_Static_assert(sizeof(struct hly_frame) == 312, "no padding on the wire");

/* One end of the connection. */
struct hly_frames {
    const struct hly_boot_key *key;
    enum hly_frame_from from; /* this end */
    uint8_t challenges[2][16];
    uint64_t sent, heard;
    size_t got; /* of `next` */
    struct hly_frame next;
};

void hly_frames_init(struct hly_frames *f, const struct hly_boot_key *key, enum hly_frame_from from,
                     const struct hly_boot_greeting *greeting, const struct hly_boot_hello *hello);
/* The next one to be sent: number, end and mac are filled in. */
void hly_frame_seal(struct hly_frames *f, struct hly_frame *frame);
/* Takes some of what has come; *bytes and *n become the rest. 1: f->next is whole, and the other
 * end's; 0: more has to come; -1: it is not the other end's. */
int hly_frames_take(struct hly_frames *f, const char **bytes, size_t *n);
/* Marks of what a launcher is still to be told. Is this one set? If so, it is cleared, and *event
 * says it. */
#define HLY_TELL(what) (1u << HALAY_LAUNCH_##what)
bool hly_frame_tells(unsigned *marks, enum halay_launch_what what, int rank, int count,
                     halay_launch_event_t *event);
/* A head or a node that is switched off is noticed after 5 s. */
void hly_frame_keep_alive(int fd);

#endif
