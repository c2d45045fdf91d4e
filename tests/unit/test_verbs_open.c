/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_open.c - opening an end over verbs, with and without an RDMA device: what is wrong is
 * said once, with a remedy, and nothing is left open. And, by --wrap, of devices that are not
 * there: each registration of memory fails, in turn; a driver does not let go of queue pairs.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/transport.h>

#include "../../transports/verbs/verbs.h"
#include "../check.h"

extern const halay_transport_ops_t halay_transport_v7_verbs;

static int errors;
static char last[1024];

static void on_log(void *arg, int level, const char *text)
{
    (void)arg;
    errors += level == 0;
    if (level == 0)
        snprintf(last, sizeof(last), "%s", text);
}

/* The lowest descriptor that is free: one that was left open takes it. */
static int lowest_free(void)
{
    int fd = dup(STDOUT_FILENO);
    CHECK(fd >= 0 && close(fd) == 0, "dup");
    return fd;
}

static void opens_not(const char *options, int status, const char *text)
{
    halay_transport_params_t params = {
        .size = sizeof(params), .self = {1, 2}, .options = options, .log = on_log};
    halay_transport_t *transport = NULL;
    int before = lowest_free(), rc;
    errors = 0;
    rc = halay_transport_v7_verbs.open(&params, &transport);
    CHECK(rc == status && !transport, "'%s': open is %d: %s", options, rc, last);
    CHECK(errors == 1 && strstr(last, text), "'%s': %d errors, '%s'", options, errors, last);
    CHECK(lowest_free() == before, "descriptors are left open");
}

/* ------------------------------------------------------------------ registrations */

static int asked, fails_at, living, warnings;

static struct ibv_mr *registers(void)
{
    if (++asked == fails_at) {
        errno = ENOMEM;
        return NULL;
    }
    living++;
    return calloc(1, sizeof(struct ibv_mr));
}

struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access);
struct ibv_mr *__wrap_ibv_reg_mr(struct ibv_pd *pd, void *at, size_t bytes, int access)
{
    (void)pd, (void)at, (void)bytes, (void)access;
    return registers();
}

struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova,
                                       unsigned access);
struct ibv_mr *__wrap_ibv_reg_mr_iova2(struct ibv_pd *pd, void *at, size_t bytes, uint64_t iova,
                                       unsigned access)
{
    (void)pd, (void)at, (void)bytes, (void)iova, (void)access;
    return registers();
}

int __wrap_ibv_dereg_mr(struct ibv_mr *mr);
int __wrap_ibv_dereg_mr(struct ibv_mr *mr)
{
    living--;
    free(mr);
    return 0;
}

static void on_any(void *arg, int level, const char *text)
{
    (void)arg;
    errors += level == 0;
    warnings += level == 1;
    snprintf(last, sizeof(last), "%s", text);
}

static void end_make(halay_transport_t *t)
{
    static const hly_meet_ops_t ops = {.name = "verbs"};
    memset(t, 0, sizeof(*t));
    t->meet.ops = &ops;
    t->meet.log = on_any;
    t->meet.pid = getpid();
    t->ndevices = t->nrails = 2;
    LIST_INIT(&t->sources);
    LIST_INIT(&t->targets);
    asked = errors = warnings = 0;
    last[0] = 0;
}

/* Buffers of its own: the end cannot be opened, and says why. */
static void pools_refused(halay_transport_t *t)
{
    for (fails_at = 1;; fails_at++) {
        end_make(t);
        const int rc = hly_verbs_pools_open(t);
        if (asked >= fails_at)
            CHECK(rc == HALAY_ENOMEM && errors == 1 && strstr(last, "could not be registered: "),
                  "%d: %d, %d errors: %s", fails_at, rc, errors, last);
        hly_verbs_pools_close(t);
        CHECK(living == 0, "%d: %d registrations are left", fails_at, living);
        if (asked < fails_at) {
            CHECK(rc == HALAY_OK && errors == 0, "%d: %s", rc, last);
            return;
        }
    }
}

/* The program's: it goes another way, with one warning; the next one is tried again. */
static void memory_refused(halay_transport_t *t)
{
    static char bytes[HLY_VERBS_BOUNCE * 2];
    const halay_mem_params_t params = {.address = bytes, .bytes = sizeof(bytes)};
    halay_mem_t *mem;
    for (fails_at = 1; fails_at <= 2; fails_at++) {
        end_make(t);
        CHECK(!hly_verbs_source_hold(t, bytes, sizeof(bytes)) && living == 0, "a source");
        CHECK(warnings == 1 && strstr(last, "it is copied in pieces instead"), "%s", last);
        CHECK(t->locked_bytes == 0, "locked");
        mem = hly_verbs_source_hold(t, bytes, sizeof(bytes));
        CHECK(mem && living == 2, "again");
        hly_verbs_source_drop(t, mem);
        asked = 0;
        CHECK(hly_verbs_register(t, &params, &mem) == HALAY_ENOMEM && living == 0, "a target");
        CHECK(warnings == 2 && strstr(last, "peers send it as messages instead"), "%s", last);
        asked = 0;
        CHECK(hly_verbs_register(t, &params, &mem) == HALAY_ENOMEM && warnings == 2, "said again");
        CHECK(hly_verbs_register(t, &params, &mem) == HALAY_OK && living == 2, "again");
        hly_verbs_deregister(t, mem);
        CHECK(living == 0 && t->locked_bytes == 0 && errors == 0, "%d are left", living);
    }
    fails_at = 0;
}

