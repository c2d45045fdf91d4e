/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.c - latency and bandwidth of a transport, through its contract alone. Two processes:
 *
 *     transport PLUGIN.so listen PORT [WAYS [SIZES]]          the first
 *     transport PLUGIN.so HOST PORT [WAYS [SIZES]]            the second
 *
 * Built with: cc -O2 -Iinclude -o transport bench/transport.c
 *
 * WAYS: letters of "esl"; SIZES: bytes, with commas. A message of so many bytes goes
 *   e  eager: header and payload at once
 *   s  staged: the receiver says that it is ready, pieces follow, and are copied to their place
 *   l  landed: the receiver posts a buffer and says so, then it comes in one piece
 * once to and fro (half of the time is printed), and once both ways at the same time (exchange).
 * The columns: way, bytes, median and minimum in microseconds of the one, median and minimum of the
 * other. Both processes spin, and yield where nothing comes for long.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <halay/transport.h>

enum { LARGEST = 64 << 20, TIMES_MAX = 2000, TAG = 77, IDLE = 200 /* polls before it yields */ };
enum { EAGER = 1, READY, PIECE };

struct header {
    uint64_t kind, offset;
    uint8_t like_the_cores[48];
};

struct end {
    const halay_transport_ops_t *ops;
    halay_transport_t *transport;
    halay_transport_attr_t attr;
    halay_ep_t *ep;
    int fd, rank; /* of the connection that the two agree over */
    char *in, *out;
    size_t eager, ready, landed, bytes, in_flight, idle;
};

static void fail(const char *what)
{
    fprintf(stderr, "transport: %s\n", what);
    exit(1);
}

static void on_log(void *arg, int level, const char *text)
{
    (void)arg;
    fprintf(stderr, "transport: log %d: %s\n", level, text);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* ------------------------------------------------------------------ messages */

static void step(struct end *end)
{
    halay_event_t events[16];
    int n = end->ops->poll(end->transport, events, 16);
    if (n < 0)
        fail("poll");
    end->idle = n ? 0 : end->idle + 1;
    if (end->idle > IDLE)
        sched_yield();
    for (int i = 0; i < n; i++) {
        const halay_event_t *e = &events[i];
        const struct header *h = e->data;
        switch (e->kind) {
        case HALAY_EVENT_MESSAGE:
            end->eager += h->kind == EAGER;
            end->ready += h->kind == READY;
            if (h->kind != READY) {
                memcpy(end->in + h->offset, h + 1, e->bytes - sizeof(*h));
                end->bytes += e->bytes - sizeof(*h);
            }
            break;
        case HALAY_EVENT_SENT:
            end->in_flight--;
            break;
        case HALAY_EVENT_LANDED:
            end->landed++;
            end->bytes += e->bytes;
            break;
        default:
            fail(e->text ? e->text : "an event that nobody expects");
        }
    }
}

static void post(struct end *end, uint64_t tag, uint64_t kind, size_t offset, size_t bytes)
{
    struct header h = {.kind = kind, .offset = offset};
    int rc;
    while ((rc = end->ops->send(end->transport, end->ep, tag, tag ? NULL : &h, tag ? 0 : sizeof(h),
                                end->out + offset, bytes, 0)) == HALAY_EAGAIN)
        step(end);
    if (rc < 0)
        fail("send");
    end->in_flight += rc == HALAY_INPROGRESS;
}

static void expect(struct end *end, char way, size_t bytes)
{
    if (way == 'l' && end->ops->recv(end->transport, TAG, end->in, bytes, 0))
        fail("recv");
    if (way != 'e')
        post(end, 0, READY, 0, 0);
}

static void deliver(struct end *end, char way, size_t bytes)
{
    while (way != 'e' && end->ready == 0)
        step(end);
    end->ready -= way != 'e';
    if (way == 'e')
        post(end, 0, EAGER, 0, bytes);
    else if (way == 'l')
        post(end, TAG, 0, 0, bytes);
    for (size_t at = 0, piece = end->attr.piece_bytes - sizeof(struct header);
         way == 's' && at < bytes; at += piece)
        post(end, 0, PIECE, at, bytes - at < piece ? bytes - at : piece);
}

static void receive(struct end *end, char way, size_t bytes)
{
    while (way == 'e' ? !end->eager : way == 'l' ? !end->landed : end->bytes < bytes)
        step(end);
    /* What is of the next round already stays counted. */
    end->eager -= way == 'e';
    end->landed -= way == 'l';
    end->bytes -= bytes;
}

static void drain(struct end *end)
{
    while (end->in_flight)
        step(end);
}

/* ------------------------------------------------------------------ rounds */

static double to_and_fro(struct end *end, char way, size_t bytes)
{
    double begun = now_us();
    for (int turn = 0; turn < 2; turn++) {
        if (turn == end->rank) {
            deliver(end, way, bytes);
            drain(end);
        } else {
            expect(end, way, bytes);
            receive(end, way, bytes);
        }
    }
    return (now_us() - begun) / 2;
}

static double exchange(struct end *end, char way, size_t bytes)
{
    double begun = now_us();
    expect(end, way, bytes);
    deliver(end, way, bytes);
    receive(end, way, bytes);
    drain(end);
    return now_us() - begun;
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct end *end, char way, size_t bytes)
{
    static double one[TIMES_MAX], both[TIMES_MAX];
    size_t times = LARGEST / 2 / (bytes + 1);
    times = times < 5 ? 5 : times > TIMES_MAX ? TIMES_MAX : times;
    if ((way == 'e' && bytes + sizeof(struct header) > end->attr.message_bytes) ||
        (way == 'l' && !(end->attr.capabilities & HALAY_CAN_LAND)))
        return;
    for (size_t i = 0; i < times + times / 10 + 1; i++)
        one[i % times] = to_and_fro(end, way, bytes);
    for (size_t i = 0; i < times + times / 10 + 1; i++)
        both[i % times] = exchange(end, way, bytes);
    qsort(one, times, sizeof(*one), rising);
    qsort(both, times, sizeof(*both), rising);
    if (end->rank == 0)
        printf("%c %9zu %10.2f %10.2f %10.2f %10.2f\n", way, bytes, one[times / 2], one[0],
               both[times / 2], both[0]);
    fflush(stdout);
}

/* ------------------------------------------------------------------ start */

static int meet(const char *host, const char *port)
{
    struct addrinfo *list, hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM};
    int one = 1, fd = -1, listens = strcmp(host, "listen") == 0;
    hints.ai_flags = listens ? AI_PASSIVE : 0;
    if (getaddrinfo(listens ? NULL : host, port, &hints, &list))
        fail("there is no such host or port");
    for (int i = 0; i < 500; i++, usleep(10000)) {
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        if (listens ? bind(fd, list->ai_addr, list->ai_addrlen) == 0 && listen(fd, 1) == 0
                    : connect(fd, list->ai_addr, list->ai_addrlen) == 0)
            break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    int peer = listens && fd >= 0 ? accept(fd, NULL, NULL) : fd;
    if (peer < 0)
        fail("the two cannot meet");
    if (listens)
        close(fd);
    return peer;
}

static void swap(int fd, const void *mine, void *its, size_t bytes)
{
    if (write(fd, mine, bytes) != (ssize_t)bytes ||
        recv(fd, its, bytes, MSG_WAITALL) != (ssize_t)bytes)
        fail("the other one is gone");
}

/* The transport listens where the two have met, as with a bootstrap. */
static void listen_here(int fd, halay_transport_params_t *params)
{
    struct sockaddr_in name;
    socklen_t bytes = sizeof(name);
    if (getsockname(fd, (struct sockaddr *)&name, &bytes))
        fail("getsockname");
    name.sin_port = 0;
    params->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (bind(params->listen_fd, (struct sockaddr *)&name, sizeof(name)) ||
        listen(params->listen_fd, 8) ||
        getsockname(params->listen_fd, (struct sockaddr *)&name, &bytes))
        fail("listen");
    params->listen_address.family = AF_INET;
    params->listen_address.port = name.sin_port;
    memcpy(params->listen_address.ip, &name.sin_addr, sizeof(name.sin_addr));
}

static void load(struct end *end, const char *path)
{
    char symbol[64], name[32] = "";
    const char *at = strstr(path, "halay-transport-");
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!plugin || !at || sscanf(at, "halay-transport-%31[a-z0-9]", name) != 1)
        fail(plugin ? "the plug-in is not called halay-transport-NAME.so" : dlerror());
    snprintf(symbol, sizeof(symbol), "halay_transport_v%d_%s", HALAY_TRANSPORT_ABI, name);
    end->ops = dlsym(plugin, symbol);
    if (!end->ops)
        fail(dlerror());
}

