/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The core's messages, as peers send them: any kind, for calls under way, over and to come, with
 * headers that are right but for what the input changes, and payloads of its own. Rank 0 of four
 * over a transport and with a clock of this file. At the end all peers are dead: then every call
 * has ended.
 */
#include <poll.h>
#include <time.h>

#include "exec/exec.h"
#include "fuzz.h"
#include "run/run.h"
#include "wire/endpoint.h"
#include "wire/match.h"

enum { RANKS = 4, COUNT = 4096, SENT_MAX = 64, CALLS = 3 };

struct halay_transport { /* what a context's only transport has */
    uint32_t capabilities;
    halay_event_t next[SENT_MAX];
    int nnext;
    char *held;         /* of the last event */
    uint64_t announced; /* cookie of the last READY that left */
};

struct halay_ep {
    halay_peer_id_t id;
};

struct halay_mem {
    int nothing;
};

static halay_transport_t *wire;
static uint64_t now_ns;

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    now_ns += 100000;
    *ts = (struct timespec){(time_t)(now_ns / 1000000000u), (long)(now_ns % 1000000000u)};
    return 0;
}

int __wrap_ppoll(struct pollfd *fds, nfds_t n, const struct timespec *ts, const void *mask)
{
    (void)fds, (void)n, (void)mask;
    now_ns += (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec;
    return 0;
}

/* No driver of GPUs is looked for. */
void *__wrap_dlopen(const char *name, int flags)
{
    (void)name, (void)flags;
    return NULL;
}

/* A flight record is no file, and always the same memory: to make one takes longer than most
 * inputs. */
static _Alignas(4096) char record[HALAY_RECORD_BYTES];

void *__real_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t bytes, int prot, int flags, int fd, off_t offset)
{
    return bytes == sizeof(record) && fd == -1 ? record
                                               : __real_mmap(at, bytes, prot, flags, fd, offset);
}

int __real_munmap(void *at, size_t bytes);
int __wrap_munmap(void *at, size_t bytes)
{
    return at == record ? 0 : __real_munmap(at, bytes);
}

int __wrap_memfd_create(const char *name, unsigned flags)
{
    (void)name, (void)flags;
    return -1;
}

int __wrap_dladdr(const void *at, void *where)
{
    (void)at, (void)where;
    return 0;
}

/* ---------------------------------------------------------------- a transport */

static void give(halay_event_t event)
{
    if (wire->nnext < SENT_MAX)
        wire->next[wire->nnext++] = event;
}

static int wire_open(const halay_transport_params_t *params, halay_transport_t **t)
{
    (void)params;
    *t = wire;
    return HALAY_OK;
}

static void wire_close(halay_transport_t *t)
{
    free(t->held);
    t->held = NULL;
}

static int wire_query(const halay_transport_t *t, halay_transport_attr_t *attr)
{
    attr->capabilities = t->capabilities;
    attr->message_bytes = 2048;
    attr->eager_bytes = attr->piece_bytes = 1024;
    return HALAY_OK;
}

static int wire_connect(halay_transport_t *t, halay_peer_id_t peer, const void *address,
                        size_t bytes, halay_ep_t **ep)
{
    (void)t, (void)address, (void)bytes;
    *ep = malloc(sizeof(**ep));
    FUZZ_WANT(*ep);
    (*ep)->id = peer;
    return HALAY_OK;
}

static void wire_disconnect(halay_transport_t *t, halay_ep_t *ep)
{
    (void)t;
    free(ep);
}

static void wire_sever(halay_transport_t *t, halay_ep_t *ep)
{
    (void)t, (void)ep;
}

static int wire_address(const halay_transport_t *t, void *address, size_t *bytes)
{
    (void)t, (void)address;
    *bytes = 0;
    return HALAY_OK;
}

static int wire_alloc(halay_transport_t *t, size_t bytes, void **address, halay_mem_t **mem)
{
    (void)t, (void)bytes, (void)address, (void)mem;
    return HALAY_EUNSUPPORTED;
}

static int wire_register(halay_transport_t *t, const halay_mem_params_t *params, halay_mem_t **mem)
{
    (void)t, (void)params;
    *mem = malloc(sizeof(**mem));
    return *mem ? HALAY_OK : HALAY_ENOMEM;
}

static void wire_deregister(halay_transport_t *t, halay_mem_t *mem)
{
    (void)t;
    free(mem);
}

static int wire_key(halay_transport_t *t, const halay_mem_t *mem, void *key, size_t *bytes)
{
    (void)t, (void)mem;
    memset(key, 1, 8);
    *bytes = 8;
    return HALAY_OK;
}

static int wire_send(halay_transport_t *t, halay_ep_t *ep, uint64_t tag, const void *header,
                     size_t header_bytes, const void *payload, size_t bytes, uint64_t cookie)
{
    struct hly_header h;
    (void)ep, (void)payload, (void)bytes, (void)cookie;
    if (tag >> 63 || (tag && !(t->capabilities & HALAY_CAN_LAND)))
        return HALAY_EUNSUPPORTED;
    if (header_bytes == sizeof(h)) {
        memcpy(&h, header, sizeof(h));
        t->announced = h.kind == HLY_READY ? h.cookie : t->announced;
    }
    return HALAY_OK;
}

