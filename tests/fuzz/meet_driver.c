/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A launcher's driver, and those who connect to it: strangers, processes that prove the secret and
 * say hello as anybody in any epoch, agents, who leave, read late or never; while the launcher
 * starts processes, sees them end, and its descriptors run out. With a kernel and a clock of this
 * file.
 */
#include "boot/common/reception.c" /* NOLINT(bugprone-suspicious-include) */
#include "boot/meet/agents.c"      /* NOLINT(bugprone-suspicious-include) */
#include "boot/meet/answers.c"     /* NOLINT(bugprone-suspicious-include) */
#include "boot/meet/driver.c"      /* NOLINT(bugprone-suspicious-include) */
#include "fuzz.h"

#define OPS (&halay_launch_v3_meet)

enum {
    RANKS = 5,
    LOCAL = 2,
    ROOM = 3,
    PENDING = 4,
    TURNS = 96,
    NOTHING = 0,
    RESET = 254,
    ALL = 255
};

static struct fuzz *input;
static halay_launch_t *driver;
static uint64_t clock_ns;
static long opened, nothing_said;
static int failing; /* a rank whose halay_init has failed; -1: none */

/* What the guests that have something say, one after the other. */
static struct epoll_event pending[PENDING];
static int npending;
static uint8_t stream[PENDING * (1 + sizeof(struct hly_boot_hello))];
static size_t nstream;

/* The worlds that were told of. */
static uint64_t world_epoch;
static uint32_t world_ranks, world_told, world_slots;

/* ---------------------------------------------------------------- the kernel */

static int gives(void)
{
    opened++;
    return FUZZ_FD;
}

int __wrap_socket(int family, int type, int protocol)
{
    (void)family, (void)type, (void)protocol;
    return gives();
}

int __wrap_bind(int fd, const struct sockaddr *at, socklen_t bytes)
{
    (void)at, (void)bytes;
    return -(fd != FUZZ_FD);
}

int __wrap_listen(int fd, int backlog)
{
    return -(fd != FUZZ_FD || backlog < 1);
}

int __wrap_epoll_create1(int flags)
{
    (void)flags;
    return gives();
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *bytes, int flags)
{
    const uint8_t how = fuzz_byte(input);
    (void)address, (void)bytes, (void)flags;
    FUZZ_WANT(fd == FUZZ_FD);
    if (how % 8 < 3) {
        errno = how % 8 == 1 ? EMFILE : EAGAIN;
        return -1;
    }
    return gives();
}

int __wrap_epoll_wait(int set, struct epoll_event *events, int max, int timeout_ms)
{
    const int n = npending;
    FUZZ_WANT(set == FUZZ_FD && max >= PENDING && timeout_ms == 0);
    memcpy(events, pending, sizeof pending);
    npending = 0;
    return n;
}

uint64_t __wrap_hly_boot_now_ns(void)
{
    return clock_ns;
}

int __wrap_hly_boot_random(const struct hly_boot_log *log, void *bytes, size_t n)
{
    (void)log;
    memset(bytes, 7, n);
    return 0;
}

bool __wrap_hly_proc_stat(int64_t pid, struct hly_proc_stat *stat)
{
    stat->state = 'S';
    return pid % 2;
}

/* ---------------------------------------------------------------- proofs, and what is answered */

int __wrap_hly_mac_equal(const uint8_t a[32], const uint8_t b[32])
{
    (void)a;
    return b[31] != 255;
}

void __wrap_hly_sha_add(struct hly_sha *sha, const void *data, size_t bytes)
{
    (void)sha, (void)data, (void)bytes;
}

void __wrap_hly_sha_end(struct hly_sha *sha, uint8_t digest[32])
{
    (void)sha;
    memset(digest, 0, 32);
}

void __wrap_hly_boot_hello_mac(const struct hly_boot_key *key,
                               const struct hly_boot_greeting *greeting,
                               const struct hly_boot_hello *hello, uint8_t mac[32])
{
    (void)key, (void)greeting, (void)hello;
    memset(mac, 0, 32);
}

