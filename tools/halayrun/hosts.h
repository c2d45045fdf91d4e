/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.h - the hosts that a job runs on, and how many ranks each of them takes. */
#ifndef HALAYRUN_HOSTS_H
#define HALAYRUN_HOSTS_H

#include <stddef.h>

enum { HLY_HOSTS_MAX = 65536, HLY_HOST_BYTES = 256 };

struct hly_host {
    char name[HLY_HOST_BYTES]; /* of an IPv6 address, without brackets */
    int slots;                 /* ranks that it can take */
    int ranks;                 /* ranks that it gets */
};

struct hly_hosts {
    struct hly_host *list;
    int n;
};

/* "name", "name:slots", "::1", "[::1]" or "[::1]:slots" of so many bytes; slots is set where it
 * is given. NULL, or what is wrong. */
const char *hly_host_read(struct hly_host *host, const char *text, size_t bytes);

/* It is a name of this machine. */
int hly_host_here(const char *name);

/* Adds a copy. 0, or the status to exit with, said. */
int hly_hosts_add(struct hly_hosts *hosts, const struct hly_host *host);

/* Two names of the same host, as far as names tell. */
int hly_host_same(const char *a, const char *b);

/* "a:2,b:4"; a host without a number has one slot. 0, or the status to exit with, said. */
int hly_hosts_parse(struct hly_hosts *hosts, const char *text);

/* A host file: "a slots=2" on a line of its own. 0, or the status to exit with, said. */
int hly_hosts_read(struct hly_hosts *hosts, const char *path);

/*
 * What LSF gave this job, without the launch node: the first host, if that has one slot and all
 * others have more. 0, or the status to exit with, said.
 */
int hly_hosts_from_lsf(struct hly_hosts *hosts);

void hly_hosts_destroy(struct hly_hosts *hosts);

int hly_hosts_slots(const struct hly_hosts *hosts);

/* 1 if all of them are names of this machine. */
int hly_hosts_here(const struct hly_hosts *hosts);

/* Gives ranks to the hosts: fill, each host all that it can take before the next; deal, as evenly
 * as their slots allow. There are slots for all. */
void hly_hosts_fill(struct hly_hosts *hosts, int nranks);
void hly_hosts_deal(struct hly_hosts *hosts, int nranks);

/* How many hosts have ranks. */
int hly_hosts_used(const struct hly_hosts *hosts);

#endif
