/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claim.c - makes sure that on a node only one living process is a given rank of a given job.
 *
 * The environment that makes a process a rank is inherited by all its children. A child that joined
 * as its parent's rank would wait for ever in an exchange that the parent has already left, or
 * steal the parent's place in it. So a rank listens on an abstract socket named after its identity,
 * before it talks to anyone; a process that finds the name taken is not the rank. The kernel frees
 * the name when its holder dies.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../../common/keys.h"
#include "claim.h"

enum { NAMES_MAX = 8 };

void hly_boot_say(const struct hly_boot_log *log, int level, const char *format, ...)
{
    char text[768];
    va_list args;
    if (!log->fn)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    log->fn(log->arg, level, text);
}

int hly_boot_errno(const struct hly_boot_log *log, int error, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    hly_boot_say(log, 0, "%s: %s%s", text, strerror(error), hly_boot_remedy(error));
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC ? HALAY_ENOMEM
                                                                                    : HALAY_EBOOT;
}

const char *hly_boot_remedy(int error)
{
    switch (error) {
    case EMFILE:
        return "; raise the limit on open files (ulimit -n)";
    case ENFILE:
        return "; raise the machine's limit on open files (sysctl fs.file-max)";
    case ENOMEM:
        return "; free memory, or raise its limit (ulimit -v, or that of the cgroup)";
    default:
        return "";
    }
}

int hly_boot_number(const char *text, int max)
{
    long n = 0;
    for (const char *c = text; c && *c; c++) {
        if (*c < '0' || *c > '9' || c - text > 8)
            return -1;
        n = n * 10 + (*c - '0');
    }
    return text && *text && n <= max ? (int)n : -1;
}

bool hly_boot_split(const char *text, char host[HLY_BOOT_NAME], int *port)
{
    const char *colon = strrchr(text, ':');
    size_t bytes = colon ? (size_t)(colon - text) : 0;
    if (bytes > 2 && text[0] == '[' && colon[-1] == ']') {
        text++;
        bytes -= 2;
    } else if (colon && memchr(text, ':', bytes)) {
        return false;
    }
    if (!bytes || bytes >= HLY_BOOT_NAME)
        return false;
    memcpy(host, text, bytes);
    host[bytes] = '\0';
    *port = hly_boot_number(colon + 1, 65535);
    return *port > 0;
}

static void hash_with(const uint8_t key[32], const char *const strings[], int n, uint8_t hash[16])
{
    struct hly_piece pieces[NAMES_MAX];
    uint8_t mac[32];
    assert(n <= NAMES_MAX);
    for (int i = 0; i < n; i++)
        pieces[i] = (struct hly_piece){strings[i], strlen(strings[i]) + 1};
    hly_mac(key, pieces, n, mac);
    memcpy(hash, mac, 16);
}

void hly_boot_hash(const char *const strings[], int n, uint8_t hash[16])
{
    static const uint8_t none[32];
    hash_with(none, strings, n, hash);
}

bool hly_boot_secret_of(const char *secret, uint8_t key[32])
{
    struct hly_sha sha;
    hly_sha_init(&sha);
    hly_sha_add(&sha, "halay secret:", 13);
    hly_sha_add(&sha, secret ? secret : "", secret ? strlen(secret) : 0);
    hly_sha_end(&sha, key);
    return secret && *secret;
}

static int say_inherited(const struct hly_boot_log *log, const char *rank, const char *who)
{
    return hly_boot_error(log, HALAY_ESTATE,
                          "this process (pid %d) has the environment of rank %s, but %s is that "
                          "rank already: a program that a rank starts inherits the rank's "
                          "environment; to let it run alone, start it with HALAY_JOB=none",
                          (int)getpid(), rank, who);
}

static struct { /* the secret of the job, taken out of the environment */
    bool hidden;
    uint8_t key[32];
} own;

static bool is_hidden(const char *secret)
{
    return secret && !strcmp(secret, HLY_BOOT_HIDDEN);
}

bool hly_boot_secret(uint8_t key[32])
{
    const char *secret = getenv("HALAY_SECRET");
    if (is_hidden(secret) && own.hidden) {
        memcpy(key, own.key, sizeof own.key);
        return true;
    }
    return hly_boot_secret_of(is_hidden(secret) ? NULL : secret, key);
}

/* Overwrites the string itself, since core dumps and /proc show it. The kernel does the write,
 * since putenv() may have been given a string in read-only memory. */
