/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a rank that is not the first of its node hears from whoever holds the node's doors: before
 * the list, after it, and when the table comes. A clock of its own; words bring descriptors.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"
#include "pmix/node.h"

#define MS_NS UINT64_C(1000000)

static struct fuzz *input;
static uint64_t clock_ns;
static int nothing_fd;

static uint64_t tick(void)
{
    return clock_ns += MS_NS / 10;
}

static int sleep_for(const struct timespec *t, struct timespec *left)
{
    (void)left;
    clock_ns += (uint64_t)t->tv_nsec;
    return 0;
}

/* 0: nobody is there. */
static int call(int fd, const struct sockaddr *name, socklen_t bytes)
{
    (void)fd, (void)name, (void)bytes;
    return fuzz_byte(input) ? 0 : -1;
}

static bool is_ours(int fd)
{
    (void)fd;
    return fuzz_byte(input) != 0xff;
}

static int door(const struct hly_node *node, int k, struct sockaddr_un *name, socklen_t *bytes)
{
    (void)node, (void)k;
    memset(name, 0, sizeof(*name));
    *bytes = sizeof(*name);
    return FUZZ_FD;
}

/* Is it the first rank that holds the door? */
static bool greets(const struct hly_boot_key *key, int fd, uint64_t until_ns,
                   struct hly_boot_greeting *greeting, const char **why)
{
    (void)key, (void)fd, (void)until_ns;
    *greeting = (struct hly_boot_greeting){.pid = 1, .address.family = fuzz_byte(input)};
    *why = "nothing";
    return fuzz_byte(input) != 0;
}

/* What it answers, as far as visit.c lets that through (fuzz/boot_guest). */
static int answers(const struct hly_boot_visit *visit, int fd,
                   const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                   struct hly_boot_answer *answer, char **why)
{
    const uint8_t what = fuzz_byte(input);
    (void)fd, (void)greeting, (void)hello;
    *answer = (struct hly_boot_answer){0};
    *why = NULL;
    *visit->heard = what % 3;
    if (what & 0x80)
        return HALAY_EBOOT;
    answer->magic = HLY_BOOT_MAGIC;
    if (what & 0x40)
        return HALAY_EBOOT;
    answer->joined = what & 0x20 ? HLY_BOOT_LISTED : 0;
    answer->said = fuzz_byte(input) | HLY_BOOT_APART;
    FUZZ_WANT((*why = fuzz_text(input)));
    return HALAY_OK;
}

/* A text, or bytes without an end; with descriptors, copies. */
static ssize_t come(int fd, struct msghdr *message, int flags)
{
    const uint8_t what = fuzz_byte(input), brings = what & 0x80 ? fuzz_byte(input) & 3 : 0;
    const size_t n = what & 0x40 ? message->msg_iov->iov_len : what & 0x3f;
    (void)flags;
    FUZZ_WANT(fd == FUZZ_FD);
    memset(message->msg_control, 0, message->msg_controllen);
    if (!what || !input->left) {
        static const int errors[] = {EAGAIN, EINTR, ECONNRESET, EPIPE};
        clock_ns += 100 * MS_NS; /* for this one is waited */
        message->msg_controllen = 0;
        errno = errors[fuzz_byte(input) & 3];
        return input->left ? -1 : 0;
    }
    memset(message->msg_iov->iov_base, 'x', n);
    int fds[2] = {-1, -1};
    for (int i = 0; i < brings && i < 2; i++)
        FUZZ_WANT((fds[i] = fcntl(nothing_fd, F_DUPFD_CLOEXEC, 0)) >= 0);
    struct cmsghdr *head = message->msg_control;
    const size_t given = brings > 2 ? 2 : brings;
    message->msg_controllen = given ? CMSG_SPACE(given * sizeof(int)) : 0;
    if (given) {
        *head = (struct cmsghdr){.cmsg_len = CMSG_LEN(given * sizeof(int)),
                                 .cmsg_level = SOL_SOCKET,
                                 .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(head), fds, given * sizeof(int));
    }
    return (ssize_t)n;
}

static int listens(const struct hly_boot_log *log, const halay_address_t *near,
                   halay_address_t *address, int *fd)
{
    (void)log, (void)near;
    *address = (halay_address_t){.family = 4};
    *fd = FUZZ_FD;
    return fuzz_byte(input) == 0xff ? HALAY_EBOOT : HALAY_OK;
}

#define hly_boot_now_ns        tick
#define nanosleep              sleep_for
#define connect                call
#define hly_boot_same_user     is_ours
#define hly_node_door          door
#define recvmsg                come
#define hly_boot_visit_greeted greets
#define hly_boot_visit_ask     answers
#define hly_listen_near        listens
#include "pmix/member.c" /* NOLINT(bugprone-suspicious-include) */

static void nowhere(void *arg, int level, const char *text)
{
    (void)level;
    *(size_t *)arg += strlen(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum { LOCAL = 3, RANK = 1 };
    static const uint32_t local[LOCAL] = {0, RANK, 5};
    static size_t said;
    const struct hly_boot_log log = {nowhere, &said};
    struct fuzz f = {data, bytes};
    struct hly_node node = {.log = &log,
                            .nspace = "fuzz",
                            .rank = RANK,
                            .nlocal = LOCAL,
                            .local = local,
                            .self.host = "host"};
    int rc, fd = -1;
    input = &f;
    clock_ns = 1000 * MS_NS;
    if (!nothing_fd)
        nothing_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int first = fuzz_free_fd();
    hly_node_init(&node);
    node.begin_ns = clock_ns;
    node.half_ns = clock_ns + 2000 * MS_NS;
    node.end_ns = clock_ns + 4000 * MS_NS;
    rc = hly_node_member_meet(&node);
    for (int i = 0; !rc && i < 16 && f.left; i++)
        rc = hly_node_member_step(&node);
    if (!rc && node.role == HLY_ROLE_MEMBER)
        rc = hly_node_take(&node, &fd);
    if (fd >= 0)
        close(fd);
    if (node.table_fd >= 0)
        close(node.table_fd);
    free(node.came);
    FUZZ_WANT(fuzz_free_fd() == first);
    return 0;
}
