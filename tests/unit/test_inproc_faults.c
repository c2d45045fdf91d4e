/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_inproc_faults.c - what inproc injects is injected, and stops where it must: deaths, cuts,
 * late writers; and its bootstrap. One thread drives all endpoints, so that all is repeatable.
 */
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <inproc/inproc.h>

#include "../whole_table.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define RANKS 4
#define SIZE  20000

static int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("line %d: %s: ", __LINE__, #condition);                                         \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static const halay_transport_ops_t *const ops = &halay_transport_v7_inproc;

/* What came to one endpoint. */
struct got {
    int messages, sent, puts, immediates, landed, failed;
    int put_status, sent_status, landed_status;
    uint64_t order[256]; /* the first bytes of the messages */
    halay_peer_id_t failed_peer;
    char text[80];
    const void *data;
};

struct world {
    halay_inproc_hub_t *hub;
    struct halay_inproc_rank rank[RANKS];
    halay_transport_t *transport[RANKS];
    halay_ep_t *ep[RANKS][RANKS];
    struct got got[RANKS];
};

static halay_peer_id_t id_of(int rank)
{
    return (halay_peer_id_t){77, (uint64_t)rank};
}

static int open_rank(struct world *world, int r)
{
    halay_transport_params_t params = {.size = sizeof(params), .self = id_of(r)};

    params.deadline_ns = 1000000000;
    params.arg = &world->rank[r];
    return ops->open(&params, &world->transport[r]);
}

static void begin(struct world *world, const halay_inproc_faults_t *faults)
{
    memset(world, 0, sizeof(*world));
    CHECK(halay_inproc_hub_create(RANKS, faults, &world->hub) == 0, "hub");
    for (int r = 0; r < RANKS; r++) {
        world->rank[r] = (struct halay_inproc_rank){world->hub, r};
        CHECK(open_rank(world, r) == 0, "open %d", r);
    }
}

static void join(struct world *world, int a, int b)
{
    CHECK(ops->connect(world->transport[a], id_of(b), NULL, 0, &world->ep[a][b]) == 0, "connect");
}

static void end(struct world *world)
{
    for (int r = 0; r < RANKS; r++) {
        ops->close(world->transport[r]);
    }
    halay_inproc_hub_destroy(world->hub);
}

static int step(struct world *world, int r)
{
    halay_event_t event[8];
    struct got *got = &world->got[r];
    int n = ops->poll(world->transport[r], event, 8);

    for (int i = 0; i < n; i++) {
        const halay_event_t *it = &event[i];

        switch (it->kind) {
        case HALAY_EVENT_MESSAGE:
            got->data = it->data;
            if (it->bytes >= 8 && got->messages < 256) {
                memcpy(&got->order[got->messages], it->data, 8);
            }
            got->messages++;
            break;
        case HALAY_EVENT_SENT:
            got->sent++;
            got->sent_status = it->status;
            break;
        case HALAY_EVENT_PUT:
            got->puts++;
            got->put_status = it->status;
            break;
        case HALAY_EVENT_IMMEDIATE:
            got->immediates++;
            break;
        case HALAY_EVENT_LANDED:
            got->landed++;
            got->landed_status = it->status;
            break;
        case HALAY_EVENT_FAILED:
            got->failed++;
            got->failed_peer = it->peer;
            snprintf(got->text, sizeof(got->text), "%s", it->text);
            CHECK(it->status == HALAY_EPEER, "status %d", it->status);
            break;
        default:
            CHECK(0, "kind %d", it->kind);
        }
    }
    return n;
}

static void steps(struct world *world, int many)
{
    for (int i = 0; i < many; i++) {
        for (int r = 0; r < RANKS; r++) {
            if (world->transport[r]) {
                step(world, r);
            }
        }
    }
}

static int send_number(struct world *world, int a, int b, uint64_t number)
{
    return ops->send(world->transport[a], world->ep[a][b], 0, &number, sizeof(number), NULL, 0, 0);
}

struct target {
    uint8_t *bytes, *source;
    halay_mem_t *mem;
    uint8_t key[48];
    size_t key_bytes;
};

static void make_target(struct world *world, int r, struct target *target)
{
    target->bytes = calloc(1, SIZE);
    target->source = malloc(SIZE);
    target->key_bytes = sizeof(target->key);
    memset(target->source, 0xee, SIZE);
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = target->bytes, .bytes = SIZE, .dmabuf = -1};
    CHECK(ops->register_mem(world->transport[r], &params, &target->mem) == 0, "reg");
    CHECK(ops->key(world->transport[r], target->mem, target->key, &target->key_bytes) == 0, "key");
}