static void registrations_fail(void)
{
    halay_transport_t *t = malloc(sizeof(*t));
    CHECK(t, "memory");
    pools_refused(t);
    memory_refused(t);
    free(t);
}

/* ------------------------------------------------------------------ queue pairs that stay */

static sem_t lets_go; /* once for each queue pair, if it holds them */
static atomic_int holds, reset, destroyed, closed;
static int no_thread;

int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
    (void)qp;
    reset += mask == IBV_QP_STATE && attr->qp_state == IBV_QPS_RESET;
    return 0;
}

int __wrap_ibv_destroy_qp(struct ibv_qp *qp);
int __wrap_ibv_destroy_qp(struct ibv_qp *qp)
{
    while (holds && sem_wait(&lets_go) != 0)
        ;
    free(qp);
    destroyed++;
    return 0;
}

int __wrap_ibv_dealloc_pd(struct ibv_pd *pd);
int __wrap_ibv_dealloc_pd(struct ibv_pd *pd)
{
    (void)pd;
    return 0;
}

int __wrap_ibv_close_device(struct ibv_context *context);
int __wrap_ibv_close_device(struct ibv_context *context)
{
    free(context);
    closed++;
    return 0;
}

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *),
                          void *arg)
{
    return no_thread ? EAGAIN : __real_pthread_create(thread, attr, start, arg);
}

static halay_transport_t *with_device(void)
{
    halay_transport_t *t = malloc(sizeof(*t));
    CHECK(t, "memory");
    end_make(t);
    t->ndevices = 1;
    t->devices[0].context = calloc(1, sizeof(struct ibv_context));
    CHECK(t->devices[0].context, "memory");
    hly_verbs_ends_init(&t->ends);
    reset = destroyed = closed = 0;
    return t;
}

/* Each is reset when this comes back, whatever the driver does. */
static void pairs_end(halay_transport_t *t, int n)
{
    for (int i = 1; i <= n; i++) {
        struct ibv_qp *qp = calloc(1, sizeof(*qp));
        CHECK(qp, "memory");
        hly_verbs_pair_end(t, qp);
        CHECK(reset == i, "%d of %d were reset", reset, i);
    }
}

static int ended(halay_transport_t *t, uint64_t seconds)
{
    return hly_verbs_pairs_ended(t, hly_meet_now_ns() + seconds * 1000000000);
}

static void let_go(int n)
{
    while (n-- > 0)
        sem_post(&lets_go);
}

/* They go later: a close waits for them, and the next ones need another thread. */
static void pairs_late(void)
{
    halay_transport_t *t = with_device();
    holds = 1;
    pairs_end(t, 3);
    CHECK(destroyed == 0, "who ends queue pairs waits for the driver");
    let_go(3);
    CHECK(ended(t, 100) && destroyed == 3 && !errors && !warnings, "%d: %s", destroyed, last);
    holds = reset = 0;
    pairs_end(t, 1);
    CHECK(ended(t, 100) && destroyed == 4, "%d", destroyed);
    no_thread = 1;
    reset = 0;
    pairs_end(t, 2);
    no_thread = 0;
    CHECK(destroyed == 6 && ended(t, 0), "%d without a thread", destroyed);
    hly_verbs_devices_close(t);
    CHECK(closed == 1, "closed %d times", closed);
}

/* A close leaves them to the thread, which closes the device when they have gone. */
static void pairs_left(void)
{
    halay_transport_t *t = with_device();
    holds = 1;
    pairs_end(t, 2);
    CHECK(!ended(t, 0), "they have not ended");
    CHECK(warnings == 1 && strstr(last, "does not let go of queue pairs"), "'%s'", last);
    CHECK(destroyed == 0 && closed == 0, "%d, %d", destroyed, closed);
    let_go(2);
    for (int i = 0; i < 10000 && !closed; i++)
        usleep(10000);
    CHECK(destroyed == 2 && closed == 1 && warnings == 1, "%d, %d: %s", destroyed, closed, last);
    holds = 0;
}

int main(void)
{
    halay_transport_t *transport = NULL;
    halay_transport_params_t small = {.size = 8};
    registrations_fail();
    sem_init(&lets_go, 0, 0);
    pairs_late();
    pairs_left();
    CHECK(halay_transport_v7_verbs.open(NULL, &transport) == HALAY_EINVAL, "no parameters");
    CHECK(halay_transport_v7_verbs.open(&small, &transport) == HALAY_EINVAL, "too few");
    opens_not("gid=x", HALAY_EINVAL, "the transport's options: 'gid=x' is not understood");
    setenv("HALAY_VERBS", "mtu=9000", 1);
    opens_not(NULL, HALAY_EINVAL, "HALAY_VERBS: 'mtu=9000' is not understood");
    unsetenv("HALAY_VERBS");
    if (access("/sys/class/infiniband", F_OK) != 0)
        opens_not(NULL, HALAY_ETRANSPORT, "HALAY_TRANSPORT=shm+tcp");
    opens_not("device=none_1", HALAY_ETRANSPORT, "HALAY_TRANSPORT=shm+tcp");
    printf("what is wrong is said: the last was '%s'\n", last);
    return 0;
}
