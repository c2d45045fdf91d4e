/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - what the transport over verbs decides without a device: pure functions, which are
 * tested where there is none.
 */
#ifndef HALAY_VERBS_RULES_H
#define HALAY_VERBS_RULES_H

#include <stddef.h>
#include <stdint.h>

enum {
    HLY_VERBS_CREDITS = 32, /* of a peer, at most */
    HLY_VERBS_KEPT = 2,     /* receive requests beyond the credits: for what brings credits back */
    HLY_VERBS_GIDS = 8,     /* of a port, at most, that are told to a peer */
    HLY_VERBS_TEXT = 256,
    HLY_VERBS_RAILS = 4 /* at most */
};

/* ------------------------------------------------------------------ credits */

/* Credits for one more peer, where there are so many. */
uint32_t hly_verbs_grant(uint32_t npeers);
/* Are so many owed that they go back now, if need be alone? At least half: of such returns no more
 * than KEPT can be unread. */
int hly_verbs_owes_enough(uint32_t owed, uint32_t grant);

/* ------------------------------------------------------------------ pieces */

typedef struct hly_verbs_piece {
    size_t offset, bytes;
    int last; /* it brings the immediate */
} hly_verbs_piece_t;

/*
 * The piece that begins at offset, of a put of so many bytes. most: bytes of one work request;
 * apart: beyond so many bytes the immediate travels alone, behind all data.
 */
hly_verbs_piece_t hly_verbs_piece(size_t bytes, size_t offset, size_t most, size_t apart);

/* ------------------------------------------------------------------ GIDs */

enum { HLY_VERBS_IB = 1, HLY_VERBS_ROCE1, HLY_VERBS_ROCE2 };

typedef struct hly_verbs_gid {
    uint8_t raw[16];
    uint8_t index, type;
    uint8_t prefix; /* bits of its subnet, 0: not known */
    uint8_t zero;
} hly_verbs_gid_t;

/* How good a way from one to the other is; 0: none. The same from both ends. */
int hly_verbs_gid_rate(const hly_verbs_gid_t *a, const hly_verbs_gid_t *b);
/*
 * The best pair. lower: of the two ends this has the lower id; it orders ties, so that both ends
 * choose the same. 0: found; -1: none.
 */
int hly_verbs_gids_pair(const hly_verbs_gid_t mine[], int n, const hly_verbs_gid_t theirs[], int m,
                        int lower, int *i, int *j);
/* How near a GID is to the address of a bootstrap: 4 or 16 bytes, family AF_INET or AF_INET6. */
int hly_verbs_gid_near(const hly_verbs_gid_t *gid, int family, const uint8_t *ip);

/* ------------------------------------------------------------------ settings */

typedef struct hly_verbs_settings {
    char device[64];
    int port, gid, mtu, class, rails; /* -1: not set */
} hly_verbs_settings_t;

/* "device=mlx5_0:1,gid=3,mtu=1024,class=104,rails=2"; adds to what is set. 0, or -1 and why. */
int hly_verbs_settings_read(const char *text, hly_verbs_settings_t *settings,
                            char why[HLY_VERBS_TEXT]);
/* 256 to 4096 bytes as verbs number them, 1 to 5; 0: none of them. */
int hly_verbs_mtu_number(int bytes);
int hly_verbs_mtu_bytes(int number);

#endif
