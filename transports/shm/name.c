/* SPDX-License-Identifier: Apache-2.0 */
/*
 * name.c - the abstract socket address of a process. Everybody on the node can read these names
 * (/proc/net/unix), so they are made by a keyed hash that does not give the key, the job's secret,
 * away: SipHash-2-4 with its 128-bit result.
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "../../common/keys.h"
#include "shm.h"

socklen_t hly_shm_name(const halay_transport_t *t, halay_peer_id_t id, struct sockaddr_un *address)
{
    uint64_t words[4], hash[2];
    memcpy(words, t->job, sizeof(t->job));
    words[2] = id.hi;
    words[3] = id.lo;
    hly_sip_long(t->secret, words, 4, hash);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    int length =
        snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "halay-shm-%016llx%016llx",
                 (unsigned long long)hash[0], (unsigned long long)hash[1]);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}