static int put(struct world *world, int a, int b, const struct target *target)
{
    return ops->put(world->transport[a], world->ep[a][b], target->source, SIZE, target->key,
                    target->key_bytes, 0, 5, 9);
}

static size_t written(const struct target *target)
{
    size_t n = 0;

    for (size_t i = 0; i < SIZE; i++) {
        n += target->bytes[i] == 0xee;
    }
    return n;
}

static void drop_target(struct world *world, int r, struct target *target)
{
    ops->deregister_mem(world->transport[r], target->mem);
    free(target->bytes);
    free(target->source);
}

/* The faults are there: a setting that injects nothing would test nothing. */
static void test_injection(void)
{
    const halay_inproc_faults_t late = {.seed = 1, .late_put_polls = 40};
    const halay_inproc_faults_t mixed = {.seed = 2, .reorder = 1, .again_percent = 30};
    const halay_inproc_faults_t slow = {.delay_polls_max = 1000, .connect_polls = 5};
    struct target target;
    struct world world;
    int partly = 0, again = 0, disorder = 0, polls = 0, result;

    begin(&world, &late);
    join(&world, 0, 1);
    make_target(&world, 1, &target);
    for (int i = 0; i < 20; i++) {
        memset(target.bytes, 0, SIZE);
        CHECK(put(&world, 0, 1, &target) == HALAY_INPROGRESS, "put");
        while (world.got[0].puts <= i) {
            step(&world, i & 1);
            step(&world, 0);
            partly += written(&target) > 0 && written(&target) < SIZE;
        }
        CHECK(written(&target) == SIZE && world.got[0].put_status == 0, "not all at completion");
    }
    CHECK(partly > 20, "seen in part %d times", partly);
    drop_target(&world, 1, &target);
    end(&world);

    begin(&world, &mixed);
    join(&world, 0, 1);
    for (uint64_t i = 0; i < 50; i++) {
        while ((result = send_number(&world, 0, 1, i)) == HALAY_EAGAIN) {
            again++;
        }
        CHECK(result == 0, "send is %d", result);
    }
    steps(&world, 20);
    for (int i = 0; i < 50; i++) {
        disorder += world.got[1].order[i] != (uint64_t)i;
    }
    CHECK(again > 5 && disorder > 25 && world.got[1].messages == 50, "%d again, %d disordered",
          again, disorder);
    end(&world);

    begin(&world, &slow);
    join(&world, 0, 1);
    for (; send_number(&world, 0, 1, 1) == HALAY_EAGAIN; polls++) {
        step(&world, 0);
    }
    CHECK(polls >= 4 && polls <= 5, "up after %d polls", polls);
    CHECK(send_number(&world, 0, 1, 2) == 0 && send_number(&world, 0, 1, 3) == 0, "send");
    step(&world, 1);
    CHECK(world.got[1].messages < 3, "three came at once for a delay of up to 1000");
    steps(&world, 1001);
    CHECK(world.got[1].messages == 3, "%d came", world.got[1].messages);
    end(&world);
}

static void test_data_is_gone(void)
{
    struct world world;

    begin(&world, NULL);
    join(&world, 0, 1);
    CHECK(send_number(&world, 0, 1, 4711) == 0, "send");
    step(&world, 1);
    CHECK(world.got[1].messages == 1, "none came");
#if defined(__SANITIZE_ADDRESS__)
    CHECK(!__asan_address_is_poisoned(world.got[1].data), "gone before the next poll");
    step(&world, 1);
    CHECK(__asan_address_is_poisoned(world.got[1].data), "not gone after the next poll");
#endif
    end(&world);
}

