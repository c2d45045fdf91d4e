/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meeting of a node's ranks, which are threads here, or processes where one is to die: who is
 * listed, who is alone, strangers, other versions, deaths. No launcher takes part.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../pmix/node.h"

#include "../check.h"

enum { RANKS_MAX = 40, FIRST = 3 };

struct rank {
    pthread_t thread;
    struct hly_node node;
    struct hly_boot_log log;
    int rc;
    double delay, seconds; /* before it begins; that it took */
    uint64_t half_ns;      /* 0: half of its time */
    bool told;             /* its error is said by another rank */
    char said[4][1024];    /* by level */
};

static uint32_t local[RANKS_MAX];
static struct rank ranks[RANKS_MAX];
static char nspace[64];
static struct hly_node stranger; /* knows what a rank knows, and is none */

static void keep(void *arg, int level, const char *text)
{
    struct rank *rank = arg;
    rank->told |= level == HALAY_LOG_TOLD;
    snprintf(rank->said[level % 4], sizeof rank->said[0], "%s", text);
}

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&t, NULL);
}

/* Ranks FIRST, FIRST + 2, ... of a new job; each has so many seconds. */
static void prepare(int n, double deadline)
{
    static int jobs;
    memset(ranks, 0, sizeof ranks);
    snprintf(nspace, sizeof nspace, "job-%d-%d", (int)getpid(), jobs++);
    for (int i = 0; i < n; i++) {
        struct rank *r = &ranks[i];
        local[i] = FIRST + 2 * (uint32_t)i;
        r->log = (struct hly_boot_log){keep, r};
        r->node.log = &r->log;
        r->node.nspace = nspace;
        r->node.rank = local[i];
        r->node.nlocal = n;
        r->node.local = local;
        r->node.end_ns = (uint64_t)(deadline * 1e9); /* from when it begins */
        hly_boot_describe("rank", NULL, &r->node.self);
        strcpy(r->node.self.host, "here");
        strcpy(r->node.self.library, "1.2.3");
        hly_node_init(&r->node);
    }
    stranger = ranks[n > 1].node;
}

static void begin(struct rank *r)
{
    struct hly_node *node = &r->node;
    nap(r->delay);
    if (!node->begin_ns)
        node->begin_ns = hly_boot_now_ns();
    node->half_ns = node->begin_ns + (r->half_ns ? r->half_ns : node->end_ns / 2);
    node->end_ns += node->begin_ns;
    node->self.pid = (uint32_t)getpid();
    r->rc = hly_node_meet(node);
    r->seconds = (double)(hly_boot_now_ns() - node->begin_ns) / 1e9;
}

static void *live(void *arg)
{
    begin(arg);
    return NULL;
}

static void start(struct rank *r)
{
    MUST(!pthread_create(&r->thread, NULL, live, r));
}

static void meet(int from, int to)
{
    for (int i = from; i < to; i++)
        start(&ranks[i]);
    for (int i = from; i < to; i++)
        MUST(!pthread_join(ranks[i].thread, NULL));
}

static void leave(int n)
{
    for (int i = 0; i < n; i++) {
        hly_node_leave(&ranks[i].node);
        if (ranks[i].node.listen_fd >= 0)
            close(ranks[i].node.listen_fd);
    }
}

/* All are there: listed with the ports they have, and get what the first one hands out. */
static void check_met(int n)
{
    struct hly_node *first = &ranks[0].node;
    char text[8] = "";
    int table = memfd_create("table", MFD_CLOEXEC), fd;
    MUST(table >= 0 && write(table, "table", 5) == 5);
    MUST(first->role == HLY_ROLE_FIRST);
    for (int i = 0; i < n; i++) {
        struct hly_node *node = &ranks[i].node;
        if (ranks[i].rc)
            fprintf(stderr, "rank %u: %s\n", node->rank, ranks[i].said[0]);
        MUST(ranks[i].rc == HALAY_OK && node->listen_fd >= 0 && node->self.address.port);
        MUST(hly_node_lists(first, i) && first->hellos[i].address.port == node->self.address.port);
        MUST(hly_address_same_ip(&node->self.address, &first->self.address));
        MUST(i == 0 || node->role == HLY_ROLE_MEMBER);
        MUST(!ranks[i].said[0][0]);
        /* Where one comes late, who is waited for; who proves nothing. */
        MUST(!ranks[i].said[1][0] || !strncmp(ranks[i].said[1], "halay_init has waited", 21) ||
             strstr(ranks[i].said[1], "was refused: its HALAY_SECRET"));
    }
    for (int i = 0; i < n; i++)
        MUST(hly_node_step(&ranks[i].node) == HALAY_OK);
    hly_node_share(first, table);
    for (int i = 1; i < n; i++) {
        if (i % 2) /* some hear of it before they look for it */
            MUST(hly_node_step(&ranks[i].node) == HALAY_OK && ranks[i].node.table_fd >= 0);
        MUST(hly_node_take(&ranks[i].node, &fd) == HALAY_OK && fd >= 0);
        MUST(pread(fd, text, 5, 0) == 5 && !strcmp(text, "table"));
        close(fd);
    }
    close(table);
}

