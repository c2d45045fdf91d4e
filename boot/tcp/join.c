/* SPDX-License-Identifier: Apache-2.0 */
/* join.c - meets the other ranks at rank 0, whatever has told where that is. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tcp.h"

int hly_tcp_join(const struct hly_boot_log *log, const struct hly_tcp_variables *v,
                 uint64_t deadline_ns, const halay_boot_info_t *info, struct hly_boot_identity *id)
{
    char name[24];
    struct hly_tcp tcp = {.log = log, .v = v, .begin_ns = hly_boot_now_ns(), .listen_fd = -1};
    memset(id, 0, sizeof *id);
    tcp.end_ns = tcp.begin_ns + deadline_ns;
    tcp.self.rank = (uint32_t)v->rank;
    tcp.self.nranks = (uint32_t)v->nranks;
    snprintf(name, sizeof name, "rank %d", v->rank);
    hly_boot_describe(name, info, &tcp.self);
    int rc = v->rank == 0 ? hly_tcp_host(&tcp, id) : hly_tcp_guest(&tcp, id);
    if (rc && tcp.listen_fd >= 0)
        close(tcp.listen_fd);
    id->listen_fd = rc ? -1 : tcp.listen_fd;
    return rc;
}