static void check_dead(struct world *world, int r)
{
    halay_transport_t *dead = world->transport[r];
    uint8_t bytes[8] = {0};
    const halay_mem_params_t params = {
        .size = sizeof(params), .address = bytes, .bytes = 8, .dmabuf = -1};
    halay_mem_t *mem;
    halay_event_t event;
    halay_ep_t *ep;
    int fd;

    CHECK(ops->poll(dead, &event, 1) == HALAY_ETRANSPORT, "poll");
    CHECK(ops->arm(dead, &fd) == HALAY_ETRANSPORT, "arm");
    CHECK(send_number(world, r, 1, 1) == HALAY_ETRANSPORT, "send");
    CHECK(ops->recv(dead, 5, bytes, 8, 0) == HALAY_ETRANSPORT, "recv");
    CHECK(ops->register_mem(dead, &params, &mem) == HALAY_ETRANSPORT, "register_mem");
    CHECK(ops->connect(dead, id_of(3), NULL, 0, &ep) == HALAY_ETRANSPORT, "connect");
}

/* Rank 0 dies in the middle of puts to and from it. 2 has a way to it, 3 only one from it. */
static void kill_in_the_middle(uint64_t seed, bool rank_closes)
{
    const halay_inproc_faults_t faults = {.seed = seed, .late_put_polls = 60, .delay_polls_max = 3};
    struct target there, here;
    struct world world;
    struct pollfd waiter = {.events = POLLIN};
    size_t before;

    begin(&world, &faults);
    join(&world, 0, 1);
    join(&world, 1, 0);
    join(&world, 2, 0);
    join(&world, 0, 3);
    make_target(&world, 1, &there);
    make_target(&world, 0, &here);
    CHECK(ops->arm(world.transport[0], &waiter.fd) == 0, "arm");
    CHECK(put(&world, 0, 1, &there) == HALAY_INPROGRESS, "put");
    CHECK(put(&world, 1, 0, &here) == HALAY_INPROGRESS, "put");
    for (uint64_t i = 0; i < seed % 8; i++) {
        step(&world, 1);
    }
    halay_inproc_kill(world.hub, 0);
    halay_inproc_kill(world.hub, 0);
    free(there.source); /* a dead thread's memory is gone: ASan sees who reads it */
    before = written(&there);
    memset(here.bytes, 0, SIZE);
    steps(&world, 200);
    CHECK(written(&there) == before, "the dead one writes on");
    CHECK(written(&here) == 0, "the dead one is written to");
    CHECK(world.got[1].puts == 1 && world.got[1].immediates <= 1, "%d", world.got[1].puts);
    CHECK(world.got[1].immediates == 0 || before == SIZE, "an immediate of %zu bytes", before);
    for (int r = 1; r < RANKS; r++) {
        CHECK(world.got[r].failed == 1 && world.got[r].failed_peer.lo == 0, "%d at %d",
              world.got[r].failed, r);
        CHECK(!strcmp(world.got[r].text, "rank thread was killed by the test"), "%s",
              world.got[r].text);
    }
    CHECK(send_number(&world, 1, 0, 1) == HALAY_EPEER, "send to the dead");
    CHECK(put(&world, 1, 0, &here) == HALAY_EPEER, "put to the dead");
    CHECK(poll(&waiter, 1, 1000) == 1, "the dead one sleeps on");
    check_dead(&world, 0);
    join(&world, 3, 0);
    steps(&world, 10);
    CHECK(world.got[3].failed == 1, "FAILED twice");
    CHECK(send_number(&world, 3, 0, 1) == HALAY_EPEER, "send to the dead");
    there.source = NULL;
    drop_target(&world, 1, &there);
    drop_target(&world, 0, &here);
    if (!rank_closes) {
        world.transport[0] = NULL; /* left to the hub */
    }
    end(&world);
}

