/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - UCX's own settings, and addresses. What the user has set in UCX_* stays.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucs/debug/debug.h>

#include "ucx.h"

/* ------------------------------------------------------------------ UCX */

/*
 * UCX takes over the signals of crashes when it is loaded, before anybody can set anything. They
 * are given back, unless the user has asked for it, or somebody else has taken them since.
 */
void hly_ucx_signals_restore(void)
{
    static const int signals[] = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
    Dl_info ucs, handler;
    if (getenv("UCX_HANDLE_ERRORS") || getenv("UCX_ERROR_SIGNALS"))
        return;
    if (!dladdr((void *)(uintptr_t)ucs_debug_disable_signal, &ucs))
        return;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        struct sigaction action;
        if (sigaction(signals[i], NULL, &action) == 0 && action.sa_handler != SIG_DFL &&
            action.sa_handler != SIG_IGN &&
            dladdr((void *)(uintptr_t)action.sa_handler, &handler) &&
            handler.dli_fbase == ucs.dli_fbase)
            ucs_debug_disable_signal(signals[i]);
    }
}

ucs_status_t hly_ucx_settings_read(ucp_config_t **config)
{
    static const char *const settings[][2] = {
        {"HANDLE_ERRORS", "none"},
        {"TCP_RX_SEG_SIZE", "256K"}, /* 64K, the default: 16 MiB take three times as long */
        {"LOG_LEVEL", "fatal"},      /* errors come back as a status, and are told once, by us */
    };
    ucs_status_t status = ucp_config_read(NULL, NULL, config);
    for (size_t i = 0; status == UCS_OK && i < sizeof(settings) / sizeof(settings[0]); i++) {
        char name[64];
        snprintf(name, sizeof(name), "UCX_%s", settings[i][0]);
        if (!getenv(name))
            ucp_config_modify(*config, settings[i][0], settings[i][1]); /* a wish */
    }
    return status;
}

/* ------------------------------------------------------------------ addresses */

/* 0: no address. */
socklen_t hly_ucx_where_socket(const halay_address_t *where, struct sockaddr_storage *address)
{
    memset(address, 0, sizeof(*address));
    if (where->family == AF_INET) {
        struct sockaddr_in *four = (struct sockaddr_in *)address;
        four->sin_family = AF_INET;
        four->sin_port = where->port;
        memcpy(&four->sin_addr, where->ip, sizeof(four->sin_addr));
        return sizeof(*four);
    }
    if (where->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
        six->sin6_family = AF_INET6;
        six->sin6_port = where->port;
        memcpy(&six->sin6_addr, where->ip, sizeof(six->sin6_addr));
        return sizeof(*six);
    }
    return 0;
}

int hly_ucx_where_from(const struct sockaddr_storage *address, halay_address_t *where)
{
    memset(where, 0, sizeof(*where));
    if (address->ss_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)address;
        where->port = four->sin_port;
        memcpy(where->ip, &four->sin_addr, sizeof(four->sin_addr));
    } else if (address->ss_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)address;
        where->port = six->sin6_port;
        memcpy(where->ip, &six->sin6_addr, sizeof(six->sin6_addr));
    } else {
        return -EAFNOSUPPORT;
    }
    where->family = (uint8_t)address->ss_family;
    return 0;
}

void hly_ucx_where_name(const halay_address_t *where, char name[HLY_UCX_NAME])
{
    char ip[INET6_ADDRSTRLEN] = "an unknown address";
    if (where->family == AF_INET || where->family == AF_INET6)
        inet_ntop(where->family, where->ip, ip, sizeof(ip));
    snprintf(name, HLY_UCX_NAME, where->family == AF_INET6 ? "[%s]:%u" : "%s:%u", ip,
             (unsigned)ntohs(where->port));
}