/* All of one world are told the same, each another rank, and no other world has its epoch. */
void __wrap_hly_boot_answer_mac(const struct hly_boot_key *key,
                                const struct hly_boot_greeting *greeting,
                                const struct hly_boot_hello *hello, const struct hly_boot_answer *a,
                                const uint8_t digest[32], uint8_t mac[32])
{
    (void)key, (void)greeting, (void)digest;
    memset(mac, 0, 32);
    if (hello->slot == HLY_BOOT_AGENT && a->joined) {
        FUZZ_WANT(a->rank >= LOCAL && a->nprocesses > 0 && a->rank + a->nprocesses <= RANKS);
        return;
    }
    if (!a->joined) {
        FUZZ_WANT(a->bytes > 0 && a->bytes < HLY_BOOT_TEXT_BYTES);
        return;
    }
    if (a->epoch != world_epoch) {
        FUZZ_WANT(a->epoch == world_epoch + 1 && world_told == (1u << world_ranks) - 1);
        world_epoch = a->epoch;
        world_ranks = a->nranks;
        world_told = world_slots = 0;
    }
    FUZZ_WANT(a->nranks == world_ranks && a->rank < a->nranks && hello->slot < RANKS);
    FUZZ_WANT(!(world_told & 1u << a->rank) && !(world_slots & 1u << hello->slot));
    world_told |= 1u << a->rank;
    world_slots |= 1u << hello->slot;
}

/* ---------------------------------------------------------------- invariants */

static void check(void)
{
    const struct hly_boot_reception *r = &driver->reception;
    int known = 0, asking = 0, ended = 0;
    for (int i = 0; i < r->nslots; i++)
        known += r->guests[i].fd >= 0 && r->guests[i].known;
    FUZZ_WANT(known == r->nknown);
    for (int s = 0; s < driver->params.nranks; s++) {
        const struct hly_slot *slot = &driver->slots[s];
        const struct hly_boot_guest *g = slot->guest;
        const struct hly_place *place = &driver->worlds->place[s];
        FUZZ_WANT((place->state == HLY_PLACE_ASKING) == (g != NULL));
        FUZZ_WANT(!g || (g->fd >= 0 && g->known && !g->answering && g->hello.slot == (uint32_t)s));
        FUZZ_WANT(!place->member || place->rank < driver->params.nranks);
        asking += g != NULL;
        ended += place->state == HLY_PLACE_ENDED;
    }
    FUZZ_WANT(driver->worlds->epoch == world_epoch && world_told == (1u << world_ranks) - 1);
    FUZZ_WANT(!world_epoch || (int)world_ranks >= driver->params.least || driver->worlds->done);
    FUZZ_WANT((asking > 0) == (driver->worlds->decide_ns > 0 || driver->worlds->expire_ns > 0));
    FUZZ_WANT(!driver->first || driver->first->fd >= 0);
    for (int i = 0; i < driver->most_agents; i++) {
        const struct hly_agent *a = &driver->agents[i];
        FUZZ_WANT(!a->guest ||
                  (a->guest->fd >= 0 && a->guest->stays && !(a->tell & HLY_TELL(AGENT_LOST))));
        for (int s = a->first; s < a->first + a->count; s++)
            FUZZ_WANT(driver->slots[s].agent == a);
    }
    if (!driver->params.least)
        FUZZ_WANT(asking < driver->params.nranks && !(asking && ended));
}

static void turn(void)
{
    struct fuzz said = {stream, nstream};
    fuzz_net_feed(&said);
    const int next_ms = OPS->progress(driver);
    FUZZ_WANT(next_ms >= -1 && next_ms <= 60000);
    fuzz_net_feed(NULL);
    nstream = 0;
    check();
}

/* ---------------------------------------------------------------- who comes and goes */

static struct hly_boot_guest *guest(uint8_t which)
{
    struct hly_boot_reception *r = &driver->reception;
    for (int i = 0; i < r->nslots; i++)
        if (r->guests[(which + i) % r->nslots].fd >= 0)
            return &r->guests[(which + i) % r->nslots];
    return NULL;
}

static void push(struct hly_boot_guest *g, uint32_t events, uint8_t code, const void *what,
                 size_t bytes)
{
    if (npending == PENDING || nstream + 1 + bytes > sizeof stream)
        turn();
    pending[npending++] = (struct epoll_event){.events = events, .data.ptr = g};
    stream[nstream++] = code;
    if (bytes)
        memcpy(stream + nstream, what, bytes);
    nstream += bytes;
}

/* What of it has not come yet. */
static void push_hello(struct hly_boot_guest *g, struct hly_boot_hello *it)
{
    const size_t got = g->got < sizeof *it ? g->got : 0;
    memcpy(it->key, driver->key.job, sizeof it->key);
    push(g, EPOLLIN, ALL, (const char *)it + got, sizeof *it - got);
}