static void whole(int n)
{
    prepare(n, 20);
    ranks[0].delay = n % 3 ? 0 : 0.1; /* the first comes last */
    meet(0, n);
    check_met(n);
    leave(n);
}

/* ---------------------------------------------------------------- strangers */

static int door(int k, struct sockaddr_un *name, socklen_t *bytes)
{
    int fd = hly_node_door(&stranger, k, name, bytes);
    MUST(fd >= 0);
    return fd;
}

/* Comes to door 0, at most 10 s from now; -1 if it does not exist by then. */
static int visit(void)
{
    struct sockaddr_un name;
    socklen_t bytes;
    for (int i = 0; i < 5000; i++) {
        int fd = door(0, &name, &bytes);
        if (!connect(fd, (struct sockaddr *)&name, bytes))
            return fd;
        close(fd);
        nap(0.002);
    }
    return -1;
}

/* Says hello as a rank over a connection to the first one, which greets. */
static void say_hello(int fd, struct hly_boot_hello it, bool proves)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    struct hly_boot_greeting greeting;
    const struct hly_boot_key *key = &ranks[0].node.key;
    MUST(poll(&p, 1, 5000) == 1 && recv(fd, &greeting, sizeof greeting, 0) == sizeof greeting);
    memcpy(it.key, key->job, sizeof it.key);
    it.left_ns = 20000000000;
    hly_boot_hello_mac(key, &greeting, &it, it.mac);
    it.mac[0] ^= !proves;
    MUST(send(fd, &it, sizeof it, MSG_NOSIGNAL) == sizeof it);
}

/* They call at the first rank's door: one is silent, one talks, one lies, many come and go. */
static void callers(void)
{
    enum { N = 4, MANY = 100 };
    char talk[2000] = "220 mail.example.org ready";
    int fds[MANY];
    prepare(N, 20);
    start(&ranks[0]);
    for (int i = 0; i < MANY; i++) {
        MUST((fds[i] = visit()) >= 0);
        if (i % 5 == 1)
            (void)!send(fds[i], talk, sizeof talk - (size_t)i, MSG_NOSIGNAL);
        stranger.self.rank = i % 2 ? FIRST : 77; /* the first one's; a rank that is not here */
        if (i % 5 == 2)
            say_hello(fds[i], stranger.self, true);
        stranger.self.rank = local[1];
        if (i % 5 == 3)
            say_hello(fds[i], stranger.self, false);
        if (i % 5 == 4)
            (void)!send(fds[i], "", 0, MSG_NOSIGNAL);
    }
    for (int i = 1; i < N; i++)
        start(&ranks[i]);
    for (int i = 0; i < N; i++)
        MUST(!pthread_join(ranks[i].thread, NULL) && ranks[i].seconds < 5);
    check_met(N);
    for (int i = 0; i < MANY; i++)
        close(fds[i]);
    leave(N);
}

/* They hold the first names: one is silent, one greets with something else, one is closed at once.
 */
static void squatters(void)
{
    enum { N = 3 };
    struct sockaddr_un name;
    socklen_t bytes;
    int held[3];
    prepare(N, 20);
    for (int k = 0; k < 3; k++) {
        held[k] = door(k, &name, &bytes);
        MUST(!bind(held[k], (struct sockaddr *)&name, bytes) && !listen(held[k], 9));
    }
    for (int i = 0; i < N; i++)
        start(&ranks[i]);
    for (int i = 0; i < 200 && hly_boot_now_ns(); i++) { /* 2 s */
        int fd = accept(held[1], NULL, NULL);
        if (fd >= 0) {
            (void)!send(fd, "hello?", 6, MSG_NOSIGNAL);
            close(fd);
        }
        fd = accept(held[2], NULL, NULL);
        if (fd >= 0)
            close(fd);
        nap(0.01);
    }
    for (int i = 0; i < N; i++)
        MUST(!pthread_join(ranks[i].thread, NULL) && ranks[i].seconds < 5);
    check_met(N);
    for (int k = 0; k < 3; k++)
        close(held[k]);
    leave(N);
}