static void start(struct end *end, char **argv)
{
    uint8_t mine[256] = {0}, its[256] = {0};
    size_t bytes = sizeof(mine), its_bytes = 0;
    load(end, argv[1]);
    end->rank = strcmp(argv[2], "listen") != 0;
    end->fd = meet(argv[2], argv[3]);
    halay_transport_params_t params = {.size = sizeof(params),
                                       .self = {77, 1 + (uint64_t)end->rank},
                                       .secret = "for a benchmark",
                                       .deadline_ns = 20000000000,
                                       .log = on_log};
    listen_here(end->fd, &params);
    end->attr.size = sizeof(end->attr);
    end->in = malloc(LARGEST);
    end->out = malloc(LARGEST);
    if (!end->in || !end->out)
        fail("no memory");
    memset(end->in, 1, LARGEST);
    memset(end->out, 2, LARGEST);
    if (end->ops->open(&params, &end->transport) || end->ops->query(end->transport, &end->attr) ||
        end->ops->address(end->transport, mine, &bytes))
        fail("the transport cannot be opened");
    swap(end->fd, &bytes, &its_bytes, sizeof(bytes));
    swap(end->fd, mine, its, sizeof(mine));
    halay_peer_id_t other = {77, 2 - (uint64_t)end->rank};
    if (end->ops->connect(end->transport, other, its, its_bytes, &end->ep))
        fail("connect");
}

int main(int argc, char **argv)
{
    struct end end = {0};
    char sizes[256];
    if (argc < 4 || argc > 6) {
        fprintf(stderr, "usage: transport PLUGIN.so listen|HOST PORT [WAYS [SIZES]]\n");
        return 2;
    }
    snprintf(sizes, sizeof(sizes), "%s",
             argc > 5 ? argv[5] : "8,1024,8192,65472,262144,1048576,16777216");
    start(&end, argv);
    for (char *rest = sizes, *size; (size = strsep(&rest, ",")) != NULL;) {
        for (const char *way = argc > 4 ? argv[4] : "esl"; *way; way++) {
            if (strtoull(size, NULL, 0) > LARGEST)
                fail("larger than 64 MiB");
            measure(&end, *way, strtoull(size, NULL, 0));
        }
    }
    if (write(end.fd, "", 1) != 1)
        fail("the other one is gone");
    while (recv(end.fd, sizes, 1, MSG_DONTWAIT) < 0) /* until both are done */
        step(&end);
    end.ops->disconnect(end.transport, end.ep);
    end.ops->close(end.transport);
    return 0;
}
