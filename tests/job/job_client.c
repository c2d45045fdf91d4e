/* SPDX-License-Identifier: Apache-2.0 */
/*
 * job_client - a rank for the job tests: opens a bootstrap (JOB_BOOT=tcp, pmi or meet, else PMIx)
 * as its first argument says. Exits with 0 if all was as expected; what it prints is compared by
 * the scripts.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <halay/boot.h>

#include "../check.h"
#include "../whole_table.h"

extern const halay_boot_ops_t halay_boot_v4_pmix, halay_boot_v4_tcp, halay_boot_v4_pmi,
    halay_boot_v4_meet;
extern int PMIx_Init(void *proc, void *info, size_t ninfo);
extern int PMIx_Abort(int status, const char text[], void *procs, size_t nprocs);

enum { EPOCHS = 1000 };

static const halay_boot_ops_t *ops = &halay_boot_v4_pmix;
static char last_log[1024];
static const char *die_after; /* 0.6 s after a message with this text */

static void keep_log(void *arg, int level, const char *text)
{
    MUST(arg == last_log && text);
    if (level == 0 || level == HALAY_LOG_TOLD)
        snprintf(last_log, sizeof last_log, "%s", text);
    if (level > 0 && getenv("JOB_LOG"))
        fprintf(stderr, "[%d] %s\n", level, text);
    if (die_after && strstr(text, die_after)) {
        struct itimerval in = {.it_value = {0, 600000}};
        MUST(!setitimer(ITIMER_REAL, &in, NULL));
    }
}

static int open_job(double seconds, halay_boot_info_t *info, halay_boot_t **boot)
{
    memset(info, 0, sizeof *info);
    info->size = sizeof *info;
    last_log[0] = '\0';
    int rc = ops->open(NULL, keep_log, last_log, (uint64_t)(seconds * 1e9), info, boot);
    if (rc)
        fprintf(stderr, "open: %d: %s\n", rc, last_log);
    MUST((rc == 0) == (last_log[0] == '\0')); /* an error is logged, success is not one */
    return rc;
}

static void print_bytes(const char *name, const uint8_t bytes[16])
{
    printf(" %s=", name);
    for (int i = 0; i < 16; i++)
        printf("%02x", bytes[i]);
}

static void print_address(const halay_address_t *address)
{
    char ip[INET6_ADDRSTRLEN] = "none";
    MUST((address->fabrics & ~(HALAY_FABRIC_RDMA | HALAY_FABRIC_VERBS | HALAY_FABRIC_UCX |
                               HALAY_NODE_OVERSUBSCRIBED | HALAY_NODE_SINGLE)) == 0);
    if (address->family)
        MUST(inet_ntop(address->family, address->ip, ip, sizeof ip));
    printf("%s/%d", ip, ntohs(address->port));
}

/* The socket listens at the address that all are told, does not block, and is not inherited. */
static void check_listening(const halay_boot_info_t *now)
{
    struct sockaddr_storage at = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&at;
    socklen_t bytes = sizeof at, n = sizeof(int);
    int on = 0;
    MUST(now->address.family == AF_INET && now->address.port);
    MUST(!getsockname(now->listen_fd, (struct sockaddr *)&at, &bytes));
    MUST(four->sin_family == AF_INET && four->sin_port == now->address.port &&
         !memcmp(&four->sin_addr, now->address.ip, 4));
    MUST(!getsockopt(now->listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &n) && on);
    MUST(fcntl(now->listen_fd, F_GETFD) & FD_CLOEXEC);
    MUST(fcntl(now->listen_fd, F_GETFL) & O_NONBLOCK);
    MUST(accept(now->listen_fd, NULL, NULL) < 0 && errno == EAGAIN);
}

/* A connection that comes between two epochs waits for the next. */
static void check_parked(const halay_boot_info_t *now)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = now->address.port};
    memcpy(&at.sin_addr, now->address.ip, 4);
    int to = socket(AF_INET, SOCK_STREAM, 0);
    MUST(to >= 0 && !connect(to, (struct sockaddr *)&at, sizeof at));
    int from = accept(now->listen_fd, NULL, NULL);
    MUST(from >= 0);
    close(from);
    close(to);
}

