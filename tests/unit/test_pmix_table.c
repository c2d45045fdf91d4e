/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of nodes in shared memory: what is mapped is what was made; it cannot be changed; what
 * is cut, changed, not sealed or of another job is refused, or stays in bounds.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../pmix/identity.h"

#include "../check.h"

static const struct hly_boot_log silent = {NULL, NULL};

/* Ranks dealt out to the nodes (dealt), or filled node by node, per_node each. */
static struct hly_pmix_records records_of(int nranks, int nnodes, bool dealt)
{
    struct hly_pmix_records r = {.secret = "a secret", .job = "a job"};
    int per_node = (nranks + nnodes - 1) / nnodes;
    r.runs = malloc((size_t)nranks * sizeof r.runs[0]);
    r.nodes = calloc((size_t)nnodes, sizeof r.nodes[0]);
    r.ports = malloc((size_t)nranks * sizeof r.ports[0]);
    MUST(r.runs && r.nodes && r.ports);
    r.places = (struct hly_boot_places){.nranks = nranks, .nnodes = nnodes};
    for (int i = 0; i < nranks; i++) {
        int node = dealt ? i % nnodes : i / per_node;
        r.ports[i] = (uint16_t)(1000 + i);
        if (i == 0 || r.runs[r.places.nruns - 1].node != node)
            r.runs[r.places.nruns++] = (struct hly_boot_run){i, node};
    }
    for (int n = 0; n < nnodes; n++) {
        snprintf(r.nodes[n].host, sizeof r.nodes[n].host, "host%d", n);
        r.nodes[n].address = (halay_address_t){.family = AF_INET, .ip = {10, 0, 0, (uint8_t)n}};
    }
    r.places.runs = r.runs;
    r.places.nodes = r.nodes;
    r.places.ports = r.ports;
    return r;
}

static void whole(int nranks, int nnodes, bool dealt)
{
    struct hly_pmix_records r = records_of(nranks, nnodes, dealt);
    struct hly_pmix_table table;
    halay_place_t a = {.size = sizeof a}, b = {.size = sizeof b};
    int fd = -1;
    MUST(hly_pmix_table_make(&silent, &r, &fd) == HALAY_OK && fd >= 0);
    MUST(write(fd, "x", 1) < 0 && errno == EPERM);
    MUST(ftruncate(fd, 1) < 0 && errno == EPERM);
    MUST(mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
    MUST(hly_pmix_table_map(&silent, fd, nranks + 1, &table) == HALAY_EBOOT && !table.at);
    MUST(hly_pmix_table_map(&silent, fd, nranks, &table) == HALAY_OK);
    close(fd);
    MUST(!memcmp(table.secret, r.secret, 16) && !memcmp(table.job, r.job, 16));
    MUST(table.places.nnodes == nnodes && table.places.nruns == r.places.nruns);
    for (int i = 0; i < nranks; i++) {
        MUST(!hly_boot_places_get(&table.places, i, &a));
        MUST(!hly_boot_places_get(&r.places, i, &b) && !memcmp(&a, &b, sizeof a));
        MUST(a.address.port == 1000 + i);
    }
    hly_pmix_table_unmap(&table);
    hly_pmix_records_finish(&r);
}

static int copy_of(const char *bytes, size_t n, int seals)
{
    int fd = memfd_create("a copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    MUST(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && !fcntl(fd, F_ADD_SEALS, seals));
    return fd;
}

static void spoilt(void)
{
    enum { N = 8, SEALED = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };
    struct hly_pmix_records r = records_of(N, 3, true);
    struct hly_pmix_table table;
    int fd = -1, refused = 0, pipes[2];
    MUST(hly_pmix_table_make(&silent, &r, &fd) == HALAY_OK);
    off_t bytes = lseek(fd, 0, SEEK_END);
    char *good = malloc((size_t)bytes + 1);
    MUST(good && pread(fd, good, (size_t)bytes, 0) == bytes);
    close(fd);
    for (int s = 0; s < 2; s++) { /* one seal too few, or none */
        fd = copy_of(good, (size_t)bytes, s ? SEALED & ~F_SEAL_WRITE : 0);
        MUST(hly_pmix_table_map(&silent, fd, N, &table) == HALAY_EBOOT && !table.at);
        close(fd);
    }
    for (off_t n = 0; n <= bytes + 1; n++) { /* cut, whole, or longer */
        fd = copy_of(good, (size_t)n, SEALED);
        MUST((hly_pmix_table_map(&silent, fd, N, &table) == HALAY_OK) == (n == bytes));
        hly_pmix_table_unmap(&table);
        close(fd);
    }
    for (off_t at = 0; at < bytes * 8; at++) {
        good[at / 8] ^= (char)(1 << at % 8);
        fd = copy_of(good, (size_t)bytes, SEALED);
        halay_place_t place = {.size = sizeof place};
        halay_boot_info_t info = {.rank = 3};
        if (hly_pmix_table_map(&silent, fd, N, &table)) {
            refused++;
        } else {
            for (int i = 0; i < N; i++)
                MUST(!hly_boot_places_get(&table.places, i, &place) && place.node < 3);
            hly_boot_places_info(&table.places, &info);
            hly_pmix_table_unmap(&table);
        }
        close(fd);
        good[at / 8] ^= (char)(1 << at % 8);
    }
    MUST(refused > 400);
    MUST(!pipe(pipes) && hly_pmix_table_map(&silent, pipes[0], N, &table) == HALAY_EBOOT);
    close(pipes[0]);
    close(pipes[1]);
    free(good);
    hly_pmix_records_finish(&r);
}

int main(void)
{
    whole(1, 1, false);
    whole(7, 3, false);
    whole(7, 7, false);
    whole(64, 4, true);
    whole(5000, 40, true);
    spoilt();
    return 0;
}
