/* SPDX-License-Identifier: Apache-2.0 */
/* verbs_side.c - see verbs_side.h. */
#define _GNU_SOURCE
#include "verbs_side.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../check.h"

enum { MOST = 64, VALUES = 32 };

static struct {
    int rank, nranks;
    int fd[MOST]; /* rank 0: to each rank; else only fd[0] */
} side;

static void move(int fd, void *data, size_t bytes, int out)
{
    for (size_t done = 0; done < bytes;) {
        ssize_t n = out ? send(fd, (char *)data + done, bytes - done, MSG_NOSIGNAL)
                        : recv(fd, (char *)data + done, bytes - done, 0);
        CHECK(n > 0, "rank %d: a rank has left", side.rank);
        done += (size_t)n;
    }
}

void verbs_side_open(int rank, int nranks)
{
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    struct sockaddr_in at = {.sin_family = AF_INET};
    int one = 1, tries = 0;
    CHECK(host && port && nranks <= MOST && inet_pton(AF_INET, host, &at.sin_addr) == 1,
          "MASTER_ADDR and MASTER_PORT are not set");
    at.sin_port = htons((uint16_t)(atoi(port) + 1));
    side.rank = rank;
    side.nranks = nranks;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (rank > 0) {
        while (connect(fd, (struct sockaddr *)&at, sizeof(at))) {
            CHECK(++tries < 600, "rank 0 does not listen");
            usleep(50000);
        }
        side.fd[0] = fd;
        move(fd, &side.rank, sizeof(side.rank), 1);
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    CHECK(!bind(fd, (struct sockaddr *)&at, sizeof(at)) && !listen(fd, MOST), "listen");
    for (int i = 1; i < nranks; i++) {
        int who, its = accept(fd, NULL, NULL);
        CHECK(its >= 0, "accept");
        move(its, &who, sizeof(who), 0);
        CHECK(who > 0 && who < nranks && !side.fd[who], "rank %d", who);
        side.fd[who] = its;
    }
    close(fd);
}

void verbs_side_sum(uint64_t values[], size_t n)
{
    uint64_t its[VALUES];
    CHECK(n <= VALUES, "%zu values", n);
    if (side.rank > 0) {
        move(side.fd[0], values, n * sizeof(its[0]), 1);
        move(side.fd[0], values, n * sizeof(its[0]), 0);
        return;
    }
    for (int r = 1; r < side.nranks; r++) {
        move(side.fd[r], its, n * sizeof(its[0]), 0);
        for (size_t i = 0; i < n; i++)
            values[i] += its[i];
    }
    for (int r = 1; r < side.nranks; r++)
        move(side.fd[r], values, n * sizeof(its[0]), 1);
}

void verbs_side_close(void)
{
    for (int r = 0; r < side.nranks; r++)
        if (side.fd[r])
            close(side.fd[r]);
}
