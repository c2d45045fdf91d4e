/* SPDX-License-Identifier: Apache-2.0 */
/* visit.c - a guest of a meeting: reads the greeting, sends the hello, reads the answer
 * (meet.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "meet.h"

bool hly_boot_wait(int fd, short events, uint64_t until_ns)
{
    struct pollfd p = {.fd = fd, .events = events};
    for (int ms; (ms = hly_boot_ms(until_ns));) {
        const int n = poll(&p, 1, ms);
        if (n > 0 || (n < 0 && errno != EINTR))
            return n > 0;
    }
    return false;
}

/* Reads all the bytes. False: errno is 0 (end of the stream), ETIMEDOUT, or that of recv(). */
static bool take(int fd, void *to, size_t bytes, uint64_t until_ns)
{
    size_t got = 0;
    while (got < bytes) {
        ssize_t n = recv(fd, (char *)to + got, bytes - got, 0);
        if (n > 0) {
            got += (size_t)n;
        } else if (n == 0) {
            errno = 0;
            return false;
        } else if (errno == EAGAIN) {
            if (!hly_boot_wait(fd, POLLIN, until_ns)) {
                errno = ETIMEDOUT;
                return false;
            }
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

bool hly_boot_visit_greeted(const struct hly_boot_key *key, int fd, uint64_t until_ns,
                            struct hly_boot_greeting *greeting, const char **why)
{
    memset(greeting, 0, sizeof *greeting);
    const bool whole = take(fd, greeting, sizeof *greeting, until_ns);
    *why = greeting->magic == HLY_BOOT_MAGIC ? "the rendezvous of another job answers there"
           : greeting->magic || whole        ? "something that is not Halay answers there"
           : errno == ETIMEDOUT              ? "what listens there says nothing"
                                             : "somebody who hangs up answers there";
    return greeting->magic == HLY_BOOT_MAGIC && whole &&
           !memcmp(greeting->key, key->job, sizeof greeting->key);
}

static int say_hello(const struct hly_boot_visit *visit, int fd,
                     const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello)
{
    uint64_t now = hly_boot_now_ns();
    hello->left_ns = now < visit->end_ns ? visit->end_ns - now : 0;
    memcpy(hello->key, visit->key->job, sizeof hello->key);
    int rc = hly_boot_random(visit->log, hello->challenge, sizeof hello->challenge);
    if (rc)
        return rc;
    hly_boot_hello_mac(visit->key, greeting, hello, hello->mac);
    /* The send buffer is empty, so it takes the hello at once. recv() will report errors of the
     * connection. */
    (void)!send(fd, hello, sizeof *hello, MSG_NOSIGNAL);
    return HALAY_OK;
}

/* Is the answer valid: a text, or a table that is not too large, and the rank that the guest asked
 * for? */
static bool answer_fits(const struct hly_boot_visit *visit, const struct hly_boot_answer *a,
                        const struct hly_boot_hello *hello)
{
    const bool given = hello->rank != HLY_BOOT_NOBODY;
    if (a->magic != HLY_BOOT_MAGIC)
        return false;
    if (!a->joined)
        return a->bytes <= HLY_BOOT_TEXT_BYTES;
    if (a->joined == HLY_BOOT_LISTED)
        return visit->wait_ns && !a->bytes;
    return a->nranks >= 1 && a->nranks <= HLY_BOOT_RANKS_MAX && a->rank < a->nranks &&
           (!given || (a->rank == hello->rank && a->nranks == hello->nranks)) &&
           a->bytes <= a->nranks * HLY_BOOT_RANK_BYTES;
}

/* Reads the answer and its payload, and checks that the sender knows the secret. */
static int take_answer(const struct hly_boot_visit *visit, int fd,
                       const struct hly_boot_greeting *greeting, const struct hly_boot_hello *hello,
                       struct hly_boot_answer *answer, char **payload)
{
    struct hly_sha sha;
    uint8_t digest[32], mac[32];
    bool whole = take(fd, answer, sizeof *answer, visit->wait_ns ? visit->wait_ns : visit->end_ns);
    const bool gave_up = visit->wait_ns && !whole && errno == ETIMEDOUT;
    if (gave_up && !shutdown(fd, SHUT_RD)) /* bytes that have come can still be read */
        whole = take(fd, answer, sizeof *answer, 0);
    if (visit->heard)
        *visit->heard = gave_up ? HLY_BOOT_GAVE_UP : HLY_BOOT_HEARD;
    if (visit->heard && !whole && !answer->magic && (gave_up || !errno || errno == ECONNRESET)) {
        *visit->heard = gave_up ? HLY_BOOT_GAVE_UP : HLY_BOOT_HUNG_UP;
        return HALAY_EBOOT;
    }
    if (whole && !answer_fits(visit, answer, hello)) {
        whole = false;
        errno = EPROTO;
    }
    if (whole) {
        *payload = calloc(1, (size_t)answer->bytes + 1);
        if (!*payload)
            return hly_boot_error(visit->log, HALAY_ENOMEM,
                                  "%s is out of memory for the table of ranks", visit->guest);
        whole = take(fd, *payload, answer->bytes, visit->end_ns);
    }
    if (!whole)
        return hly_boot_error(visit->log, HALAY_EBOOT,
                              "%s said hello to %s, but got no answer (%s): see what that one "
                              "says; it may have died, be stopped, or have waited for other ranks",
                              visit->guest, visit->holder,
                              errno ? strerror(errno) : "the connection was ended");
    hly_sha_init(&sha);
    hly_sha_add(&sha, *payload, answer->bytes);
    hly_sha_end(&sha, digest);
    hly_boot_answer_mac(visit->key, greeting, hello, answer, digest, mac);
    if (hly_mac_equal(mac, answer->mac))
        return HALAY_OK;
    return hly_boot_error(visit->log, HALAY_EBOOT,
                          "%s and %s do not have the same secret: HALAY_SECRET is %s here and %s "
                          "there; give all ranks the same, or none",
                          visit->guest, visit->holder, visit->key->has_secret ? "set" : "not set",
                          !greeting->has_secret    ? "not set"
                          : visit->key->has_secret ? "another"
                                                   : "set");
}

int hly_boot_visit_ask(const struct hly_boot_visit *visit, int fd,
                       const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                       struct hly_boot_answer *answer, char **payload)
{
    *payload = NULL;
    *answer = (struct hly_boot_answer){0};
    if (greeting->version != HLY_BOOT_VERSION) {
        say_hello(visit, fd, greeting, hello); /* so that the holder can log the other version */
        return hly_boot_error(visit->log, HALAY_EBOOT,
                              "%s speaks version %u of the rendezvous, %s version %d: run the same "
                              "version of Halay on all nodes",
                              visit->holder, greeting->version, visit->guest, HLY_BOOT_VERSION);
    }
    int rc = say_hello(visit, fd, greeting, hello);
    if (!rc)
        rc = take_answer(visit, fd, greeting, hello, answer, payload);
    if (!rc && !answer->joined && !(visit->wait_ns && answer->said & HLY_BOOT_APART)) {
        hly_boot_say(visit->log, answer->said ? HALAY_LOG_TOLD : 0, "%s refuses: %.600s",
                     visit->holder, *payload);
        rc = answer->said & HLY_BOOT_OVER ? HALAY_EOVER : HALAY_EBOOT;
    }
    if (rc) {
        free(*payload);
        *payload = NULL;
    }
    return rc;
}

int hly_boot_visit(const struct hly_boot_visit *visit, int fd,
                   const struct hly_boot_greeting *greeting, struct hly_boot_hello *hello,
                   struct hly_boot_identity *id)
{
    struct hly_boot_answer answer;
    char *payload;
    int rc = hly_boot_visit_ask(visit, fd, greeting, hello, &answer, &payload);
    if (rc)
        return rc;
    rc = hly_boot_table_read(visit->key, &answer, payload, id);
    if (rc)
        hly_boot_say(visit->log, 0, "the table of nodes from %s cannot be taken: %s", visit->holder,
                     rc == HALAY_ENOMEM ? "out of memory" : "it is not consistent");
    free(payload);
    return rc;
}