/* What has begun to land ends with an error; what has not does not touch the buffer. */
static void test_kill_landing(void)
{
    int begun = 0, not_begun = 0;

    for (uint64_t seed = 1; seed <= 30; seed++) {
        const halay_inproc_faults_t faults = {
            .seed = seed, .late_put_polls = 30, .delay_polls_max = 3};
        uint8_t *payload = malloc(SIZE), *buffer = calloc(1, SIZE), *copy = malloc(SIZE);
        struct world world;
        int result;

        memset(payload, 0xee, SIZE);
        begin(&world, &faults);
        join(&world, 0, 1);
        CHECK(ops->recv(world.transport[1], 6, buffer, SIZE, 3) == 0, "recv");
        result = ops->send(world.transport[0], world.ep[0][1], 6, NULL, 0, payload, SIZE, 1);
        CHECK(result == HALAY_INPROGRESS, "send is %d", result);
        step(&world, 1);
        step(&world, 1);
        halay_inproc_kill(world.hub, 0);
        free(payload);
        memcpy(copy, buffer, SIZE);
        steps(&world, 100);
        CHECK(!memcmp(copy, buffer, SIZE), "written by the dead");
        result = ops->withdraw(world.transport[1], 6);
        CHECK(result == HALAY_OK && world.got[1].failed == 1, "withdraw is %d", result);
        if (world.got[1].landed) {
            begun += world.got[1].landed_status != 0;
            CHECK(world.got[1].landed_status == HALAY_EPEER || copy[SIZE / 2] == 0xee, "landed");
        } else {
            not_begun++;
            CHECK(copy[0] == 0 && copy[SIZE - 1] == 0, "begun, and no LANDED");
        }
        end(&world);
        free(buffer);
        free(copy);
    }
    CHECK(begun > 3 && not_begun > 3, "%d begun, %d not", begun, not_begun);
}

static void test_kill(void)
{
    struct world world;
    halay_transport_t *again = NULL;
    halay_boot_info_t info = {.size = sizeof(info)};
    halay_boot_t *boot;

    for (uint64_t seed = 1; seed <= 40; seed++) {
        kill_in_the_middle(seed, seed & 1);
    }
    begin(&world, NULL);
    join(&world, 1, 0);
    join(&world, 0, 2);
    join(&world, 0, 3);
    ops->disconnect(world.transport[0], world.ep[0][3]);
    CHECK(send_number(&world, 1, 0, 1) == 0, "send");
    halay_inproc_kill(world.hub, 0);
    steps(&world, 3);
    CHECK(world.got[1].failed == 1 && world.got[2].failed == 1, "not told of a death");
    CHECK(world.got[3].failed == 0, "told of the death of one who had given up his way");
    ops->close(world.transport[0]);
    CHECK(open_rank(&world, 0) == HALAY_ETRANSPORT, "the dead opens");
    world.transport[0] = again;
    CHECK(halay_boot_v4_inproc.open(&world.rank[0], NULL, NULL, 0, &info, &boot) == HALAY_EBOOT,
          "the dead boots");
    end(&world);
}

/* Packets vanish; nobody is told, also not of a close. */
static void test_cut(void)
{
    const halay_inproc_faults_t faults = {.seed = 3, .delay_polls_max = 50, .queue_slots = 4};
    struct target target;
    struct world world;
    int result;

    begin(&world, &faults);
    join(&world, 0, 1);
    join(&world, 1, 0);
    join(&world, 0, 2);
    make_target(&world, 1, &target);
    CHECK(put(&world, 0, 1, &target) == HALAY_INPROGRESS, "put");
    halay_inproc_cut(world.hub, 1, 0);
    for (uint64_t i = 0; i < 20; i++) {
        CHECK(send_number(&world, 0, 1, i) == 0, "a send shows the cut");
    }
    CHECK(put(&world, 0, 1, &target) == HALAY_INPROGRESS, "put");
    CHECK(put(&world, 0, 1, &target) == HALAY_INPROGRESS, "put");
    CHECK(put(&world, 0, 1, &target) == HALAY_INPROGRESS, "put");
    CHECK(put(&world, 0, 1, &target) == HALAY_EAGAIN, "more puts than slots");
    CHECK(send_number(&world, 0, 2, 1) == 0, "send");
    steps(&world, 200);
    CHECK(world.got[1].messages == 0 && world.got[1].immediates == 0, "something came");
    CHECK(world.got[0].puts == 0 && written(&target) == 0, "a put completed");
    CHECK(world.got[2].messages == 1, "others are cut too");
    drop_target(&world, 1, &target);
    ops->close(world.transport[1]);
    world.transport[1] = NULL;
    steps(&world, 100);
    CHECK(world.got[0].failed == 0, "told of a close behind the cut");
    result = send_number(&world, 0, 1, 1);
    CHECK(result == HALAY_EAGAIN, "send is %d", result); /* its slots are full of lost puts */
    ops->disconnect(world.transport[0], world.ep[0][1]);
    steps(&world, 3);
    CHECK(world.got[0].puts == 4 && world.got[0].put_status == HALAY_EPEER, "%d puts ended",
          world.got[0].puts);
    end(&world);
}

