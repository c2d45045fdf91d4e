/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many ranks meet over TCP, as threads of one process that say they are on many nodes. With an
 * argument: that many ranks, and how long it took.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../boot/tcp/tcp.h"

#include "../check.h"

enum { PER_NODE = 3 };

struct rank {
    pthread_t thread;
    struct hly_tcp tcp;
    struct hly_tcp_variables v;
    struct hly_boot_identity id;
    int rc;
};

static void say(void *arg, int level, const char *text)
{
    if (level == 0)
        fprintf(stderr, "%s: %s\n", (const char *)arg, text);
}

static struct hly_boot_log noisy = {say, "a rank"}, silent = {NULL, NULL};

static void *live(void *arg)
{
    struct rank *rank = arg;
    rank->rc =
        rank->v.rank ? hly_tcp_guest(&rank->tcp, &rank->id) : hly_tcp_host(&rank->tcp, &rank->id);
    return NULL;
}

/* A port that was free a moment ago. */
static int free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    MUST(fd >= 0 && !bind(fd, (struct sockaddr *)&at, bytes));
    MUST(!getsockname(fd, (struct sockaddr *)&at, &bytes));
    close(fd);
    return ntohs(at.sin_port);
}

static void prepare(struct rank *rank, int r, int n, int port, double seconds)
{
    memset(rank, 0, sizeof *rank);
    rank->v = (struct hly_tcp_variables){
        .door_fd = -1, .ports = {port}, .nports = 1, .rank = r, .nranks = n};
    strcpy(rank->v.address, "127.0.0.1");
    rank->tcp.log = &noisy;
    rank->tcp.listen_fd = -1;
    rank->tcp.v = &rank->v;
    rank->tcp.begin_ns = hly_boot_now_ns();
    rank->tcp.end_ns = rank->tcp.begin_ns + (uint64_t)(seconds * 1e9);
    rank->tcp.self = (struct hly_boot_hello){.magic = HLY_BOOT_MAGIC,
                                             .version = HLY_BOOT_VERSION,
                                             .bytes = sizeof rank->tcp.self,
                                             .rank = (uint32_t)r,
                                             .nranks = (uint32_t)n,
                                             .netns = 1,
                                             .process = {9, (unsigned)r, r + 1}};
    strcpy(rank->tcp.self.library, "1");
    snprintf(rank->tcp.self.machine, sizeof rank->tcp.self.machine, "m%d", r / PER_NODE);
    snprintf(rank->tcp.self.host, sizeof rank->tcp.self.host, "h%d", r / PER_NODE);
}

static void run(struct rank *ranks, int n)
{
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    for (int r = 0; r < n; r++)
        MUST(!pthread_create(&ranks[r].thread, &attr, live, &ranks[r]));
    for (int r = 0; r < n; r++)
        MUST(!pthread_join(ranks[r].thread, NULL));
    pthread_attr_destroy(&attr);
}

static double meeting(int n, const char *address)
{
    struct rank *ranks = calloc((size_t)n, sizeof ranks[0]);
    int port = free_port();
    static const uint8_t none[16];
    MUST(ranks);
    for (int r = 0; r < n; r++) {
        prepare(&ranks[r], r, n, port, 30);
        strcpy(ranks[r].v.address, address);
    }
    uint64_t begin = hly_boot_now_ns();
    run(ranks, n);
    double seconds = (double)(hly_boot_now_ns() - begin) / 1e9;
    for (int r = 0; r < n; r++) {
        struct hly_boot_identity *id = &ranks[r].id;
        MUST(ranks[r].rc == HALAY_OK);
        MUST(!memcmp(id->job, ranks[0].id.job, 16) && memcmp(id->job, none, 16));
        MUST(!memcmp(id->secret, ranks[0].id.secret, 16) && memcmp(id->secret, none, 16));
        halay_boot_info_t info = {.rank = r};
        hly_boot_places_info(&id->places, &info);
        MUST(info.nnodes == (n + PER_NODE - 1) / PER_NODE && id->places.nruns == info.nnodes);
        MUST(info.node == r / PER_NODE && info.local_rank == r % PER_NODE);
    }
    for (int r = 0; r < n; r++) { /* the tables are the same, and true */
        struct sockaddr_in at = {0};
        socklen_t bytes = sizeof at;
        halay_place_t one = {.size = sizeof one}, other = {.size = sizeof other};
        MUST(!hly_boot_places_get(&ranks[0].id.places, r, &one));
        MUST(!hly_boot_places_get(&ranks[n - 1].id.places, r, &other));
        MUST(one.process.pid == (r < PER_NODE ? r + 1 : 0)); /* of the own node's ranks only */
        MUST(other.process.pid == (r / PER_NODE == (n - 1) / PER_NODE ? r + 1 : 0));
        one.process = other.process = (halay_process_t){0};
        MUST(!memcmp(&one, &other, sizeof one) && one.address.family == AF_INET);
        MUST(!getsockname(ranks[r].tcp.listen_fd, (struct sockaddr *)&at, &bytes));
        MUST(at.sin_port == one.address.port && !memcmp(&at.sin_addr, one.address.ip, 4));
        MUST(ntohl(at.sin_addr.s_addr) == INADDR_LOOPBACK); /* as rank 0's address is */
    }
    for (int r = 0; r < n; r++) {
        close(ranks[r].tcp.listen_fd);
        hly_boot_identity_finish(&ranks[r].id);
    }
    free(ranks);
    return seconds;
}