/* A hello that is right but for what the input changes. */
static void hello(struct hly_boot_guest *g)
{
    struct hly_boot_hello it = {.magic = HLY_BOOT_MAGIC,
                                .version = HLY_BOOT_VERSION,
                                .bytes = sizeof it,
                                .rank = HLY_BOOT_NOBODY,
                                .nranks = HLY_BOOT_NOBODY,
                                .machine = "m",
                                .host = "host",
                                .library = "1",
                                .address.family = AF_INET};
    const uint8_t who = fuzz_byte(input), how = fuzz_byte(input);
    it.slot = who % 8;
    memset(it.id, who / 8 % 4, sizeof it.id);
    it.epoch = driver->worlds->epoch - (who / 32 % 4 == 1) + (who / 32 % 4 == 2);
    it.left_ns = how & 1 ? 1ull << fuzz_byte(input) % 64 : 5000000000;
    if (how & 2)
        it.machine[0] = (char)fuzz_byte(input);
    if ((how & 0x0c) == 0x0c)
        it.library[0] = (char)fuzz_byte(input);
    if ((how & 0x30) == 0x30)
        it.mac[31] = 255;
    for (int i = 0; i < HLY_BOOT_LOST_RUNS; i++)
        it.lost[i] = (struct hly_boot_lost){1, 0};
    if (how & 0x40)
        it.lost[how % HLY_BOOT_LOST_RUNS] =
            (struct hly_boot_lost){fuzz_byte(input) % 8, fuzz_byte(input) % 8};
    if ((how & 0x81) == 0x81)
        it.nranks = 0; /* it leaves */
    if (how == 0x80)   /* any bytes in its middle */
        fuzz_take(input, it.machine, fuzz_byte(input));
    push_hello(g, &it);
}

/* As they come from the input; so many of them now. */
static void words(struct hly_boot_guest *g)
{
    uint8_t bytes[254];
    const uint8_t n = fuzz_byte(input) % 254;
    const size_t there = fuzz_take(input, bytes, n);
    push(g, EPOLLIN, (uint8_t)there, bytes, there);
}

static void agent_hello(struct hly_boot_guest *g)
{
    struct hly_boot_hello it = {.magic = HLY_BOOT_MAGIC,
                                .version = HLY_BOOT_VERSION,
                                .bytes = sizeof it,
                                .rank = HLY_BOOT_NOBODY,
                                .slot = HLY_BOOT_AGENT,
                                .nranks = fuzz_byte(input) % 8,
                                .host = "there"};
    strcpy(it.library, it.nranks == 7 ? "1" : hly_build());
    push_hello(g, &it);
}

/* As its agent would say it, but for what the input changes. */
static void frame(struct hly_boot_guest *g)
{
    const struct hly_agent *agent = agent_of(driver, g);
    const uint8_t how = fuzz_byte(input);
    struct hly_frame f = {.number = agent ? agent->frames.heard + 1 + (how == 255) : how,
                          .from = how == 254 ? HLY_FROM_HEAD : HLY_FROM_AGENT,
                          .what = how & 1   ? HALAY_LAUNCH_STARTED
                                  : how & 2 ? HALAY_LAUNCH_ENDED
                                            : fuzz_byte(input) % 10,
                          .rank = how / 4 % 8,
                          .value = how / 32};
    const size_t n = how >= 252 ? how % 16 * 20u : sizeof f;
    push(g, EPOLLIN, (uint8_t)(n == sizeof f ? ALL : n), &f, n);
}

/* The launcher takes what there is to be told, and orders something. */
static void events(void)
{
    const uint8_t how = fuzz_byte(input);
    halay_launch_event_t e = {.size = sizeof e};
    int told = 0;
    turn();
    while (OPS->event(driver, &e)) {
        FUZZ_WANT(told++ < 4 * RANKS && e.rank >= 0 && e.rank < driver->params.nranks);
        FUZZ_WANT(e.what == HALAY_LAUNCH_ENDED || e.what == HALAY_LAUNCH_STARTED || e.count > 0);
        if (e.what == HALAY_LAUNCH_ENDED)
            OPS->ended(driver, e.rank, e.value, e.state, e.text);
    }
    const int s = LOCAL + how % (RANKS - LOCAL);
    const bool runs = s < driver->params.nranks &&
                      driver->worlds->place[s].state != HLY_PLACE_FREE &&
                      driver->worlds->place[s].state != HLY_PLACE_ENDED;
    e = (halay_launch_event_t){.size = sizeof e, .rank = s, .value = how};
    e.what = how & 0x80 ? HALAY_LAUNCH_END : runs ? HALAY_LAUNCH_SIGNAL : HALAY_LAUNCH_START;
    if (s < driver->params.nranks)
        OPS->command(driver, &e);
    check();
}