struct worker {
    struct world *world;
    int rank;
    pthread_t thread;
    uint64_t refused;
};

/* Sends and polls as fast as it can, until rank 0 is dead for it, and a little longer. */
static void *work(void *arg)
{
    struct worker *me = arg;
    struct world *world = me->world;
    int next = (me->rank + 1) % RANKS, after = 0;
    uint8_t *bytes = malloc(SIZE);
    halay_event_t event[8];

    memset(bytes, me->rank, SIZE);
    while (after < 100) {
        int n = ops->poll(world->transport[me->rank], event, 8);

        after += n == HALAY_ETRANSPORT || world->got[me->rank].failed;
        for (int i = 0; i < n; i++) {
            world->got[me->rank].failed += event[i].kind == HALAY_EVENT_FAILED;
        }
        for (int to = 0; to < RANKS; to++) {
            if (to != me->rank) {
                me->refused += send_number(world, me->rank, to, 1) == HALAY_EPEER;
            }
        }
        /* The bytes are read until SENT, death or close: they stay until then. */
        ops->send(world->transport[me->rank], world->ep[me->rank][next], 0, NULL, 0, bytes, 16000,
                  1);
    }
    ops->close(world->transport[me->rank]);
    free(bytes);
    return NULL;
}

/* A death while all threads are busy: for the sanitizers. */
static void test_kill_among_threads(void)
{
    const halay_inproc_faults_t faults = {
        .seed = 5, .late_put_polls = 4, .delay_polls_max = 4, .reorder = 1, .queue_slots = 4};
    const struct timespec pause = {.tv_nsec = 20000000};
    struct worker worker[RANKS];
    struct world world;

    begin(&world, &faults);
    for (int a = 0; a < RANKS; a++) {
        for (int b = 0; b < RANKS; b++) {
            if (a != b) {
                join(&world, a, b);
            }
        }
    }
    for (int r = 0; r < RANKS; r++) {
        worker[r] = (struct worker){.world = &world, .rank = r};
        CHECK(pthread_create(&worker[r].thread, NULL, work, &worker[r]) == 0, "thread");
    }
    nanosleep(&pause, NULL);
    halay_inproc_kill(world.hub, 0);
    for (int r = 0; r < RANKS; r++) {
        pthread_join(worker[r].thread, NULL);
        CHECK(r == 0 || (world.got[r].failed >= 1 && worker[r].refused > 0), "rank %d", r);
    }
    halay_inproc_hub_destroy(world.hub);
}