/* Several epochs of one identity; the last is printed: first what is the same on all ranks. */
static int info(void)
{
    halay_boot_info_t first = {0}, now, again = {.size = sizeof again};
    halay_boot_t *boot = NULL, *other = NULL;
    halay_place_t at = {.size = sizeof at};
    uint64_t epochs = getenv("JOB_EPOCHS") ? strtoull(getenv("JOB_EPOCHS"), NULL, 10) : EPOCHS;
    for (uint64_t epoch = 1; epoch <= epochs; epoch++) {
        MUST(open_job(20, &now, &boot) == 0);
        MUST(now.epoch == epoch);
        if (epoch == 1)
            first = now;
        now.epoch = first.epoch;
        now.kept_alike = first.kept_alike; /* a later epoch exchanges nothing */
        MUST(memcmp(&first, &now, sizeof now) == 0);
        MUST(ops->open(NULL, keep_log, last_log, 1000000000, &again, &other) == HALAY_ESTATE);
        MUST(strstr(last_log, "initialised twice") && !other);
        if (epoch < epochs)
            ops->close(boot);
    }
    check_listening(&now);
    check_parked(&now);
    printf("%d ranks on %d nodes, %s,", now.nranks, now.nnodes, now.launcher);
    print_bytes("job", now.job);
    print_bytes("secret", now.secret);
    for (int rank = 0; rank < now.nranks; rank++) {
        MUST(ops->get(boot, rank, &at) == 0 && at.node >= 0 && at.node < now.nnodes);
        MUST(rank != now.rank || (at.node == now.node && !strcmp(at.host, now.host) &&
                                  !memcmp(&at.address, &now.address, sizeof at.address)));
        printf(" %d@%d:%s=", rank, at.node, at.host);
        print_address(&at.address);
    }
    MUST(ops->get(boot, now.nranks, &at) == HALAY_EINVAL &&
         ops->get(boot, -1, &at) == HALAY_EINVAL);
    printf(" | rank %d local %d of %d node %d\n", now.rank, now.local_rank, now.local_nranks,
           now.node);
    ops->close(boot);
    ops->close(NULL);
    return 0;
}

static int wait_for(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0)
        MUST(errno == EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* What a rank starts inherits its environment, and must not become the rank. */
static int children(char *self)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    MUST(open_job(20, &now, &boot) == 0);
    pid_t pid = fork();
    if (pid == 0) { /* it does not hold the rank's socket, so it cannot take its connections */
        if (fcntl(now.listen_fd, F_GETFD) >= 0)
            _exit(2);
        _exit(open_job(20, &now, &boot) == HALAY_ESTATE && strstr(last_log, "forked") ? 0 : 1);
    }
    MUST(wait_for(pid) == 0);
    pid = fork();
    if (pid == 0) {
        execl(self, self, "heir", NULL);
        _exit(127);
    }
    MUST(wait_for(pid) == 0);
    ops->close(boot);
    MUST(open_job(20, &now, &boot) == 0 && now.epoch == 2);
    ops->close(boot);
    return 0;
}

static int heir(void)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    MUST(open_job(20, &now, &boot) == HALAY_ESTATE);
    clock_gettime(CLOCK_MONOTONIC, &b);
    MUST(b.tv_sec - a.tv_sec <= 1); /* it was told at once, not by the deadline */
    char parent[32];
    snprintf(parent, sizeof parent, "process %d", (int)getppid());
    MUST(strstr(last_log, parent));
    int announced = 0;
    MUST(ops->probe(&announced) == 1 && announced == 2);
    setenv("HALAY_JOB", "none", 1); /* the remedy that the message names */
    MUST(strstr(last_log, "HALAY_JOB=none") && ops->probe(&announced) == 0 && announced == 1);
    return 0;
}

/* Rank 0 does not come. */
static int absent(void)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    struct timespec a, b;
    if (!strcmp(getenv("PMIX_RANK"), "0"))
        return (int)sleep(4);
    clock_gettime(CLOCK_MONOTONIC, &a);
    MUST(open_job(1.5, &now, &boot) == HALAY_EBOOT);
    clock_gettime(CLOCK_MONOTONIC, &b);
    MUST(b.tv_sec - a.tv_sec <= 3);
    MUST(strstr(last_log, "not all of the"));
    MUST(open_job(1.5, &now, &boot) == HALAY_EBOOT && strstr(last_log, "failed before"));
    return 0;
}

