/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - contract of a transport, in 18 calls, of which some need RDMA hardware; a transport
 * without it does not offer them. A transport moves bytes between two processes. It knows no
 * collective, no rank and no communicator, and never calls the core: the core polls it.
 *
 * Rules for every member
 *  - None blocks, except open and close where stated. A full queue is HALAY_EAGAIN, never a wait.
 *  - One thread at a time calls into one transport object; objects are independent of one another.
 *  - Messages may be delivered in any order, also between the same two processes. None is lost or
 *    delivered twice.
 *  - Whoever finds an error reports it once through the log function, with cause and remedy.
 *  - All members are set (halay_config_t). Members whose capability is missing (register_mem, key,
 *    put; alloc_mem, give_back; recv, withdraw; arm) return HALAY_EUNSUPPORTED.
 *
 * A transport is one folder with one `const` table and no other global symbol. The same table is
 * linked in, or loaded from a plug-in as the symbol `halay_transport_v7_<name>`. The ABI number is
 * in the name, so that the loader does not find a stale plug-in.
 */
#ifndef HALAY_TRANSPORT_H
#define HALAY_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "boot.h"
#include "device.h"
#include "halay.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HALAY_TRANSPORT_ABI 7

/* The identity of a process: 128 bits that the core makes from job, rank and epoch. */
typedef struct halay_peer_id {
    uint64_t hi, lo;
} halay_peer_id_t;

typedef struct halay_transport halay_transport_t; /* one endpoint of this process */
typedef struct halay_ep halay_ep_t;               /* a connection to one peer, for sending */
typedef struct halay_mem halay_mem_t;             /* registered memory */

enum {
    HALAY_CAN_PUT = 1u << 0,   /* register_mem, key, put */
    HALAY_CAN_LAND = 1u << 1,  /* recv posts a landing buffer for a tag; send may use tags */
    HALAY_CAN_SLEEP = 1u << 2, /* arm gives a descriptor */
    HALAY_CAN_COUNT = 1u << 3, /* query tells what its device's queues have done so far */
    /* both ends share a cache: a long payload is fastest as a pipeline of eager messages */
    HALAY_CAN_CACHE = 1u << 4,
    HALAY_CAN_LEND = 1u << 5, /* alloc_mem; sends from such memory need no copy */
    /* register_mem takes memory of a device, and put reads and writes it without the processor;
     * register_mem refuses devices that it cannot reach */
    HALAY_CAN_DEVICE = 1u << 6,
    HALAY_CAN_WATCH = 1u << 7 /* connect takes the peer's process; when it ends, FAILED comes */
};

typedef struct halay_transport_params {
    size_t size; /* of this struct */
    halay_peer_id_t self;
    uint8_t job[16];
    uint8_t secret[16];
    uint64_t deadline_ns; /* time limit for a connection */
    const char *options;  /* the transport's own, or NULL */
    halay_log_fn log;
    void *log_arg;
    void *arg; /* config->boot_arg: inproc finds the hub that the threads share in it */
    /* From the bootstrap: a listening socket on which the transport may accept while it is open,
     * and its address. family 0: there is none; the transport makes its own if it needs one. */
    int listen_fd;
    halay_address_t listen_address;
    int local_rank;   /* among the ranks of this node, which spread over equally near devices */
    int local_nranks; /* 0: not known */
    /* How long a link may be cut before its peer counts as failed. 0: the transport's default. */
    uint64_t link_timeout_ns;
} halay_transport_params_t;

typedef struct halay_transport_attr {
    size_t size; /* of this struct, set by the caller */
    uint32_t capabilities;
    size_t message_bytes; /* header + payload of one untagged send, at most; at least 1,024 */
    /* The eager limit: payloads up to this are best sent without a rendezvous; in several messages
     * if it exceeds message_bytes. */
    size_t eager_bytes;
    size_t piece_bytes; /* best payload of one piece of a staged transfer */

    halay_queues_t queues; /* HALAY_CAN_COUNT: as they are now; else untouched */
    char over[128];        /* text that names its network devices; untouched: none */
} halay_transport_attr_t;