/* Another user holds the first name, and calls at the second. Only root can show it. */
static bool other_user(void)
{
    enum { N = 3 };
    struct sockaddr_un name;
    socklen_t bytes;
    int ready[2], status;
    char byte;
    if (geteuid() != 0)
        return false;
    prepare(N, 20);
    int held = door(0, &name, &bytes);
    MUST(!pipe(ready));
    pid_t pid = fork();
    if (pid == 0) {
        if (setresuid(65534, 65534, 65534) || bind(held, (struct sockaddr *)&name, bytes) ||
            listen(held, 9) || write(ready[1], "", 1) != 1)
            _exit(1);
        for (int i = 0; i < 5000; i++) { /* as the second name, that of root's rank */
            int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
            name.sun_path[bytes - sizeof(sa_family_t) - 1] = '1';
            if (!connect(fd, (struct sockaddr *)&name, bytes)) {
                struct hly_boot_hello it = stranger.self; /* it says that it is a rank */
                (void)!send(fd, &it, sizeof it, MSG_NOSIGNAL);
                _exit(recv(fd, &it, sizeof it, 0) > 0 ? 2 : 0);
            }
            close(fd);
            nap(0.002);
        }
        _exit(3);
    }
    close(held);
    MUST(pid > 0 && read(ready[0], &byte, 1) == 1);
    start(&ranks[0]);
    MUST(waitpid(pid, &status, 0) == pid && status == 0); /* it was told nothing */
    meet(1, N);
    MUST(!pthread_join(ranks[0].thread, NULL));
    check_met(N);
    leave(N);
    close(ready[0]);
    close(ready[1]);
    return true;
}

/* ---------------------------------------------------------------- versions */

static int await_error(struct hly_node *node)
{
    for (int i = 0; i < 500; i++) { /* 5 s */
        int rc = hly_node_step(node);
        if (rc)
            return rc;
        nap(0.01);
    }
    return HALAY_OK;
}

static void versions(void)
{
    enum { N = 5 };
    prepare(N, 20);
    strcpy(ranks[2].node.self.library, "9.8.7");
    ranks[4].delay = 0.5; /* comes when the others have found it out */
    meet(0, N);
    for (int i = 0; i < N; i++) {
        int rc = ranks[i].rc ? ranks[i].rc : await_error(&ranks[i].node);
        MUST(rc == HALAY_EBOOT && ranks[i].seconds < 5);
        MUST(strstr(ranks[i].said[0], "9.8.7") && strstr(ranks[i].said[0], "1.2.3"));
    }
    leave(N);
    /* Another version of what is said. */
    prepare(2, 4);
    start(&ranks[0]);
    int fd = visit();
    MUST(fd >= 0);
    stranger.self.version++;
    say_hello(fd, stranger.self, true);
    MUST(!pthread_join(ranks[0].thread, NULL) && ranks[0].rc == HALAY_EBOOT);
    MUST(strstr(ranks[0].said[0], "another version") && strstr(ranks[0].said[0], "1.2.3"));
    close(fd);
    leave(2);
}

/* A rank is started twice, where no claim can tell: both are named to all. */
static void twins(void)
{
    enum { N = 4 };
    const struct hly_worlds *worlds;
    prepare(N, 20);
    ranks[2].node.rank = local[1];
    start(&ranks[0]);
    start(&ranks[1]);
    MUST(!pthread_join(ranks[1].thread, NULL) && ranks[1].node.role == HLY_ROLE_MEMBER);
    meet(2, 3);
    MUST(!pthread_join(ranks[0].thread, NULL));
    worlds = ranks[0].node.worlds;
    MUST(worlds->closed && !worlds->listed);
    for (int i = 0; i < 3; i++) {
        MUST((ranks[i].rc ? ranks[i].rc : await_error(&ranks[i].node)) == HALAY_EBOOT);
        MUST(strstr(ranks[i].said[0], "two processes are the same rank: rank 5 (pid"));
        MUST(ranks[i].told == (i > 0) && ranks[i].seconds < 5);
    }
    leave(N);
}