/* No launcher: probe says so, open says what to do. */
static int alone(void)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    int announced = 0;
    MUST(ops->probe(&announced) == 0);
    MUST(open_job(1, &now, &boot) == HALAY_EBOOT && strstr(last_log, "halayrun"));
    printf("announced %d\n", announced);
    return 0;
}

/* The environment of a job that has ended. */
static int late(void)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    MUST(open_job(5, &now, &boot) == HALAY_EBOOT && strstr(last_log, "the launcher has ended"));
    return 0;
}

/* A rank ends in the way of its second argument, the others sleep. */
static int end(const char *how)
{
    halay_boot_info_t now;
    halay_boot_t *boot;
    MUST(open_job(20, &now, &boot) == 0);
    if (now.rank == 1 && !strcmp(how, "kill"))
        raise(SIGKILL);
    if (now.rank == 1 && !strcmp(how, "exit"))
        exit(3);
    if (now.rank == 1 && !strcmp(how, "connected")) {
        MUST(PMIx_Init(NULL, NULL, 0) == 0);
        _exit(0);
    }
    if (now.rank == 1 && !strcmp(how, "abort")) {
        MUST(PMIx_Init(NULL, NULL, 0) == 0);
        PMIx_Abort(7, "had enough", NULL, 0);
    }
    return (int)sleep(20);
}

static void die(int number)
{
    (void)number;
    raise(SIGKILL);
}

/*
 * The first rank dies: in the node's meeting, which the last rank does not come to; in the fence,
 * which comes when half of the time is over; or when all have joined. The others say so at once, or
 * live on.
 */
static int first(const char *when)
{
    enum { DEADLINE = 8 };
    halay_boot_info_t now;
    halay_boot_t *boot;
    halay_place_t at = {.size = sizeof at};
    struct timespec a, b;
    int rank = atoi(getenv("PMIX_RANK")), after = !strcmp(when, "after");
    int fence = !strcmp(when, "fence"), rc;
    if (rank == 2 && fence) /* nobody can see that it is on its way */
        clearenv();
    if (rank == 2 && fence)
        execlp("sleep", "sleep", "12", NULL);
    if (rank == 2 && !after)
        return (int)sleep(DEADLINE + 4);
    signal(SIGALRM, die);
    if (rank == 0 && !after)
        die_after = fence ? "puts a record" : "listens at";
    clock_gettime(CLOCK_MONOTONIC, &a);
    rc = open_job(DEADLINE, &now, &boot);
    clock_gettime(CLOCK_MONOTONIC, &b);
    if (rank == 0)
        raise(SIGKILL);
    if (after) {
        MUST(rc == 0 && !usleep(100000));
        for (int r = 0; r < now.nranks; r++)
            MUST(ops->get(boot, r, &at) == 0 && at.node == 0 && at.address.port);
        printf("rank %d lives on\n", rank);
        fflush(stdout);
        return 0;
    }
    double took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) / 1e9;
    MUST(rc == HALAY_EBOOT && strstr(last_log, "the first rank of this node, has died"));
    MUST(took < (fence ? DEADLINE : DEADLINE / 2) - 0.1); /* it did not wait for its time to end */
    printf("rank %d was told at once\n", rank);
    fflush(stdout);
    return 0;
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "info", *by = getenv("JOB_BOOT");
    if (by && !strcmp(by, "tcp"))
        ops = &halay_boot_v4_tcp;
    if (by && !strcmp(by, "pmi"))
        ops = &halay_boot_v4_pmi;
    if (by && !strcmp(by, "meet"))
        ops = &halay_boot_v4_meet;
    MUST(ops->size == sizeof *ops && is_whole(ops, sizeof *ops));
    if (!strcmp(what, "info"))
        return info();
    if (!strcmp(what, "children"))
        return children(argv[0]);
    if (!strcmp(what, "heir"))
        return heir();
    if (!strcmp(what, "absent"))
        return absent();
    if (!strcmp(what, "late"))
        return late();
    if (!strcmp(what, "alone"))
        return alone();
    if (!strcmp(what, "first") && argc > 2)
        return first(argv[2]);
    if (!strcmp(what, "end") && argc > 2)
        return end(argv[2]);
    fprintf(stderr, "job_client: no such mode: %s\n", what);
    return 1;
}
