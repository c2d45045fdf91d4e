/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_verbs_open.c - opening an end over verbs, with and without an RDMA device: what is wrong is
 * said once, with a remedy, and nothing is left open.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/transport.h>

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

int main(void)
{
    halay_transport_t *transport = NULL;
    halay_transport_params_t small = {.size = 8};
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