static int wire_recv(halay_transport_t *t, uint64_t tag, void *buffer, size_t bytes,
                     uint64_t cookie)
{
    (void)t, (void)tag, (void)buffer, (void)bytes, (void)cookie;
    return HALAY_OK;
}

static int wire_withdraw(halay_transport_t *t, uint64_t tag)
{
    (void)t, (void)tag;
    return HALAY_OK;
}

static int wire_put(halay_transport_t *t, halay_ep_t *ep, const void *payload, size_t bytes,
                    const void *key, size_t key_bytes, uint64_t offset, uint32_t immediate,
                    uint64_t cookie)
{
    (void)payload, (void)bytes, (void)key, (void)key_bytes, (void)offset, (void)immediate;
    if (!(t->capabilities & HALAY_CAN_PUT) || wire->nnext == SENT_MAX)
        return HALAY_EUNSUPPORTED;
    give((halay_event_t){.kind = HALAY_EVENT_PUT, .peer = ep->id, .cookie = cookie});
    return HALAY_INPROGRESS;
}

static int wire_poll(halay_transport_t *t, halay_event_t events[], int max)
{
    (void)max;
    free(t->held);
    t->held = NULL;
    if (!t->nnext)
        return 0;
    events[0] = t->next[0];
    memmove(t->next, t->next + 1, (size_t)--t->nnext * sizeof(t->next[0]));
    if (events[0].kind == HALAY_EVENT_MESSAGE)
        t->held = (char *)(uintptr_t)events[0].data;
    return 1;
}

static int wire_give_back(halay_transport_t *t)
{
    (void)t;
    return HALAY_OK;
}

static int wire_arm(halay_transport_t *t, int *fd)
{
    *fd = 0;
    return t->nnext ? HALAY_EAGAIN : HALAY_OK;
}

static const halay_transport_ops_t wire_ops = {.size = sizeof(wire_ops),
                                               .name = "fuzz",
                                               .open = wire_open,
                                               .close = wire_close,
                                               .query = wire_query,
                                               .address = wire_address,
                                               .connect = wire_connect,
                                               .disconnect = wire_disconnect,
                                               .sever = wire_sever,
                                               .register_mem = wire_register,
                                               .alloc_mem = wire_alloc,
                                               .deregister_mem = wire_deregister,
                                               .key = wire_key,
                                               .send = wire_send,
                                               .recv = wire_recv,
                                               .withdraw = wire_withdraw,
                                               .put = wire_put,
                                               .poll = wire_poll,
                                               .give_back = wire_give_back,
                                               .arm = wire_arm};

/* ---------------------------------------------------------------- a bootstrap */

static int boot_open(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                     halay_boot_info_t *info, halay_boot_t **boot)
{
    (void)arg, (void)log, (void)log_arg, (void)deadline_ns;
    info->nranks = info->local_nranks = RANKS;
    info->nnodes = 1;
    info->epoch = 1;
    *boot = (halay_boot_t *)info;
    return HALAY_OK;
}

static int boot_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot;
    if (rank < 0 || rank >= RANKS)
        return HALAY_EINVAL;
    *place = (halay_place_t){.size = sizeof(*place), .host = "host"};
    return HALAY_OK;
}

static void boot_close(halay_boot_t *boot)
{
    (void)boot;
}

static const halay_boot_ops_t boot_ops = {.size = sizeof(boot_ops),
                                          .name = "fuzz",
                                          .open = boot_open,
                                          .get = boot_get,
                                          .close = boot_close};

/* ---------------------------------------------------------------- what comes */

static size_t payload_bytes(struct fuzz *f)
{
    static const size_t sizes[] = {0,
                                   sizeof(struct hly_ready),
                                   sizeof(struct hly_verdict_wire),
                                   sizeof(struct hly_invitation),
                                   sizeof(struct hly_hello),
                                   64,
                                   1024};
    const uint8_t code = fuzz_byte(f);
    return code < 7 ? sizes[code] : code;
}

static void change(struct fuzz *f, struct hly_header *h)
{
    const uint8_t what = fuzz_byte(f);
    if (what & 1)
        h->signature ^= fuzz_word(f);
    if (what & 2)
        h->comm ^= fuzz_byte(f);
    if (what & 4)
        h->offset = fuzz_word(f);
    if (what & 8)
        h->cookie = (uint64_t)fuzz_word(f) << (what & 0x10 ? 32 : 0);
    if (what & 0x20)
        fuzz_take(f, &h->call, sizeof(h->call));
    if (what & 0x40)
        h->from = fuzz_word(f);
    if (what & 0x80)
        h->sequence = fuzz_word(f);
}

