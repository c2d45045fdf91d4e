/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_stranger.c - another user of this machine, and what he does to a job whose PMIx variables he
 * has in his environment. Needs root, to become one.
 *
 *   job_stranger leave    connects to the server and goes, again and again; how often with a word
 *   job_stranger join     says that it is the job's rank; ends the job if that is believed
 *   job_stranger flood PORT    connects to a rank and says something random, for ever
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <pmix.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../check.h"

enum { NOBODY = 65534, TIMES = 200 };

static int server_port(void)
{
    const char *uri = getenv("PMIX_SERVER_URI4");
    const char *port = uri ? strrchr(uri, ':') : NULL;
    CHECK(port, "no server: %s", uri ? uri : "PMIX_SERVER_URI4 is not set");
    return (int)strtol(port + 1, NULL, 10);
}

/* 1: something was said to it. */
static int visit(int port, unsigned seed, int waits)
{
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    uint8_t bytes[128];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger now = {.l_onoff = 1};
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)rand_r(&seed);
    int heard = 0;
    if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0) {
        (void)!send(fd, bytes, seed % sizeof(bytes), MSG_NOSIGNAL);
        heard = waits && recv(fd, bytes, sizeof(bytes), 0) > 0;
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(fd);
    return heard;
}

static int join(void)
{
    pmix_proc_t me;
    pmix_status_t status = PMIx_Init(&me, NULL, 0);
    printf("PMIx_Init: %s\n", PMIx_Error_string(status));
    if (status == PMIX_SUCCESS)
        PMIx_Abort(99, "by a stranger", NULL, 0);
    return status == PMIX_SUCCESS;
}

int main(int argc, char **argv)
{
    CHECK(argc > 1, "say what to do");
    if (geteuid() == 0)
        CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0,
              "it cannot become another");
    if (!strcmp(argv[1], "join"))
        return join();
    if (!strcmp(argv[1], "leave")) {
        int heard = 0;
        for (unsigned i = 0; i < TIMES; i++)
            heard += visit(server_port(), i, (int)(i % 2));
        printf("heard something %d times\n", heard);
        return heard > 0;
    }
    CHECK(!strcmp(argv[1], "flood") && argc > 2, "not '%s'", argv[1]);
    for (unsigned i = 0;; i++)
        visit((int)strtol(argv[2], NULL, 10), i, 0);
}