void hly_boot_secret_hide(void)
{
    char none[PIPE_BUF] = HLY_BOOT_HIDDEN, *secret = getenv("HALAY_SECRET");
    const size_t bytes = secret && !is_hidden(secret) ? strlen(secret) : 0;
    uint8_t key[32];
    int ends[2];
    if (!bytes || bytes > sizeof none || pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return;
    hly_boot_secret(key);
    if (write(ends[1], none, bytes) == (ssize_t)bytes &&
        read(ends[0], secret, bytes) == (ssize_t)bytes) {
        memcpy(own.key, key, sizeof own.key);
        own.hidden = true;
    }
    explicit_bzero(key, sizeof key);
    close(ends[0]);
    close(ends[1]);
}

int hly_boot_secret_lacks(const struct hly_boot_log *log, const char *rank)
{
    if (own.hidden || !is_hidden(getenv("HALAY_SECRET")))
        return HALAY_OK;
    return say_inherited(log, rank, "the process that has started it");
}

void hly_boot_name(const char *const strings[], int n, uint8_t hash[16])
{
    uint8_t key[32];
    hly_boot_secret(key);
    hash_with(key, strings, n, hash);
}

/* Gives the process that listens on the name. pid 0: none, or unknown. */
static struct ucred holder(const struct sockaddr_un *name, size_t bytes)
{
    struct ucred cred = {0};
    socklen_t cred_bytes = sizeof cred;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int rc = connect(fd, (const struct sockaddr *)name, (socklen_t)bytes);
    if (rc && errno == EPROTOTYPE) { /* that of a node's meeting is SEQPACKET */
        close(fd);
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        rc = connect(fd, (const struct sockaddr *)name, (socklen_t)bytes);
    }
    if (rc || getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &cred_bytes))
        cred.pid = 0;
    if (fd >= 0)
        close(fd);
    return cred;
}

const char *hly_boot_holder(const struct sockaddr_un *name, size_t bytes, char who[HLY_BOOT_WHO])
{
    struct ucred cred = holder(name, bytes);
    static const char remedy[] =
        "with HALAY_SECRET set, the same on all ranks, nobody else can guess its names";
    if (cred.pid == 0)
        snprintf(who, HLY_BOOT_WHO, "a process of this node that does not listen; %s", remedy);
    else if (cred.uid != geteuid())
        snprintf(who, HLY_BOOT_WHO, "process %d of this node, which is user %u's; %s",
                 (int)cred.pid, (unsigned)cred.uid, remedy);
    else if (cred.pid == getpid())
        snprintf(who, HLY_BOOT_WHO, "another copy of this library in this process");
    else
        snprintf(who, HLY_BOOT_WHO, "process %d of this node", (int)cred.pid);
    return who;
}

/*
 * The name is taken. Only a listening process of this user can be the rank. Another user's process
 * must not be able to stop the job, so this rank goes on without a claim, and logs a warning.
 */
static int taken(const struct hly_boot_log *log, const char *rank, const struct sockaddr_un *name,
                 size_t bytes)
{
    static const struct timespec a_little = {0, 10000000}; /* the holder may be about to listen */
    struct ucred cred = holder(name, bytes);
    char who[HLY_BOOT_WHO];
    if (cred.pid == 0) {
        nanosleep(&a_little, NULL);
        cred = holder(name, bytes);
    }
    hly_boot_holder(name, bytes, who);
    if (cred.pid == 0 || cred.uid != geteuid()) {
        hly_boot_say(log, 1,
                     "the name of rank %s on this node is held by %s. It goes on; but a program "
                     "that it starts, and that calls Halay, may be taken for it",
                     rank, who);
        return HALAY_OK;
    }
    return say_inherited(log, rank, who);
}

socklen_t hly_boot_abstract(const char *kind, const uint8_t hash[16], int k,
                            struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    char *to = name->sun_path + 1; /* abstract: the first byte is 0 */
    const size_t room = sizeof name->sun_path - 1;
    int n = snprintf(to, room, "halay-%s-", kind);
    for (int i = 0; i < 16; i++)
        n += snprintf(to + n, room - (size_t)n, "%02x", hash[i]);
    if (k >= 0)
        n += snprintf(to + n, room - (size_t)n, "-%d", k);
    assert((size_t)n < room);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

static socklen_t claim_name(const char *const names[], int n, struct sockaddr_un *name)
{
    uint8_t hash[16];
    hly_boot_name(names, n, hash);
    return hly_boot_abstract("rank", hash, -1, name);
}

/* EAGAIN, a full queue, also means that a process listens. */
bool hly_boot_claimed(const char *const names[], int n)
{
    struct sockaddr_un name;
    const socklen_t bytes = claim_name(names, n, &name);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool is =
        fd >= 0 && (!connect(fd, (const struct sockaddr *)&name, bytes) || errno == EAGAIN);
    if (fd >= 0)
        close(fd);
    return is;
}

int hly_boot_claim(const struct hly_boot_log *log, const char *const names[], int n_names,
                   const char *rank, int *fd)
{
    struct sockaddr_un name;
    const socklen_t bytes = claim_name(names, n_names, &name);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s >= 0 && bind(s, (const struct sockaddr *)&name, bytes) == 0 && listen(s, 4) == 0) {
        *fd = s;
        return HALAY_OK;
    }
    int error = errno;
    if (s >= 0)
        close(s);
    *fd = -1;
    if (error == EADDRINUSE)
        return taken(log, rank, &name, bytes);
    return hly_boot_errno(log, error, "cannot claim rank %s on this node (abstract Unix socket)",
                          rank);
}
