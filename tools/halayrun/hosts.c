/* SPDX-License-Identifier: Apache-2.0 */
/* hosts.c - lists of hosts, as users, host files and LSF write them. */
#define _GNU_SOURCE
#include "hosts.h"

#include <arpa/inet.h>
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "note.h"

enum { SAID_BYTES = 63 };

/* A comma or a blank in a name would be read as something else by the launcher that gets it. */
static int is_name(const char *text, size_t bytes)
{
    static const char others[] = "._-";
    if (!bytes || bytes >= HLY_HOST_BYTES || !isalnum((unsigned char)*text))
        return 0;
    for (size_t i = 0; i < bytes; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr(others, text[i]))
            return 0;
    return 1;
}

static int is_slots(const char *text, size_t bytes, int *slots)
{
    char *end;
    errno = 0;
    long n = bytes && isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (n < 1 || n > HLY_RANKS_HANDED_MAX || errno || end != text + bytes)
        return 0;
    *slots = (int)n;
    return 1;
}

/* NULL: no memory, or too many, said. */
static struct hly_host *append(struct hly_hosts *hosts, const char *name, size_t bytes, int slots)
{
    if (hosts->n == HLY_HOSTS_MAX) {
        hly_note("more than %d hosts", HLY_HOSTS_MAX);
        return NULL;
    }
    if (!(hosts->n & (hosts->n - 1))) { /* full at each power of two */
        size_t room = hosts->n ? 2 * (size_t)hosts->n : 1;
        struct hly_host *grown = realloc(hosts->list, room * sizeof *grown);
        if (!grown) {
            hly_note("no memory for the list of hosts");
            return NULL;
        }
        hosts->list = grown;
    }
    struct hly_host *host = &hosts->list[hosts->n++];
    assert(bytes < sizeof host->name);
    memcpy(host->name, name, bytes);
    host->name[bytes] = '\0';
    host->slots = slots;
    host->ranks = 0;
    return host;
}

void hly_hosts_destroy(struct hly_hosts *hosts)
{
    free(hosts->list);
    *hosts = (struct hly_hosts){0};
}

/* An IPv6 address. Its colons would be those before slots: with slots it is in brackets. */
static int is_ipv6(const char *text, size_t bytes)
{
    char address[INET6_ADDRSTRLEN] = "";
    struct in6_addr any;
    if (bytes >= sizeof address)
        return 0;
    memcpy(address, text, bytes);
    return inet_pton(AF_INET6, address, &any) == 1;
}

/* "name", "name:slots", "[::1]", "[::1]:slots" or "::1". NULL, or what is wrong with it. */
const char *hly_host_read(struct hly_host *host, const char *text, size_t bytes)
{
    const char *end = text + bytes, *name = text, *over = end;
    if (*text == '[') {
        name++;
        over = memchr(text, ']', bytes);
        if (!over || !is_ipv6(name, (size_t)(over - name)))
            return "is no IPv6 address in brackets";
    } else if (!is_ipv6(text, bytes)) {
        over = memchr(text, ':', bytes);
        over = over ? over : end;
        if (!is_name(text, (size_t)(over - text)))
            return "is no host name";
    }
    const char *slots = over < end && *over == ']' ? over + 1 : over;
    if (slots < end &&
        (*slots != ':' || !is_slots(slots + 1, (size_t)(end - slots - 1), &host->slots)))
        return "does not say how many slots after the ':'";
    snprintf(host->name, sizeof host->name, "%.*s", (int)(over - name), name);
    return NULL;
}

int hly_hosts_add(struct hly_hosts *hosts, const struct hly_host *host)
{
    return append(hosts, host->name, strlen(host->name), host->slots) ? 0 : HLY_EXIT_SELF;
}

