/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport_body.h - the contract of include/halay/transport.h as a test, for any transport. n
 * endpoints are opened in one process, one thread each; what the transport's query offers is
 * tested, what it does not offer must be refused.
 */
#ifndef HALAY_TESTS_TRANSPORT_BODY_H
#define HALAY_TESTS_TRANSPORT_BODY_H

#include <halay/transport.h>

enum {
    TRANSPORT_BODY_SECRET = 1u << 0, /* peers with another secret are never connected */
    TRANSPORT_BODY_SLOW = 1u << 1,   /* faults are injected: a tenth of the rounds, longer waits */
    TRANSPORT_BODY_BREAKS = 1u << 2  /* a put to what is not registered ends the connection */
};

struct transport_body {
    const halay_transport_ops_t *ops;
    int n;                                 /* endpoints, 2 to 16 */
    void *(*arg_of)(void *user, int rank); /* params.arg of endpoint `rank`; NULL: none */
    void *user;
    const char *options; /* params.options */
    unsigned flags;      /* TRANSPORT_BODY_* */
};

/*
 * Runs all cases, or the one with the name `only`. Every open uses fresh ids and a job that no
 * other process has. Prints one line a case. 0: all passed; 1: something failed, and was printed;
 * 77: there is no such case, or the transport does not offer what it needs.
 */
int transport_body_run(const struct transport_body *body, const char *only);

#endif