/* One rank says something that does not fit: all are told, none joins. */
static void disagreement(int n, void (*spoil)(struct rank *))
{
    struct rank *ranks = calloc((size_t)n, sizeof ranks[0]);
    int port = free_port();
    MUST(ranks);
    for (int r = 0; r < n; r++) {
        prepare(&ranks[r], r, n, port, 30);
        ranks[r].tcp.log = &silent;
    }
    spoil(&ranks[n - 1]);
    uint64_t begin = hly_boot_now_ns();
    run(ranks, n);
    MUST(hly_boot_now_ns() - begin < 10000000000ull); /* not by the deadline */
    for (int r = 0; r < n; r++)
        MUST(ranks[r].rc == HALAY_EBOOT && !ranks[r].id.memory);
    for (int r = 0; r < n; r++)
        close(ranks[r].tcp.listen_fd);
    free(ranks);
}

static void other_size(struct rank *rank)
{
    rank->tcp.self.nranks++;
}

static void other_library(struct rank *rank)
{
    strcpy(rank->tcp.self.library, "2");
}

static void other_rank(struct rank *rank)
{
    rank->tcp.self.rank--;
}

/* ---------------------------------------------------------------- a resolver that takes its time
 */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool open;           /* it answers: that the name is this host's */
    int asked, answered; /* for that name */
} resolver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
static const char slow[] = "slow.invalid";

/* The C library's stands behind it. */
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **found)
{
    int (*const real)(const char *, const char *, const struct addrinfo *, struct addrinfo **) =
        (int (*)(const char *, const char *, const struct addrinfo *, struct addrinfo **))dlsym(
            RTLD_NEXT, "getaddrinfo");
    if (!name || strcmp(name, slow) != 0 || (hints && hints->ai_flags & AI_NUMERICHOST))
        return real(name, service, hints, found);
    pthread_mutex_lock(&resolver.lock);
    resolver.asked++;
    pthread_cond_broadcast(&resolver.changed);
    while (!resolver.open)
        pthread_cond_wait(&resolver.changed, &resolver.lock);
    resolver.answered++;
    pthread_cond_broadcast(&resolver.changed);
    pthread_mutex_unlock(&resolver.lock);
    return real("127.0.0.1", service, hints, found);
}

/* Lets it answer when so many have asked. */
static void *open_later(void *arg)
{
    const int *asked = arg;
    pthread_mutex_lock(&resolver.lock);
    while (resolver.asked < *asked)
        pthread_cond_wait(&resolver.changed, &resolver.lock);
    resolver.open = true;
    pthread_cond_broadcast(&resolver.changed);
    pthread_mutex_unlock(&resolver.lock);
    return NULL;
}

/* The start ends by its deadline, and asks no more than once at a time; what it has left behind
 * ends with the answers. */
static void no_answer(int n)
{
    struct rank *ranks = calloc((size_t)n, sizeof ranks[0]);
    int port = free_port();
    MUST(ranks);
    for (int r = 0; r < n; r++) {
        prepare(&ranks[r], r, n, port, 0.7);
        ranks[r].tcp.log = &silent;
        strcpy(ranks[r].v.address, slow);
    }
    run(ranks, n); /* hangs if anybody waits for the resolver */
    for (int r = 0; r < n; r++) {
        MUST(ranks[r].rc == HALAY_EBOOT);
        close(ranks[r].tcp.listen_fd);
    }
    free(ranks);
    pthread_mutex_lock(&resolver.lock);
    MUST(resolver.asked == n && resolver.answered == 0);
    resolver.open = true;
    pthread_cond_broadcast(&resolver.changed);
    while (resolver.answered < n)
        pthread_cond_wait(&resolver.changed, &resolver.lock);
    resolver.open = false;
    resolver.asked = resolver.answered = 0;
    pthread_mutex_unlock(&resolver.lock);
}

static void late_answer(int n)
{
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, open_later, &n));
    meeting(n, slow);
    MUST(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        struct rlimit limit;
        MUST(!getrlimit(RLIMIT_NOFILE, &limit));
        limit.rlim_cur = limit.rlim_max;
        MUST(!setrlimit(RLIMIT_NOFILE, &limit));
        printf("%.3f s\n", meeting(atoi(argv[1]), "127.0.0.1"));
        return 0;
    }
    for (int n = 1; n <= 9; n++)
        meeting(n, "127.0.0.1");
    meeting(200, "127.0.0.1");
    disagreement(5, other_size);
    disagreement(5, other_library);
    disagreement(6, other_rank);
    no_answer(3);
    late_answer(3);
    return 0;
}