static void test_boot(void)
{
    const halay_boot_ops_t *boot_ops = &halay_boot_v4_inproc;
    const int nodes[3] = {1, 0, 1}, holes[3] = {0, 2, 2}, negative[3] = {0, -1, 0};
    const halay_inproc_faults_t faults = {.seed = 12};
    halay_boot_info_t info[3] = {{0}}, again;
    struct halay_inproc_rank rank[3];
    halay_boot_t *boot[3], *second;
    halay_inproc_hub_t *hub;
    halay_place_t place = {.size = sizeof(place)};
    int announced = 0;

    CHECK(halay_inproc_hub_create(3, &faults, &hub) == 0, "hub");
    CHECK(halay_inproc_hub_nodes(hub, holes) == HALAY_EINVAL, "a node without ranks");
    CHECK(halay_inproc_hub_nodes(hub, negative) == HALAY_EINVAL, "a negative node");
    CHECK(halay_inproc_hub_nodes(hub, nodes) == 0, "nodes");
    CHECK(is_whole(boot_ops, sizeof(*boot_ops)), "a member is NULL");
    CHECK(boot_ops->probe(&announced) == 0 && announced == 1, "probe");
    for (int r = 0; r < 3; r++) {
        rank[r] = (struct halay_inproc_rank){hub, r};
        info[r].size = sizeof(info[r]);
        CHECK(boot_ops->open(&rank[r], NULL, NULL, 0, &info[r], &boot[r]) == 0, "open");
        CHECK(info[r].rank == r && info[r].nranks == 3 && info[r].nnodes == 2 &&
                  info[r].node == nodes[r] && info[r].epoch == 1,
              "rank %d", r);
        CHECK(!memcmp(info[r].job, info[0].job, 16) && !memcmp(info[r].secret, info[0].secret, 16),
              "job");
    }
    CHECK(memcmp(info[0].job, info[0].secret, 16), "the secret is the job's name");
    CHECK(info[0].local_rank == 0 && info[2].local_rank == 1 && info[2].local_nranks == 2 &&
              info[1].local_nranks == 1,
          "local ranks");
    CHECK(!strcmp(info[2].host, "inproc-node1") && !strcmp(info[2].launcher, "inproc"), "%s",
          info[2].host);
    CHECK(boot_ops->get(boot[0], 1, &place) == 0 && place.node == 0, "get");
    CHECK(!strcmp(place.host, "inproc-node0"), "%s", place.host);
    CHECK(boot_ops->get(boot[0], 3, &place) == HALAY_EINVAL, "get of rank 3");
    again.size = sizeof(again);
    CHECK(boot_ops->open(&rank[1], NULL, NULL, 0, &again, &second) == HALAY_ESTATE, "two opens");
    CHECK(boot_ops->open(NULL, NULL, NULL, 0, &again, &second) == HALAY_EBOOT, "no hub");
    boot_ops->close(boot[1]);
    CHECK(boot_ops->open(&rank[1], NULL, NULL, 0, &again, &boot[1]) == 0 && again.epoch == 2,
          "the second epoch");
    for (int r = 0; r < 3; r++) {
        boot_ops->close(boot[r]);
    }
    boot_ops->close(NULL);
    halay_inproc_hub_destroy(hub);
}

static void test_bad_arguments(void)
{
    halay_transport_params_t params = {.size = sizeof(params)};
    const halay_inproc_faults_t small = {.message_bytes = 100}, never = {.again_percent = 100};
    halay_inproc_hub_t *hub = NULL;
    halay_transport_t *transport = NULL;
    struct world world;
    uint8_t bytes[8] = {0};

    CHECK(halay_inproc_hub_create(0, NULL, &hub) == HALAY_EINVAL, "no ranks");
    CHECK(halay_inproc_hub_create(2, &small, &hub) == HALAY_EINVAL, "message_bytes");
    CHECK(halay_inproc_hub_create(2, &never, &hub) == HALAY_EINVAL, "again_percent");
    halay_inproc_hub_destroy(NULL);
    CHECK(ops->open(&params, &transport) == HALAY_EINVAL && !transport, "open without a hub");
    begin(&world, NULL);
    params.arg = &world.rank[1];
    params.self = id_of(1);
    CHECK(ops->open(&params, &transport) == HALAY_ETRANSPORT, "the same id twice");
    params.self = id_of(9);
    params.options = "fast=1";
    CHECK(ops->open(&params, &transport) == HALAY_EINVAL && !transport, "an option");
    join(&world, 0, 1);
    CHECK(ops->send(world.transport[0], world.ep[0][1], 0, NULL, 8, NULL, 0, 0) == HALAY_EINVAL,
          "a NULL header");
    CHECK(ops->send(world.transport[0], world.ep[0][1], 0, bytes, 8, bytes, SIZE, 0) ==
              HALAY_EINVAL,
          "more than message_bytes");
    CHECK(ops->send(world.transport[0], world.ep[0][1], 3, bytes, 8, bytes, 8, 0) == HALAY_EINVAL,
          "a header with a tag");
    CHECK(ops->recv(world.transport[0], 0, bytes, 8, 0) == HALAY_EINVAL, "recv of tag 0");
    CHECK(ops->recv(world.transport[0], 4, bytes, 8, 0) == 0, "recv");
    CHECK(ops->recv(world.transport[0], 4, bytes, 8, 0) == HALAY_EINVAL, "recv twice");
    end(&world);
}

int main(void)
{
    test_injection();
    test_data_is_gone();
    test_kill();
    test_kill_landing();
    test_kill_among_threads();
    test_cut();
    test_boot();
    test_bad_arguments();
    printf("%d failures\n", failures);
    return failures != 0;
}
