/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tables.c - the tables that a program gives in halay_config_t: each is as long as its contract
 * says, and no member that is called is NULL. So a wrong one is reported before anything is called.
 */
#include <halay/boot.h>
#include <halay/device.h>
#include <halay/group.h>
#include <halay/transport.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "start/start.h"

struct member {
    size_t at;
    const char *name;
};

struct contract {
    const char *what, *header; /* "device": config.device, device.h */
    int abi;
    const struct member *members; /* those that are called, in their order */
    size_t n;
};

#define DEVICE(name)                                                                               \
    {                                                                                              \
        offsetof(halay_device_ops_t, name), #name                                                  \
    }
#define TRANSPORT(name)                                                                            \
    {                                                                                              \
        offsetof(halay_transport_ops_t, name), #name                                               \
    }
#define GROUP(name)                                                                                \
    {                                                                                              \
        offsetof(halay_group_ops_t, name), #name                                                   \
    }
#define BOOT(name)                                                                                 \
    {                                                                                              \
        offsetof(halay_boot_ops_t, name), #name                                                    \
    }

static const struct member device[] = {
    DEVICE(name),   DEVICE(open),      DEVICE(query),     DEVICE(alloc),      DEVICE(free),
    DEVICE(launch), DEVICE(bind),      DEVICE(poll),      DEVICE(arm),        DEVICE(stop),
    DEVICE(follow), DEVICE(why),       DEVICE(close),     DEVICE(export_mem), DEVICE(flush),
    DEVICE(gate),   DEVICE(gate_open), DEVICE(gate_word), DEVICE(launch_list)};
static const struct member transport[] = {
    TRANSPORT(name),       TRANSPORT(open),           TRANSPORT(close),
    TRANSPORT(query),      TRANSPORT(address),        TRANSPORT(connect),
    TRANSPORT(disconnect), TRANSPORT(sever),          TRANSPORT(register_mem),
    TRANSPORT(alloc_mem),  TRANSPORT(deregister_mem), TRANSPORT(key),
    TRANSPORT(send),       TRANSPORT(recv),           TRANSPORT(withdraw),
    TRANSPORT(put),        TRANSPORT(poll),           TRANSPORT(give_back),
    TRANSPORT(arm)};
static const struct member group[] = {GROUP(about),  GROUP(query), GROUP(invite), GROUP(open),
                                      GROUP(launch), GROUP(poll),  GROUP(abort),  GROUP(close)};
static const struct member boot[] = {BOOT(name), BOOT(open), BOOT(get), BOOT(close)};

#define CONTRACT(what, abi)                                                                        \
    {                                                                                              \
#what, #what ".h", abi, what, sizeof(what) / sizeof(what[0])                               \
    }
static const struct contract contracts[] = {
    CONTRACT(boot, HALAY_BOOT_ABI), CONTRACT(transport, HALAY_TRANSPORT_ABI),
    CONTRACT(device, HALAY_DEVICE_ABI), CONTRACT(group, HALAY_GROUP_ABI)};

/* The bits of a pointer that is NULL are all 0 on the machines that there are. */
static bool is_null(const void *table, size_t at)
{
    uintptr_t value;
    memcpy(&value, (const char *)table + at, sizeof(value));
    return !value;
}

static int check(const struct contract *contract, const void *table, char *why, size_t why_bytes)
{
    size_t size = 0; /* the first member of each */
    memcpy(&size, table, sizeof(size));
    for (size_t i = 0; i < contract->n; i++) {
        const struct member *m = &contract->members[i];
        if (m->at + sizeof(void *) > size)
            snprintf(why, why_bytes,
                     "the table config.%s is %zu bytes long, and has no member '%s': its size is "
                     "not set, or it is of an older ABI than %d; build it with this %s",
                     contract->what, size, m->name, contract->abi, contract->header);
        else if (is_null(table, m->at))
            snprintf(why, why_bytes,
                     "the table config.%s has NULL as its member '%s': %s says what that has to do",
                     contract->what, m->name, contract->header);
        else
            continue;
        return HALAY_EINVAL;
    }
    return HALAY_OK;
}

int hly_tables_check(const halay_config_t *config, char *why, size_t why_bytes)
{
    const void *const tables[] = {config->boot, config->transport, config->device, config->group};
    int rc = HALAY_OK;
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]) && !rc; i++)
        if (tables[i])
            rc = check(&contracts[i], tables[i], why, why_bytes);
    return rc;
}
