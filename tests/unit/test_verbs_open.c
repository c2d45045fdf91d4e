/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_open.c - opening an end over verbs, with and without an RDMA device: what is wrong is
 * said once, with a remedy, and nothing is left open. And registrations of memory that fail (by
 * --wrap, of two devices that are not there): each of them, in turn.
 */
#include <errno.h>
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

int main(void)
{
    halay_transport_t *transport = NULL;
    halay_transport_params_t small = {.size = 8};
    registrations_fail();
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
