/* SPDX-License-Identifier: Apache-2.0 */
/* servers.c - finds the plug-ins of the servers that ranks ask, and speaks to each of them. */
#define _GNU_SOURCE
#include "servers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "note.h"
#include "spawn.h"

static const char *named_folder(void)
{
    const char *named = getenv("HALAY_PLUGIN_DIR");
    return named && *named ? named : NULL;
}

static const char *remedy(void)
{
    if (named_folder())
        return "is HALAY_PLUGIN_DIR right?";
    return access("/proc/self/exe", F_OK) ? "is /proc mounted?" : "is the installation complete?";
}

/* NULL, and why. */
static const halay_launch_ops_t *load(const char *name, char why[512])
{
    const char *named = named_folder();
    char self[HLY_PATH_BYTES], path[3][HLY_PATH_BYTES + 64], symbol[64];
    ssize_t bytes = readlink("/proc/self/exe", self, sizeof self - 1);
    self[bytes > 0 ? bytes : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        *slash = '\0';
    snprintf(path[0], sizeof path[0], "%s/halay-launch-%s.so", named ? named : "", name);
    snprintf(path[1], sizeof path[1], "%s/../lib/halay/halay-launch-%s.so", self, name);
    snprintf(path[2], sizeof path[2], "%s/../" HALAY_LIBDIR "/halay/halay-launch-%s.so", self,
             name);
    snprintf(symbol, sizeof symbol, "halay_launch_v3_%s", name);
    why[0] = '\0';
    for (int i = named ? 0 : 1; i < (named ? 1 : 3); i++) {
        void *plugin = dlopen(path[i], RTLD_NOW | RTLD_LOCAL);
        const halay_launch_ops_t *ops = plugin ? dlsym(plugin, symbol) : NULL;
        if (ops && ops->size >= sizeof *ops)
            return ops;
        const char *error = dlerror();
        if (!why[0] || access(path[i], F_OK) == 0)
            snprintf(why, 512, "%s", error ? error : "it is of another version of Halay");
    }
    return NULL;
}

int hly_servers_start(struct hly_servers *servers, const halay_launch_params_t *params, int verbose)
{
    const char *const names[HLY_SERVERS] = {params->head ? "agent" : "meet", "pmix"};
    char why[512];
    /* MPI knows no job whose ranks change, and none of several launchers. */
    const int one = params->least || params->head || params->port;
    for (int i = 0; i < (one ? 1 : HLY_SERVERS); i++) {
        struct hly_server *s = &servers->all[i];
        s->ops = load(names[i], why);
        if (s->ops && s->ops->start(params, &s->server))
            s->ops = NULL;
        else if (!s->ops && i == 0)
            hly_note("no plug-in for the ranks to meet at: %s (%s)", why, remedy());
        else if (!s->ops && verbose)
            hly_note("no PMIx server for programs that need one: %s", why);
    }
    return !servers->all[0].ops;
}

int hly_servers_event(const struct hly_servers *servers, halay_launch_event_t *event)
{
    event->size = sizeof *event;
    return servers->all[0].ops->event(servers->all[0].server, event);
}

void hly_servers_command(const struct hly_servers *servers, enum halay_launch_what what, int rank,
                         int value)
{
    const halay_launch_event_t command = {
        .size = sizeof command, .what = what, .rank = rank, .value = value};
    servers->all[0].ops->command(servers->all[0].server, &command);
}

const char *hly_servers_address(const struct hly_servers *servers)
{
    return servers->all[0].ops->address(servers->all[0].server);
}

void hly_servers_settle(const struct hly_servers *servers, int nranks)
{
    servers->all[0].ops->settle(servers->all[0].server, nranks);
}

int hly_servers_env(const struct hly_servers *servers, int rank, char ***env)
{
    int rc = 0;
    for (int i = 0; i < HLY_SERVERS && !rc; i++)
        if (servers->all[i].ops)
            rc = servers->all[i].ops->env(servers->all[i].server, rank, env);
    return rc;
}

void hly_servers_started(const struct hly_servers *servers, int rank, pid_t pid)
{
    for (int i = 0; i < HLY_SERVERS; i++)
        if (servers->all[i].ops && servers->all[i].ops->started)
            servers->all[i].ops->started(servers->all[i].server, rank, pid);
}

void hly_servers_ended(const struct hly_servers *servers, int rank, int status, int state,
                       const char *why)
{
    for (int i = 0; i < HLY_SERVERS; i++)
        if (servers->all[i].ops && servers->all[i].ops->ended)
            servers->all[i].ops->ended(servers->all[i].server, rank, status, state, why);
}

int hly_servers_connected(const struct hly_servers *servers, int rank)
{
    for (int i = 0; i < HLY_SERVERS; i++)
        if (servers->all[i].ops && servers->all[i].ops->state &&
            servers->all[i].ops->state(servers->all[i].server, rank) == HALAY_LAUNCH_CONNECTED)
            return 1;
    return 0;
}

void hly_servers_poll(const struct hly_servers *servers, struct pollfd *fds)
{
    for (int i = 0; i < HLY_SERVERS; i++) {
        const struct hly_server *s = &servers->all[i];
        fds[i] =
            (struct pollfd){.fd = s->ops ? s->ops->descriptor(s->server) : -1, .events = POLLIN};
    }
}

int hly_servers_progress(const struct hly_servers *servers)
{
    int next = -1;
    for (int i = 0; i < HLY_SERVERS; i++) {
        const struct hly_server *s = &servers->all[i];
        const int ms = s->ops && s->ops->progress ? s->ops->progress(s->server) : -1;
        if (ms >= 0 && (next < 0 || ms < next))
            next = ms;
    }
    return next;
}

uint64_t hly_servers_epoch(const struct hly_servers *servers)
{
    return servers->all[0].ops->epoch(servers->all[0].server);
}

int hly_servers_condemned(const struct hly_servers *servers, int *slot)
{
    return servers->all[0].ops->condemned(servers->all[0].server, slot);
}

int hly_servers_aborted(const struct hly_servers *servers, halay_launch_abort_t *abort)
{
    for (int i = 0; i < HLY_SERVERS; i++)
        if (servers->all[i].ops && servers->all[i].ops->aborted &&
            servers->all[i].ops->aborted(servers->all[i].server, abort))
            return 1;
    return 0;
}

void hly_servers_stop(struct hly_servers *servers)
{
    for (int i = HLY_SERVERS - 1; i >= 0; i--) {
        if (servers->all[i].ops)
            servers->all[i].ops->stop(servers->all[i].server);
        servers->all[i].ops = NULL;
    }
}
