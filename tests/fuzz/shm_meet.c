/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ranks of a node say over shared memory's sockets, with descriptors: hellos that bring a ring
 * or a region, answers to this rank's own; from a peer that knows the secret, and from strangers.
 * Memory is real: a ring of this process, a region, one that can shrink, and one that is too small.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "fuzz.h"
#include "transports/shm/shm.h"

static ssize_t hear(int fd, struct msghdr *message, int flags);
static int make(halay_transport_t *t, const hly_shm_ring_t *ring, hly_shm_peer_t *peer,
                hly_shm_in_t **in);
#define recvmsg         hear
#define hly_shm_in_make make
#include "transports/shm/meet.c" /* NOLINT(bugprone-suspicious-include) */
#undef hly_shm_in_make

enum { GUESTS = 3, RING = HLY_SHM_RING_MIN, REGION = 8192, FILES = 5 };

static struct fuzz *input;
static int files[FILES]; /* a ring, a region, one that shrinks, a short one, no memory */
static halay_transport_t *self;
static int nothing_left; /* no allocation succeeds */

/* ---------------------------------------------------------------- the socket */

static void hello_make(hly_shm_hello_t *hello)
{
    const uint8_t what = fuzz_byte(input);
    hly_shm_hello_fill(self, 1 + what % 3, self->self, hello);
    hello->from.lo = 2 + (what >> 2 & 3);
    hello->ring_bytes = (what & 3) == 2 ? REGION : RING;
    hello->slot = what >> 4 & 3;
    hello->generation = what >> 6;
    if ((what & 15) == 15)
        fuzz_take(input, hello, sizeof(*hello));
    else if ((what & 12) == 12)
        fuzz_take(input, &hello->ring_bytes, 16); /* slot and generation, too */
}

/* Descriptors as the kernel gives them: copies, as many as there is room for. */
static void fds_give(struct msghdr *message, uint8_t how)
{
    const size_t room = (message->msg_controllen - CMSG_LEN(0)) / sizeof(int);
    size_t n = (how & 7) == 7 ? how >> 4 : how & 7;
    int all[8];
    struct cmsghdr *head = message->msg_control;
    message->msg_flags = n > room ? MSG_CTRUNC : 0;
    n = n > room ? room : n;
    for (size_t i = 0; i < n; i++) {
        all[i] = fcntl(files[i == 2 ? (how >> 3) % FILES : i % FILES], F_DUPFD_CLOEXEC, 0);
        FUZZ_WANT(all[i] >= 0);
    }
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(n * sizeof(int));
    memcpy(CMSG_DATA(head), all, n * sizeof(int));
    message->msg_controllen = n ? CMSG_SPACE(n * sizeof(int)) : 0;
}

static ssize_t hear(int fd, struct msghdr *message, int flags)
{
    hly_shm_hello_t hello;
    (void)flags;
    FUZZ_WANT(fd == FUZZ_FD && message->msg_iov->iov_len == sizeof(hello));
    memset(message->msg_control, 0, message->msg_controllen);
    const uint8_t what = fuzz_byte(input);
    if (what < 16 || !input->left) {
        errno = what & 1 ? ECONNRESET : EAGAIN;
        message->msg_controllen = 0;
        return what & 2 ? 0 : -1;
    }
    hello_make(&hello);
    memcpy(message->msg_iov->iov_base, &hello, sizeof(hello));
    fds_give(message, what < 200 ? 3 | fuzz_byte(input) << 3 : fuzz_byte(input));
    return what == 16 ? fuzz_byte(input) % (ssize_t)sizeof(hello) : (ssize_t)sizeof(hello);
}

static int make(halay_transport_t *t, const hly_shm_ring_t *ring, hly_shm_peer_t *peer,
                hly_shm_in_t **in)
{
    return nothing_left ? -ENOMEM : hly_shm_in_make(t, ring, peer, in);
}

/* ---------------------------------------------------------------- this rank */

static void files_make(void)
{
    const char *why;
    hly_shm_ring_t ring;
    FUZZ_WANT(!hly_shm_ring_create(RING, &ring, &files[0], &why));
    hly_shm_ring_unmap(&ring);
    FUZZ_WANT(!hly_shm_memory_create("region", REGION, &files[1], &why));
    files[2] = memfd_create("shrinks", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    FUZZ_WANT(files[2] >= 0 && !ftruncate(files[2], 2 * RING));
    FUZZ_WANT(!hly_shm_memory_create("short", 4096, &files[3], &why));
    files[4] = open("/dev/null", O_RDONLY | O_CLOEXEC);
    FUZZ_WANT(files[4] >= 0);
}

static void nowhere(void *arg, int level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

/* A way that has said hello, as way.c's call() leaves it. */
static void way_make(uint8_t to)
{
    halay_ep_t *ep = calloc(1, sizeof(*ep));
    FUZZ_WANT(ep);
    ep->watch = WATCH_WAY;
    ep->state = WAY_GREETED;
    ep->socket = FUZZ_FD;
    ep->ring_fd = -1;
    FUZZ_WANT(!hly_shm_peer_hold(self, (halay_peer_id_t){.lo = 2 + (to & 3)}, &ep->peer));
    ep->next = self->ways;
    self->ways = ep;
    self->unsettled++;
}

static void turn(uint8_t what)
{
    halay_ep_t *ep = self->ways;
    hly_shm_guest_t *guest = &self->guests[what % GUESTS];
    nothing_left = (what & 0x60) == 0x60;
    if (what >= 0xe0 && ep->state == WAY_GREETED) {
        hly_shm_way_answer(self, ep, 1);
    } else if (what >= 0xc0 && self->nins) {
        hly_shm_maps_look(self->ins[0]);
        atomic_store(&self->ins[0]->ring.shared->offered[what & 3], what >> 2 & 3);
    } else if (guest->fd < 0) {
        guest->fd = FUZZ_FD;
        guest->lacks = 0;
        self->nguests++;
        hly_shm_guest_look(self, guest);
    } else if (what & 0x10) {
        hly_shm_guest_look(self, guest);
    } else {
        hly_shm_guest_drop(self, guest);
    }
}

static void end(void)
{
    nothing_left = 0;
    while (self->ways)
        hly_shm_way_free(self, self->ways);
    while (self->nins)
        hly_shm_in_remove(self, self->nins - 1);
    while (self->peers)
        hly_shm_peer_free(self, self->peers);
    hly_shm_guests_close(self);
    free(self->ins);
    free(self);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    if (!files[0])
        files_make();
    const int first = fuzz_free_fd();
    input = &f;
    self = calloc(1, sizeof(*self));
    FUZZ_WANT(self);
    self->self.lo = 1;
    self->epoll_fd = FUZZ_FD; /* none: nothing is watched */
    self->process_fd = self->wake_fd = files[4];
    self->log = nowhere;
    for (int i = 0; i < HLY_SHM_GUESTS; i++)
        self->guests[i].fd = -1;
    way_make(fuzz_byte(&f));
    for (int i = 0; i < 32 && f.left; i++)
        turn(fuzz_byte(&f));
    end();
    FUZZ_WANT(fuzz_free_fd() == first);
    return 0;
}