enum halay_event_kind {
    HALAY_EVENT_MESSAGE = 1, /* an untagged send arrived: data, bytes, peer */
    HALAY_EVENT_SENT,        /* a send that was HALAY_INPROGRESS is complete: cookie */
    /* A put has ended, and the payload is the caller's again: cookie. Status 0: the bytes have
     * reached the peer's machine; only its IMMEDIATE says that they are visible there. Else the
     * bytes, and IMMEDIATE, may have arrived or not. */
    HALAY_EVENT_PUT,
    HALAY_EVENT_IMMEDIATE, /* a peer's put is complete and visible here: immediate, peer */
    HALAY_EVENT_LANDED,    /* a posted recv is complete: cookie, bytes */
    /* The peer died or cannot be reached: peer, status, text. HALAY_ENOMEM: this end has no memory
     * or descriptors for it. Comes once for each peer; sends under way to it still complete, before
     * or after. If the peer has closed, FAILED comes after all messages that it had sent, and after
     * SENT for all that it had received. No put of that peer changes memory here any more. */
    HALAY_EVENT_FAILED,
    /* A MESSAGE whose payload is in its sender's memory. The core reads it and calls give_back at
     * once, since the sender waits for that. It is the last event of its poll. data: the header;
     * bytes: of header and payload; payload, peer. */
    HALAY_EVENT_LENT
};

typedef struct halay_event {
    int kind;
    int status; /* 0, or why it failed (SENT, PUT, LANDED, FAILED: HALAY_ETIMEOUT, a cut link) */
    halay_peer_id_t peer;
    uint64_t cookie;
    uint32_t immediate;
    const void *data; /* MESSAGE, LENT: valid until the next poll; 8-byte aligned */
    size_t bytes;
    __extension__ union { /* C99 has no unnamed unions; compilers take this one there, too */
        const char *text; /* FAILED: evidence ("process 1234 ended"); valid until the next poll */
        const void *payload; /* LENT: the same */
    };
} halay_event_t;

typedef struct halay_mem_params {
    size_t size; /* of this struct */
    void *address;
    size_t bytes;
    uint32_t kind; /* HALAY_MEMORY_*: not the host's only with HALAY_CAN_DEVICE */
    /* For memory of a device: a dma-buf in which the memory begins at `offset`; the caller closes
     * it after the call. -1: there is none; nvidia_peermem may still let the adapter reach the
     * memory. */
    int dmabuf;
    uint64_t offset;
} halay_mem_params_t;