/* ---------------------------------------------------------------- too late, too early */

static bool is_in(const struct hly_node *first, int i, enum hly_place_state state)
{
    return first->worlds->place[i].state == state;
}

static void times(void)
{
    /* One never comes: the others are listed when the first one's half is over, and it then comes.
     */
    prepare(4, 2);
    meet(0, 3);
    struct hly_node *first = &ranks[0].node;
    MUST(ranks[0].rc == 0 && ranks[0].seconds >= 1 && ranks[0].seconds < 5);
    MUST(ranks[1].rc == 0 && ranks[1].seconds < ranks[0].seconds &&
         ranks[1].node.role == HLY_ROLE_MEMBER);
    MUST(hly_node_lists(first, 2) && is_in(first, 3, HLY_PLACE_STARTED));
    ranks[3].node.end_ns = 20000000000;
    start(&ranks[3]);
    for (int i = 0; i < 1000 && is_in(first, 3, HLY_PLACE_STARTED); i++) {
        MUST(hly_node_step(first) == HALAY_OK);
        nap(0.01);
    }
    MUST(!pthread_join(ranks[3].thread, NULL));
    MUST(ranks[3].rc == 0 && ranks[3].node.role == HLY_ROLE_ALONE && ranks[3].seconds < 5);
    MUST(is_in(first, 3, HLY_PLACE_ENDED) && ranks[3].node.self.address.port);
    MUST(strstr(ranks[3].said[1], "a node of its own") && strstr(ranks[3].said[1], "half"));
    leave(4);

    /* The first one never comes in time; when it does, it need not wait for who has given up. */
    prepare(3, 2);
    ranks[0].node.end_ns = 20000000000;
    meet(1, 3);
    for (int i = 1; i < 3; i++) {
        MUST(ranks[i].rc == 0 && ranks[i].node.role == HLY_ROLE_ALONE);
        MUST(ranks[i].seconds >= 1 && ranks[i].seconds < 5);
        MUST(strstr(ranks[i].said[1], "did not reach rank 3"));
        MUST(ranks[i].node.listen_fd >= 0 && !ranks[i].node.told);
        MUST(hly_node_timeout_ms(&ranks[i].node) < 100);
    }
    start(&ranks[0]);
    for (int i = 0; i < 1000 && !(ranks[1].node.told && ranks[2].node.told); i++) {
        MUST(hly_node_step(&ranks[1].node) == 0 && hly_node_step(&ranks[2].node) == 0);
        nap(0.01);
    }
    MUST(!pthread_join(ranks[0].thread, NULL) && ranks[0].rc == 0 && ranks[0].seconds < 5);
    MUST(is_in(&ranks[0].node, 1, HLY_PLACE_ENDED) && is_in(&ranks[0].node, 2, HLY_PLACE_ENDED));
    leave(3);
}

/* Both give up at about the same moment: they agree on who is listed, always. */
static void race(void)
{
    int listed = 0, alone = 0;
    for (int i = 0; i < 300; i++) {
        prepare(2, 20);
        ranks[0].half_ns = 20000000;
        ranks[1].node.end_ns = 2000000 + (uint64_t)(i * 7 % 50) * 100000; /* 1 to 3.5 ms */
        ranks[1].delay = i % 3 ? (double)(i * 13 % 40) * 5e-5 : 0.019;
        start(&ranks[0]);
        start(&ranks[1]);
        for (int k = 0; k < 2; k++)
            CHECK(!pthread_join(ranks[k].thread, NULL) && ranks[k].rc == HALAY_OK,
                  "round %d, rank %d: %d after %g s: '%s' '%s'", i, k, ranks[k].rc,
                  ranks[k].seconds, ranks[k].said[0], ranks[k].said[1]);
        for (int k = 0; k < 20; k++) /* the late one's word */
            MUST(hly_node_step(&ranks[0].node) == HALAY_OK);
        bool has_seat = hly_node_lists(&ranks[0].node, 1);
        bool member = ranks[1].node.role == HLY_ROLE_MEMBER;
        MUST(has_seat == member);
        MUST(!has_seat || ranks[0].node.hellos[1].address.port == ranks[1].node.self.address.port);
        listed += has_seat;
        alone += !has_seat;
        leave(2);
    }
    printf("%d listed, %d alone\n", listed, alone);
}