int hly_hosts_parse(struct hly_hosts *hosts, const char *text)
{
    for (const char *at = text; at; at = strchr(at, ',')) {
        at += at != text;
        size_t bytes = strcspn(at, ",");
        struct hly_host host = {.slots = 1};
        const char *wrong = hly_host_read(&host, at, bytes);
        if (wrong) {
            hly_note("-H %.*s: '%.*s' %s; it takes host[:slots],...", 4 * SAID_BYTES, text,
                     bytes < SAID_BYTES ? (int)bytes : SAID_BYTES, at, wrong);
            return HLY_EXIT_USAGE;
        }
        if (hly_hosts_add(hosts, &host))
            return HLY_EXIT_SELF;
    }
    return 0;
}

/* One line of a host file, without its comment. 0 or the status to exit with. */
static int read_line(struct hly_hosts *hosts, const char *path, int number, char *line)
{
    static const char blanks[] = " \t\r\n";
    char *rest = NULL, *word = strtok_r(line, blanks, &rest);
    const char *wrong = NULL;
    struct hly_host host = {.slots = 1};
    int ignored = 0;
    if (!word)
        return 0;
    const char *first = word;
    wrong = hly_host_read(&host, word, strlen(word));
    while (!wrong && (word = strtok_r(NULL, blanks, &rest))) {
        size_t bytes = strlen(word);
        if (!strncmp(word, "slots=", 6))
            wrong =
                is_slots(word + 6, bytes - 6, &host.slots) ? NULL : "does not say how many slots";
        else if (!strncmp(word, "max_slots=", 10) || !strncmp(word, "max-slots=", 10))
            wrong = is_slots(word + 10, bytes - 10, &ignored) ? NULL : "does not say how many";
        else
            wrong = "is not understood";
        if (wrong)
            first = word;
    }
    if (wrong) {
        hly_note("%s:%d: '%.*s' %s; a line is a host and slots=N", path, number, SAID_BYTES, first,
                 wrong);
        return HLY_EXIT_USAGE;
    }
    return hly_hosts_add(hosts, &host);
}

int hly_hosts_read(struct hly_hosts *hosts, const char *path)
{
    static const char mark[] = "\xef\xbb\xbf"; /* of UTF-8, as editors on Windows write it */
    char *line = NULL;
    size_t room = 0;
    int status = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        hly_note("cannot read the host file '%s': %s", path, strerror(errno));
        return HLY_EXIT_USAGE;
    }
    errno = 0;
    for (int number = 1; !status && getline(&line, &room, file) >= 0; number++) {
        char *text = line + (number == 1 && !strncmp(line, mark, 3) ? 3 : 0);
        text[strcspn(text, "#")] = '\0';
        status = read_line(hosts, path, number, text);
    }
    if (!status && ferror(file)) {
        hly_note("cannot read the host file '%s': %s", path, strerror(errno));
        status = HLY_EXIT_USAGE;
    } else if (!status && !hosts->n) {
        hly_note("the host file '%s' names no host", path);
        status = HLY_EXIT_USAGE;
    }
    free(line);
    fclose(file);
    return status;
}

/* ------------------------------------------------------------------ LSF */

/* A host of LSF's, which may have been named before. 0 or the status to exit with. */
static int add_slots(struct hly_hosts *hosts, const char *name, int slots)
{
    for (int i = hosts->n - 1; i >= 0; i--) {
        if (!strcmp(hosts->list[i].name, name)) {
            if (hosts->list[i].slots > HLY_RANKS_HANDED_MAX - slots)
                return HLY_EXIT_USAGE;
            hosts->list[i].slots += slots;
            return 0;
        }
    }
    if (!is_name(name, strlen(name)))
        return HLY_EXIT_USAGE;
    return append(hosts, name, strlen(name), slots) ? 0 : HLY_EXIT_SELF;
}

/* LSB_DJOB_RANKFILE: a host for each slot, one a line. */
static int read_slots(struct hly_hosts *hosts, FILE *file)
{
    char name[HLY_HOST_BYTES];
    int status = 0;
    while (!status && fscanf(file, "%255s", name) == 1)
        status = add_slots(hosts, name, 1);
    return status;
}