static void message(struct fuzz *f, halay_context_t *ctx, const halay_comm_t *world)
{
    const uint8_t kind = fuzz_byte(f), from = fuzz_byte(f), edge = fuzz_byte(f);
    const size_t bytes = payload_bytes(f);
    const uint32_t sequence = world->oldest + (from >> 2 & 3);
    const halay_request_t *r = world->slots[sequence % HLY_SLOTS].request;
    struct hly_header h;
    hly_header_fill(&h, world, (enum hly_kind)(kind & 15), sequence, edge & 31,
                    r ? &r->call : NULL);
    h.from = from & 3;
    h.segment = edge >> 5;
    h.cookie = h.kind == HLY_EAGER ? bytes : wire->announced;
    change(f, &h);
    char *all = malloc(sizeof(h) + bytes);
    FUZZ_WANT(all);
    memcpy(all, &h, sizeof(h));
    memset(all + sizeof(h), 3, bytes);
    fuzz_take(f, all + sizeof(h), bytes < 1024 ? bytes : 8);
    give((halay_event_t){.kind = HALAY_EVENT_MESSAGE,
                         .peer = hly_peer_id(ctx, from >> 4 ? from >> 4 & 3 : from & 3),
                         .data = all,
                         .bytes = kind & 0x80 ? bytes : sizeof(h) + bytes});
    if (wire->nnext == SENT_MAX)
        abort(); /* it would be lost */
}

static void event(struct fuzz *f, halay_context_t *ctx, const halay_comm_t *world)
{
    const uint8_t what = fuzz_byte(f);
    if (wire->nnext + 2 >= SENT_MAX)
        return;
    if (what < 0xe0)
        message(f, ctx, world);
    else if (what < 0xf0)
        give((halay_event_t){.kind = HALAY_EVENT_IMMEDIATE,
                             .peer = hly_peer_id(ctx, 1 + what % 3),
                             .immediate = what & 8 ? fuzz_word(f) : (uint32_t)wire->announced});
    else if (what < 0xf8)
        give((halay_event_t){.kind = HALAY_EVENT_LANDED,
                             .cookie = wire->announced,
                             .bytes = what & 1 ? fuzz_word(f) : COUNT});
    else if (what < 0xfb)
        give((halay_event_t){.kind = HALAY_EVENT_FAILED,
                             .status = HALAY_EPEER,
                             .peer = hly_peer_id(ctx, 1 + what % 3),
                             .text = "gone"});
    else
        now_ns += 1000000000;
}

/* ---------------------------------------------------------------- calls */

static int post(uint8_t what, halay_comm_t *world, halay_request_t **request)
{
    static int32_t in[COUNT], out[COUNT * RANKS];
    static const size_t counts[RANKS] = {3, 700, 0, 5}, displs[RANKS] = {0, 8, 900, 1000};
    const size_t count = what & 0x10 ? COUNT : 8;
    switch (what & 3) {
    case 0:
        return halay_iallreduce(in, out, count, HALAY_INT32, HALAY_SUM, world, request);
    case 1:
        return halay_ibroadcast(out, count, HALAY_INT32, what >> 2 & 3, world, request);
    case 2:
        return halay_ialltoallv(in, counts, displs, out, counts, displs, HALAY_INT32, world,
                                request);
    default:
        return halay_iallgather(in, out, count, HALAY_INT32, world, request);
    }
}

static void look(halay_context_t *ctx, halay_request_t *requests[CALLS])
{
    hly_lock(ctx);
    hly_progress(ctx);
    hly_unlock(ctx);
    for (int i = 0; i < CALLS; i++)
        if (requests[i] && halay_request_test(requests[i]) != HALAY_INPROGRESS)
            requests[i] = NULL;
}

static void die(halay_context_t *ctx)
{
    for (int r = 1; r < RANKS; r++)
        give((halay_event_t){.kind = HALAY_EVENT_FAILED,
                             .status = HALAY_EPEER,
                             .peer = hly_peer_id(ctx, r),
                             .text = "gone"});
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    halay_transport_t own = {.capabilities = fuzz_byte(&f) & (HALAY_CAN_PUT | HALAY_CAN_LAND)};
    halay_config_t config = HALAY_CONFIG_INIT;
    halay_context_t *ctx;
    halay_comm_t *world;
    halay_request_t *requests[CALLS] = {NULL};
    setenv("HALAY_DEBUG", "error", 1);
    wire = &own;
    now_ns = 1000000000;
    config.boot = &boot_ops;
    config.transport = &wire_ops;
    config.deadline_ns = 2000000000;
    FUZZ_WANT(!halay_init(&config, &ctx) && !halay_comm_world(ctx, &world));
    const uint8_t calls = fuzz_byte(&f) % (CALLS + 1);
    for (int i = 0; i < calls; i++)
        if (post(fuzz_byte(&f), world, &requests[i]))
            requests[i] = NULL;
    while (f.left) {
        event(&f, ctx, world);
        look(ctx, requests);
    }
    die(ctx);
    for (int i = 0; i < 100000 && (requests[0] || requests[1] || requests[2]); i++) {
        now_ns += 100000; /* the clock ends what it has to */
        look(ctx, requests);
    }
    FUZZ_WANT(!requests[0] && !requests[1] && !requests[2]);
    halay_finalize(ctx);
    while (own.nnext > 0) /* what nobody polled */
        if (own.next[--own.nnext].kind == HALAY_EVENT_MESSAGE)
            free((void *)(uintptr_t)own.next[own.nnext].data);
    return 0;
}