/* The last moment of all: between the decision to give up and the shutdown that makes it true. */
static _Atomic int last_fd = -1, last_sent;
static struct hly_boot_answer last_answer;
static bool send_last(int to)
{
    return send(to, &last_answer, sizeof last_answer, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
}

int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how)
{
    int to = last_fd;
    if (to >= 0) {
        MUST(send_last(to));
        last_sent = 1;
    }
    int rc = __real_shutdown(fd, how);
    MUST(to < 0 || !send_last(to)); /* and no later */
    return rc;
}

/* The answer that puts a rank on the list. */
static void prove_last(const struct hly_boot_key *key, const struct hly_boot_greeting *greeting,
                       const struct hly_boot_hello *it)
{
    struct hly_sha sha;
    uint8_t digest[32];
    last_answer = (struct hly_boot_answer){
        .magic = HLY_BOOT_MAGIC, .version = HLY_BOOT_VERSION, .joined = HLY_BOOT_LISTED};
    hly_sha_init(&sha);
    hly_sha_end(&sha, digest);
    hly_boot_answer_mac(key, greeting, it, &last_answer, digest, last_answer.mac);
}

/* The first rank as it is played here: greets, hears, and lists at a moment. Its connection. */
static int play_first(int at, uint64_t moment, bool by_hook)
{
    struct hly_boot_hello it;
    struct hly_boot_greeting greeting = {.magic = HLY_BOOT_MAGIC,
                                         .version = HLY_BOOT_VERSION,
                                         .address = {.family = AF_INET, .ip = {127, 0, 0, 1}}};
    struct pollfd p = {.fd = at, .events = POLLIN};
    if (poll(&p, 1, by_hook || moment ? 100 : 10000) != 1) /* it had no time to come */
        return -1;
    int fd = accept(at, NULL, NULL);
    MUST(fd >= 0);
    memcpy(greeting.key, ranks[1].node.key.job, sizeof greeting.key);
    if (send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) <= 0 ||
        recv(fd, &it, sizeof it, 0) != (ssize_t)sizeof it)
        return fd;
    prove_last(&ranks[1].node.key, &greeting, &it);
    if (by_hook) {
        last_fd = fd;
        return fd;
    }
    while (hly_boot_now_ns() < moment)
        continue;
    last_sent = send_last(fd);
    return fd;
}

/* The word that lists a rank is sent around the moment at which that rank gives up. */
static void last_moment(void)
{
    int listed = 0, alone = 0, deaf = 0;
    for (int i = 0; i < 300; i++) {
        struct hly_node *node = &ranks[1].node;
        struct sockaddr_un name;
        socklen_t bytes;
        prepare(2, 0.01); /* half: 5 ms */
        int at = door(0, &name, &bytes);
        MUST(!bind(at, (struct sockaddr *)&name, bytes) && !listen(at, 4));
        last_fd = -1;
        last_sent = 0;
        uint64_t begin_ns = hly_boot_now_ns();
        node->begin_ns = begin_ns;
        start(&ranks[1]);
        int fd = play_first(at, begin_ns + 5000000 + (uint64_t)(i % 60) * 25000, i % 10 == 0);
        MUST(!pthread_join(ranks[1].thread, NULL) && ranks[1].rc == HALAY_OK);
        MUST(last_sent == (node->role == HLY_ROLE_MEMBER));
        listed += last_sent;
        alone += !last_sent;
        if (last_sent && node->watch_fd < 0) { /* it reads the records itself */
            int table;
            deaf++;
            MUST(hly_node_step(node) == HALAY_OK);
            MUST(hly_node_take(node, &table) == HALAY_OK && table == -1);
        }
        if (fd >= 0)
            close(fd);
        close(at);
        leave(2);
    }
    last_fd = -1;
    printf("%d listed (%d of them after they gave up), %d alone\n", listed, deaf, alone);
    MUST(alone && deaf);
}