static void launch(uint8_t which)
{
    const int n = driver->most_agents ? LOCAL : driver->params.nranks, s = which % n;
    const enum hly_place_state state = driver->worlds->place[s].state;
    turn();
    if (state == HLY_PLACE_FREE || state == HLY_PLACE_ENDED)
        OPS->started(driver, s, 100 + s);
    else if (driver->worlds->place[s].state == state)
        OPS->ended(driver, s, which, which % 4, which & 0x80 ? "why" : NULL);
    check();
}

static void event(uint8_t what)
{
    struct hly_boot_guest *g = guest(what / 16);
    switch (what % 16) {
    case 0:
    case 1:
        push(NULL, EPOLLIN, NOTHING, NULL, 0);
        turn(); /* what it reads are no guests' words */
        break;
    case 2:
        launch(fuzz_byte(input));
        break;
    case 3:
        turn();
        clock_ns += UINT64_C(100000000) << what / 16;
        turn();
        break;
    case 4:
        fuzz_net_full = what / 16 % 3;
        failing = what / 64 - 1;
        break;
    case 5:
        if (g)
            push(g, EPOLLOUT | (what & 0x80 ? EPOLLIN : 0), NOTHING, NULL, 0);
        break;
    case 6:
        if (g)
            push(g, EPOLLIN | EPOLLHUP, RESET, NULL, 0);
        break;
    case 7:
        if (g)
            words(g);
        break;
    case 8:
        turn();
        break;
    case 9:
        if (g && driver->most_agents)
            agent_hello(g);
        break;
    case 10:
        if (g && driver->most_agents)
            frame(g);
        else if (driver->most_agents)
            events();
        break;
    case 11:
        if (driver->most_agents)
            events();
        break;
    default:
        if (g)
            hello(g);
        if (what % 16 > 11)
            turn();
    }
}

static int is_failing(void *arg, int rank, char *text, size_t bytes)
{
    (void)arg;
    FUZZ_WANT(rank >= 0 && rank < driver->params.nranks);
    memset(text, 'x', bytes - 1);
    text[bytes - 1] = 0;
    return rank == failing;
}

static void says(void *arg, int level, const char *text)
{
    (void)arg, (void)level;
    nothing_said += !text[0];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    const uint8_t many = fuzz_byte(&f), few = fuzz_byte(&f);
    const int nranks = 1 + many % RANKS;
    const halay_launch_params_t params = {.size = sizeof params,
                                          .nranks = nranks,
                                          .least = few % (nranks + 1),
                                          .job = "job",
                                          .host = "host",
                                          .session_dir = "/nowhere",
                                          .secret = few & 0x80 ? "s" : "",
                                          .log = says,
                                          .failed = is_failing};
    input = &f;
    clock_ns = 1000000000;
    opened = fuzz_net_closed = fuzz_net_full = npending = 0;
    failing = -1;
    nstream = world_epoch = world_ranks = world_told = world_slots = 0;
    FUZZ_WANT(!OPS->start(&params, &driver));
    driver->reception.nslots = nranks + ROOM; /* room for the rest stays unused */
    if (few & 0x40 && nranks > LOCAL) {       /* as with a port, which would be a real one */
        driver->params.nlocal = LOCAL;
        driver->most_agents = nranks;
        free(driver->agents);
        FUZZ_WANT(driver->agents = calloc((size_t)nranks, sizeof driver->agents[0]));
    }
    for (int s = 0; s < nranks; s++)
        if (!(many & 0x80 || driver->most_agents) || s < LOCAL)
            OPS->started(driver, s, 100 + s);
    for (int i = 0; i < TURNS && f.left; i++)
        event(fuzz_byte(&f));
    turn();
    clock_ns = UINT64_MAX; /* nobody waits for longer than it can */
    turn();
    FUZZ_WANT(!driver->worlds->decide_ns && !driver->worlds->expire_ns && !nothing_said);
    OPS->stop(driver);
    FUZZ_WANT(opened == fuzz_net_closed);
    return 0;
}
