/* SPDX-License-Identifier: Apache-2.0 */
/* guest.c - a rank other than 0: finds rank 0's rendezvous, says hello, and takes the answer. */
#include <stdio.h>
#include <unistd.h>

#include "../common/listen.h"
#include "tcp.h"

int hly_tcp_meet(struct hly_tcp *tcp, int fd, int port, const struct hly_boot_greeting *greeting,
                 struct hly_boot_identity *id)
{
    char guest[24], holder[320];
    const struct hly_boot_visit visit = {tcp->log,    &tcp->v->key, guest, holder,
                                         tcp->end_ns, NULL,         0};
    snprintf(guest, sizeof guest, "rank %d", tcp->v->rank);
    snprintf(holder, sizeof holder, "rank 0 at '%.100s' port %d", tcp->v->address, port);
    int rc = hly_listen_beside(tcp->log, fd, greeting->local, &tcp->self.address, &tcp->listen_fd);
    if (!rc)
        rc = hly_boot_visit(&visit, fd, greeting, &tcp->self, id);
    close(fd);
    return rc;
}

/* Without rank 0 nobody can choose one rank to say that it is missing: rank 1 does, and from 4 s on
 * rank 2 as well, if that one is not there either. */
int hly_tcp_guest(struct hly_tcp *tcp, struct hly_boot_identity *id)
{
    const struct hly_tcp_variables *v = tcp->v;
    const uint64_t first_ns = v->rank > 2 ? 0 : (v->rank == 1 ? 1 : 4) * HLY_FIRST_NOTICE_NS;
    struct hly_boot_greeting greeting;
    char looks[200];
    struct hly_boot_search search = {.log = tcp->log,
                                     .key = &v->key,
                                     .name = v->address,
                                     .ports = v->ports,
                                     .nports = v->nports,
                                     .end_ns = tcp->end_ns,
                                     .timeout_ns = 1000000000,
                                     .notices = {tcp->begin_ns, first_ns, 0},
                                     .who = "halay_init",
                                     .looks = looks};
    snprintf(looks, sizeof looks, "rank %d looks for rank 0 at '%.100s', ports %d to %d", v->rank,
             v->address, v->ports[0], v->ports[v->nports - 1]);
    const int fd = hly_boot_find(&search, &greeting);
    if (fd >= 0)
        return hly_tcp_meet(tcp, fd, search.port, &greeting, id);
    return hly_boot_error(
        tcp->log, HALAY_EBOOT,
        "rank %d found no rendezvous of rank 0 at '%.100s', ports %d to %d, "
        "within %.1f s (last: %s): is rank 0 running and has it called "
        "halay_init, is the address that of its host, and are these ports open?%s",
        v->rank, v->address, v->ports[0], v->ports[v->nports - 1],
        (double)(tcp->end_ns - tcp->begin_ns) / 1e9, search.why,
        v->given ? "" : " HALAY_RENDEZVOUS=host:port names another");
}