/* A first rank that hangs up has taken this one for a stranger: it calls again. */
static void hangs_up(void)
{
    struct sockaddr_un name;
    socklen_t bytes;
    struct hly_boot_greeting greeting = {.magic = HLY_BOOT_MAGIC, .version = HLY_BOOT_VERSION};
    prepare(2, 20);
    const int at = door(0, &name, &bytes);
    MUST(!bind(at, (struct sockaddr *)&name, bytes) && !listen(at, 4));
    start(&ranks[1]);
    for (int i = 0; i < 3; i++) {
        struct pollfd p = {.fd = at, .events = POLLIN};
        MUST(poll(&p, 1, 10000) == 1);
        const int fd = accept(at, NULL, NULL);
        memcpy(greeting.key, ranks[1].node.key.job, sizeof greeting.key);
        MUST(fd >= 0 && send(fd, &greeting, sizeof greeting, MSG_NOSIGNAL) > 0);
        close(fd);
    }
    last_fd = -1;
    const int fd = play_first(at, 0, false);
    MUST(fd >= 0 && !pthread_join(ranks[1].thread, NULL));
    MUST(ranks[1].rc == HALAY_OK && ranks[1].node.role == HLY_ROLE_MEMBER);
    close(fd);
    close(at);
    leave(2);
}

/* ---------------------------------------------------------------- deaths */

static void deaths(void)
{
    char pid_text[32];
    /* The first one, when this one is listed and waits for others. */
    prepare(3, 20);
    pid_t pid = fork();
    if (pid == 0) {
        begin(&ranks[0]);
        _exit(0);
    }
    meet(1, 2);
    MUST(ranks[1].rc == HALAY_OK && ranks[1].node.role == HLY_ROLE_MEMBER);
    MUST(hly_node_step(&ranks[1].node) == HALAY_OK);
    MUST(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    MUST(await_error(&ranks[1].node) == HALAY_EBOOT);
    snprintf(pid_text, sizeof pid_text, "rank 3 (pid %d on here)", (int)pid);
    MUST(strstr(ranks[1].said[0], pid_text) && strstr(ranks[1].said[0], "has died"));
    leave(3);
    /* The first one after the fence, without a table: the member reads the records itself. */
    prepare(2, 20);
    pid = fork();
    if (pid == 0) {
        begin(&ranks[0]);
        nap(20);
        _exit(0);
    }
    meet(1, 2);
    int fd = 0;
    MUST(ranks[1].rc == HALAY_OK && !kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    MUST(hly_node_take(&ranks[1].node, &fd) == HALAY_OK && fd == -1 && !ranks[1].said[0][0]);
    leave(2);
    /* It is stopped then: the member does not wait for its deadline. */
    prepare(2, 60);
    pid = fork();
    if (pid == 0) {
        begin(&ranks[0]);
        nap(60);
        _exit(0);
    }
    meet(1, 2);
    MUST(ranks[1].rc == HALAY_OK && !kill(pid, SIGSTOP));
    const uint64_t begin_ns = hly_boot_now_ns();
    MUST(hly_node_take(&ranks[1].node, &fd) == HALAY_OK && fd == -1);
    MUST(hly_boot_now_ns() - begin_ns < 30000000000);
    MUST(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    leave(2);
    /* A member that was listed: the others are told by the first one. */
    prepare(3, 20);
    pid = fork();
    if (pid == 0) {
        begin(&ranks[1]);
        nap(20);
        _exit(0);
    }
    start(&ranks[0]);
    meet(2, 3);
    MUST(!pthread_join(ranks[0].thread, NULL) && ranks[0].rc == 0 && ranks[2].rc == 0);
    MUST(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
    MUST(await_error(&ranks[0].node) == HALAY_EBOOT);
    MUST(await_error(&ranks[2].node) == HALAY_EBOOT);
    snprintf(pid_text, sizeof pid_text, "rank 5 (pid %d on here)", (int)pid);
    MUST(strstr(ranks[0].said[0], pid_text) && strstr(ranks[0].said[0], "has left"));
    MUST(strstr(ranks[2].said[0], ranks[0].said[0]));
    MUST(!ranks[0].told && ranks[2].told);
    leave(3);
}

int main(void)
{
    unsetenv("HALAY_INTERFACE");
    for (int n = 1; n <= 6; n++)
        whole(n);
    whole(RANKS_MAX);
    callers();
    squatters();
    if (!other_user())
        printf("not root: another user's part is left out\n");
    versions();
    twins();
    times();
    race();
    last_moment();
    hangs_up();
    deaths();
    return 0;
}
