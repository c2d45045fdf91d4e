/* SPDX-License-Identifier: Apache-2.0 */
/* agent_options.c - the options of agents and their heads, and their secret. */
#define _GNU_SOURCE
#include "agent_options.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "hosts.h"
#include "note.h"
#include "spawn.h"

enum { SECRET_BYTES = 4096 };

void hly_agent_default(struct hly_options *options)
{
    options->agents = -1;
}

/* "7000", "10.0.0.1:7000", "[fd00::1]:7000" */
static int set_listen(struct hly_options *options, char *text)
{
    char *colon = strrchr(text, ':'), *address = text;
    const char *port = colon ? colon + 1 : text;
    struct in6_addr any;
    if (colon == text || !isdigit((unsigned char)*port) ||
        !hly_options_number(port, 0, 65535, &options->port)) {
        hly_note("--listen takes [IP:]PORT, with a port up to 65535, not '%s'", text);
        return HLY_EXIT_USAGE;
    }
    if (!colon)
        return -1;
    *colon = '\0';
    if (*address == '[' && colon[-1] == ']') {
        colon[-1] = '\0';
        address++;
    }
    if (inet_pton(AF_INET, address, &any) != 1 && inet_pton(AF_INET6, address, &any) != 1) {
        hly_note("--listen: '%.80s' is no IP address; without one it is all of this machine",
                 address);
        return HLY_EXIT_USAGE;
    }
    options->listen = address;
    return -1;
}

int hly_agent_take(struct hly_options *options, int option)
{
    switch (option) {
    case HLY_AGENT_COUNT:
        if (isdigit((unsigned char)*optarg) &&
            hly_options_number(optarg, 0, HLY_RANKS_MAX, &options->agents))
            return -1;
        hly_note("--agents must be a whole number from 0 to %d, not '%s'", HLY_RANKS_MAX, optarg);
        return HLY_EXIT_USAGE;
    case HLY_AGENT_LISTEN:
        return set_listen(options, optarg);
    case HLY_AGENT_SECRET:
        options->secret_file = optarg;
        return -1;
    case HLY_AGENT_START:
        options->start_agent = optarg;
        return -1;
    case HLY_AGENT_HEAD:
        options->agent = optarg;
        return -1;
    default:
        options->agent_name = optarg;
        return -1;
    }
}

static int is_host(const char *name)
{
    struct hly_host host;
    return !strchr(name, ':') && !hly_host_read(&host, name, strlen(name));
}

static int check_agent(const struct hly_options *o)
{
    const char *other = o->agents >= 0                            ? "--agents"
                        : o->start_agent                          ? "--start-agent"
                        : o->listen || o->port                    ? "--listen"
                        : o->least                                ? "--min-np"
                        : o->slots                                ? "--max-np"
                        : o->discovery                            ? "--host-discovery-script"
                        : o->reset_limit >= 0                     ? "--reset-limit"
                        : o->elastic_timeout_s                    ? "--elastic-timeout"
                        : o->cool_ms[0] >= 0                      ? "--blacklist-cooldown-range"
                        : o->dry_run                              ? "--dry-run"
                        : o->keep_going                           ? "--keep-going"
                        : o->hosts || o->host_file                ? "-H"
                        : o->launcher && o->launcher != HLY_LOCAL ? "--launcher"
                                                                  : NULL;
    if (other)
        return hly_options_refuse(
            other, "is not for an agent, which does what its head says: leave it out");
    if (!o->nranks || o->nranks > HLY_RANKS_MAX)
        return hly_options_refuse("--agent", "brings 1 to 1024 places: give -np K");
    if (o->agent_name && !is_host(o->agent_name))
        return hly_options_refuse("--agent-name",
                                  "is a host's name: letters, digits, and . _ - in it");
    return -1;
}

int hly_agent_check(struct hly_options *o)
{
    const int changes = o->least || o->slots || o->discovery;
    if (o->agent)
        return check_agent(o);
    if (o->agent_name)
        return hly_options_refuse("--agent-name", "is for --agent");
    if (o->start_agent && o->agents < 0)
        o->agents = 0;
    if (o->agents < 0)
        return o->listen || o->port
                   ? hly_options_refuse("--listen", "is for a job with agents: give --agents")
               : o->secret_file
                   ? hly_options_refuse("--secret-file", "is for --agents and --agent: here "
                                                         "HALAY_SECRET is enough, or nothing")
                   : -1;
    if (o->start_agent && !o->discovery)
        return hly_options_refuse("--start-agent", "is for the hosts of --host-discovery-script");
    if (!o->agents && !changes)
        return hly_options_refuse("--agents 0", "is for a job whose ranks change: give --min-np");
    if (o->dry_run)
        return hly_options_refuse("--dry-run",
                                  "prints what another launcher would run, and agents need none");
    if (o->hosts || o->host_file || (o->launcher && o->launcher != HLY_LOCAL))
        return hly_options_refuse("--agents",
                                  "brings the nodes that -H, --hostfile and --launcher would name: "
                                  "give one of them");
    if (o->command[0] && !o->nranks)
        return hly_options_refuse("--agents",
                                  "leaves the program to the agents: give -np L for L processes of "
                                  "it here, or no program");
    return -1;
}

/* Bytes in `secret`, without the newline after them; -1, said. */
static ssize_t read_secret(const char *path, char secret[SECRET_BYTES + 1])
{
    struct stat is = {0};
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    const int other = fd >= 0 && !fstat(fd, &is) &&
                      (!S_ISREG(is.st_mode) || is.st_uid != geteuid() || is.st_mode & 077);
    ssize_t n = -1;
    if (other)
        hly_note(
            "--secret-file: '%s' has mode %04o and user %u: it must be a file of your own that "
            "others cannot read: chmod 600 '%s'",
            path, (unsigned)is.st_mode & 07777, (unsigned)is.st_uid, path);
    else if (fd < 0 || (n = read(fd, secret, SECRET_BYTES)) < 0)
        hly_note("--secret-file: cannot read '%s': %s", path, strerror(errno));
    if (fd >= 0)
        close(fd);
    while (n > 0 && (secret[n - 1] == '\n' || secret[n - 1] == '\r'))
        n--;
    if (n == 0 || n == SECRET_BYTES || (n > 0 && memchr(secret, '\0', (size_t)n))) {
        hly_note("--secret-file: '%s' has no secret of 1 to %d bytes of text", path,
                 SECRET_BYTES - 1);
        n = -1;
    }
    if (n >= 0)
        secret[n] = '\0';
    return n;
}

int hly_agent_secret(const struct hly_options *options)
{
    char secret[SECRET_BYTES + 1];
    int status = -1;
    if (options->agents < 0 && !options->agent)
        return -1;
    if (!options->secret_file && hly_own_secret())
        return -1;
    if (!options->secret_file) {
        hly_note(
            "a job with agents needs a secret, the same for its head and all of them: export "
            "HALAY_SECRET=$(openssl rand -hex 16), or write it to a file of mode 0600 and give "
            "--secret-file FILE");
        return HLY_EXIT_USAGE;
    }
    if (read_secret(options->secret_file, secret) < 0)
        status = HLY_EXIT_USAGE;
    else if (setenv("HALAY_SECRET", secret, 1))
        status = HLY_EXIT_SELF;
    explicit_bzero(secret, sizeof secret);
    return status;
}