typedef struct halay_transport_ops {
    size_t size; /* of this struct */
    const char *name;

    /* Makes this process reachable. May block briefly (milliseconds). HALAY_ETRANSPORT, _ENOMEM. */
    int (*open)(const halay_transport_params_t *params, halay_transport_t **transport);

    /*
     * Closes all connections, and frees everything. Peers that are still connected see FAILED.
     * Messages that were accepted and not delivered yet may still be delivered (at most 1 s of
     * waiting). Takes NULL.
     */
    void (*close)(halay_transport_t *transport);

    int (*query)(const halay_transport_t *transport, halay_transport_attr_t *attr);

    /* This process's address, opaque, at most *bytes (in: room, out: used; 0 where none is needed).
     */
    int (*address)(const halay_transport_t *transport, void *address, size_t *bytes);

    /*
     * Starts to connect to `peer`; returns before that is done. Sends return HALAY_EAGAIN until
     * then. Tries a peer that does not accept yet again until params.deadline_ns; then FAILED
     * comes. A process that lives, and has not read anything yet, may be late for longer. address:
     * a halay_address_t, where the peer listens; bytes 0: the peer has to connect. HALAY_CAN_WATCH:
     * a halay_process_t, of this process's pid namespace; bytes 0: not known.
     */
    int (*connect)(halay_transport_t *transport, halay_peer_id_t peer, const void *address,
                   size_t bytes, halay_ep_t **ep);

    /* Ends the connection. Sends in flight on it complete with an error or are delivered. Takes
     * NULL. */
    void (*disconnect)(halay_transport_t *transport, halay_ep_t *ep);

    /*
     * Ends by force all transfers with this peer, in both directions, also if the peer does not
     * answer. The next polls complete them, whatever the peer does. SENT and PUT have an error, or
     * 0 if the bytes have left. LANDED has an error, or 0 if all bytes have come. After its event
     * no landing buffer is written any more. A landing buffer that no byte has reached stays
     * posted: it can be withdrawn. Messages of the peer that were not polled may be lost. The peer
     * counts as failed then: FAILED comes at both ends, unless it has come, and send returns
     * HALAY_EPEER. The caller still has to disconnect.
     */
    void (*sever)(halay_transport_t *transport, halay_ep_t *ep);

    /*
     * HALAY_CAN_PUT: peers may put into the memory until it is deregistered. A put whose payload
     * lies in registered memory may use that registration: then it lives until the PUT.
     * HALAY_ENOMEM: limits; the text says which.
     * Memory of a device: the processor never touches it. A put from there, of any size, lies whole
     * in one registration. HALAY_EUNSUPPORTED: not this memory; the log says why. Writes of peers
     * may be visible to the device later than their IMMEDIATE: device.h, flush.
     */
    int (*register_mem)(halay_transport_t *transport, const halay_mem_params_t *params,
                        halay_mem_t **mem);

    /*
     * HALAY_CAN_LEND: makes memory, whole pages, zeroed, that peers map and read. For a payload in
     * it send may return HALAY_INPROGRESS and copy nothing. The caller unmaps it (munmap) after
     * deregister_mem. HALAY_ENOMEM: limits; the text says which.
     */
    int (*alloc_mem)(halay_transport_t *transport, size_t bytes, void **address, halay_mem_t **mem);

    /*
     * Ends a registration of register_mem or alloc_mem. After it returns no put changes the memory
     * any more. A later put fails at the sender and may end the connection (FAILED at both ends):
     * withdraw a key by a handshake first. Incomplete sends from memory of alloc_mem end with an
     * error, and may or may not have arrived. No peer reads that memory any more.
     */
    void (*deregister_mem)(halay_transport_t *transport, halay_mem_t *mem);

    /* What a peer needs to put into it: opaque, at most *bytes <= 48 (in: room, out: used). */
    int (*key)(halay_transport_t *transport, const halay_mem_t *mem, void *key, size_t *bytes);

    /*
     * Sends header and payload as one message; either may be empty. tag 0: the peer polls MESSAGE.
     * tag > 0, below 2^63 (HALAY_CAN_LAND): the payload lands in the buffer that the peer posted
     * for that tag, header must be empty, and the peer has posted it already. HALAY_OK: the memory
     * is the caller's again and no event comes. HALAY_INPROGRESS: SENT with this cookie will come;
     * payload (not header) must stay until then. HALAY_EAGAIN: full. HALAY_EPEER: FAILED has come
     * or will.
     */
    int (*send)(halay_transport_t *transport, halay_ep_t *ep, uint64_t tag, const void *header,
                size_t header_bytes, const void *payload, size_t payload_bytes, uint64_t cookie);

    /* Posts a landing buffer for one message with this tag from any peer. LANDED comes once, with
     * this cookie. HALAY_EAGAIN: no resources now. */
    int (*recv)(halay_transport_t *transport, uint64_t tag, void *buffer, size_t bytes,
                uint64_t cookie);

    /* Takes the landing buffer of this tag back. HALAY_OK: no event comes. HALAY_INPROGRESS: the
     * bytes are landing, and LANDED will come. */
    int (*withdraw)(halay_transport_t *transport, uint64_t tag);

    /*
     * Writes payload to offset in the peer's memory with that key, then raises IMMEDIATE there,
     * never before the bytes are visible. HALAY_INPROGRESS: PUT with this cookie will come. bytes
     * may be 0. Any size: a transport whose hardware takes less at once splits it. HALAY_EAGAIN,
     * HALAY_EPEER as for send; HALAY_EINVAL: key or range.
     */
    int (*put)(halay_transport_t *transport, halay_ep_t *ep, const void *payload, size_t bytes,
               const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
               uint64_t cookie);

    /*
     * Up to max events, one at least. Returns how many, or an error. HALAY_ENOMEM: memory or
     * descriptors ran out; the transport goes on. HALAY_ESTATE: the program has closed a descriptor
     * of the transport. Pointers in events of an earlier poll become invalid, and lent payloads
     * count as given back.
     */
    int (*poll)(halay_transport_t *transport, halay_event_t events[], int max);

    /*
     * After a LENT event, before the next poll: gives the payload back to its sender. HALAY_EPEER:
     * the sender has withdrawn it meanwhile, so the bytes that were read are undefined.
     */
    int (*give_back)(halay_transport_t *transport);

    /*
     * Prepares to sleep: *fd becomes readable when poll would return something. HALAY_EAGAIN: poll
     * first, there is something already. The descriptor belongs to the transport and stays the
     * same.
     */
    int (*arm)(halay_transport_t *transport, int *fd);
} halay_transport_ops_t;

#ifdef __cplusplus
}
#endif
#endif