/* LSB_MCPU_HOSTS: "host slots host slots ...". */
static int parse_slots(struct hly_hosts *hosts, const char *text)
{
    char name[HLY_HOST_BYTES], slots[16];
    int bytes, n, status = 0;
    for (; !status && sscanf(text, "%255s %15s%n", name, slots, &bytes) == 2; text += bytes)
        status = is_slots(slots, strlen(slots), &n) ? add_slots(hosts, name, n) : HLY_EXIT_USAGE;
    return status || text[strspn(text, " \n")] ? HLY_EXIT_USAGE : 0;
}

static void drop_launch_node(struct hly_hosts *hosts)
{
    if (hosts->n < 2 || hosts->list[0].slots != 1)
        return;
    for (int i = 1; i < hosts->n; i++)
        if (hosts->list[i].slots < 2)
            return;
    memmove(hosts->list, hosts->list + 1, (size_t)--hosts->n * sizeof *hosts->list);
}

int hly_hosts_from_lsf(struct hly_hosts *hosts)
{
    const char *path = getenv("LSB_DJOB_RANKFILE"), *text = getenv("LSB_MCPU_HOSTS");
    const char *source = "LSB_MCPU_HOSTS";
    FILE *file = path ? fopen(path, "re") : NULL;
    int status = 0;
    if (file) {
        source = "LSB_DJOB_RANKFILE";
        status = read_slots(hosts, file);
        fclose(file);
    } else if (text) {
        status = parse_slots(hosts, text);
    } else if (path) {
        hly_note("cannot read LSB_DJOB_RANKFILE (%s): %s", path, strerror(errno));
        return HLY_EXIT_USAGE;
    }
    if (status) {
        hly_note("%s of this LSF job is not understood; name the hosts with -H or --hostfile",
                 source);
        return status;
    }
    drop_launch_node(hosts);
    return 0;
}

/* ------------------------------------------------------------------ questions */

int hly_hosts_slots(const struct hly_hosts *hosts)
{
    long slots = 0;
    for (int i = 0; i < hosts->n; i++)
        slots += hosts->list[i].slots;
    return slots < HLY_RANKS_HANDED_MAX ? (int)slots : HLY_RANKS_HANDED_MAX;
}

/* The same name, as far as agents say theirs, or one of them is the other's without the domain. */
int hly_host_same(const char *a, const char *b)
{
    size_t bytes = strcspn(a, ".");
    if (!strncasecmp(a, b, SAID_BYTES))
        return 1;
    return bytes == strcspn(b, ".") && !strncasecmp(a, b, bytes) && (!a[bytes] || !b[bytes]);
}

int hly_host_here(const char *name)
{
    char self[HLY_HOST_BYTES] = "";
    if (gethostname(self, sizeof self - 1))
        self[0] = '\0';
    return !strcasecmp(name, "localhost") || !strncmp(name, "127.", 4) || !strcmp(name, "::1") ||
           (*self && hly_host_same(name, self));
}

int hly_hosts_here(const struct hly_hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++)
        if (!hly_host_here(hosts->list[i].name))
            return 0;
    return 1;
}

void hly_hosts_fill(struct hly_hosts *hosts, int nranks)
{
    for (int i = 0; i < hosts->n; i++) {
        struct hly_host *host = &hosts->list[i];
        host->ranks = nranks < host->slots ? nranks : host->slots;
        nranks -= host->ranks;
    }
    assert(nranks == 0);
}

void hly_hosts_deal(struct hly_hosts *hosts, int nranks)
{
    assert(nranks <= hly_hosts_slots(hosts));
    while (nranks) { /* ends: each round places a rank, as there are slots for all */
        for (int i = 0; i < hosts->n && nranks; i++) {
            int more = hosts->list[i].ranks < hosts->list[i].slots;
            hosts->list[i].ranks += more;
            nranks -= more;
        }
    }
}

int hly_hosts_used(const struct hly_hosts *hosts)
{
    int used = 0;
    for (int i = 0; i < hosts->n; i++)
        used += hosts->list[i].ranks > 0;
    return used;
}
