/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - the few things that can be set: by the program in halay_config_t, else by a
 * variable.
 */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/autotune.h"
#include "../../common/job.h"
#include "../../common/settings.h"
#include "select/between.h"
#include "start/start.h"

#define DEADLINE_DEFAULT_NS 1800000000000ull /* a healthy rank may compute for long */
#define START_DEFAULT_NS    300000000000ull  /* Python and its modules, from a busy file system */
#define DEADLINE_MAX_S      1e9
#define TIMEOUT_DEFAULT_NS  30000000000ull /* of a stopped rank, and of a link that is cut */
#define NOTICE_DEFAULT_NS   1000000000ull
#define NOTICE_MAX_S        1e6
#define FUSION_MAX          (UINT64_C(1) << 40) /* as src/training/shell/greet.c has it */

/* *ns stays as it is where the variable is not set. */
static int read_seconds(const char *variable, uint64_t *ns, char *error, size_t error_bytes)
{
    const char *text = getenv(variable);
    if (!text || !*text)
        return HALAY_OK;
    char *end;
    double seconds = strtod(text, &end);
    if (*end || !(seconds > 0) || seconds > DEADLINE_MAX_S) {
        snprintf(error, error_bytes, "%s is '%s'; it takes seconds, more than 0", variable, text);
        return HALAY_EINVAL;
    }
    *ns = (uint64_t)(seconds * 1e9);
    return HALAY_OK;
}

static int read_deadlines(struct hly_settings *s, const halay_config_t *config, char *error,
                          size_t error_bytes)
{
    int rc = HALAY_OK;
    s->deadline_ns =
        config->deadline_ns < HLY_DEADLINE_MAX_NS ? config->deadline_ns : HLY_DEADLINE_MAX_NS;
    if (!s->deadline_ns)
        rc = read_seconds("HALAY_DEADLINE", &s->deadline_ns, error, error_bytes);
    s->start_deadline_ns = s->deadline_ns ? s->deadline_ns : START_DEFAULT_NS;
    s->deadline_ns = s->deadline_ns ? s->deadline_ns : DEADLINE_DEFAULT_NS;
    return rc ? rc
              : read_seconds("HALAY_START_DEADLINE", &s->start_deadline_ns, error, error_bytes);
}

static int read_notice(uint64_t *ns, char *error, size_t error_bytes)
{
    const char *text = getenv("HALAY_STALL");
    char *end;
    *ns = NOTICE_DEFAULT_NS;
    if (!text || !*text)
        return HALAY_OK;
    const double seconds = strtod(text, &end);
    if (end == text || *end || !(seconds >= 0) || seconds > NOTICE_MAX_S) {
        snprintf(error, error_bytes, "HALAY_STALL is '%s'; it takes seconds up to %g, or 0: never",
                 text, NOTICE_MAX_S);
        return HALAY_EINVAL;
    }
    *ns = (uint64_t)(seconds * 1e9);
    return HALAY_OK;
}

static int read_timeout(struct hly_settings *s, char *error, size_t error_bytes)
{
    s->stop_timeout_ns = s->link_timeout_ns = TIMEOUT_DEFAULT_NS;
    int rc = read_notice(&s->notice_ns, error, error_bytes);
    if (!rc)
        rc = read_seconds("HALAY_STOP_TIMEOUT", &s->stop_timeout_ns, error, error_bytes);
    return rc ? rc : read_seconds("HALAY_LINK_TIMEOUT", &s->link_timeout_ns, error, error_bytes);
}

static int read_level(struct hly_settings *s, char *error, size_t error_bytes)
{
    const char *text = getenv("HALAY_DEBUG");
    s->level = HLY_WARN;
    if (!text || !*text || !strcmp(text, "warn"))
        return HALAY_OK;
    if (!strcmp(text, "error"))
        s->level = HLY_ERROR;
    else if (!strcmp(text, "info"))
        s->level = HLY_INFO;
    else if (!strcmp(text, "trace"))
        s->level = HLY_TRACE;
    else {
        snprintf(error, error_bytes,
                 "HALAY_DEBUG is '%s'; it takes error, warn (the default), info or trace", text);
        return HALAY_EINVAL;
    }
    return HALAY_OK;
}

static int copy_text(char *to, size_t bytes, const char *given, const char *variable, char *error,
                     size_t error_bytes)
{
    const char *text = given ? given : getenv(variable);
    if (!text)
        text = "";
    if (strlen(text) >= bytes) {
        snprintf(error, error_bytes, "%s has %zu characters; at most %zu are taken", variable,
                 strlen(text), bytes - 1);
        return HALAY_EINVAL;
    }
    strcpy(to, text);
    return HALAY_OK;
}

static int read_switch(const char *variable, bool preset, bool *on, char *error, size_t error_bytes)
{
    const char *text = getenv(variable);
    *on = text && *text ? !strcmp(text, "1") : preset;
    if (!text || !*text || !strcmp(text, "0") || *on)
        return HALAY_OK;
    snprintf(error, error_bytes, "%s is '%s'; it takes 1 or 0; the default is %d", variable, text,
             preset);
    return HALAY_EINVAL;
}

static int read_number(const char *variable, uint64_t least, uint64_t most, char *error,
                       size_t error_bytes)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || !*text)
        return HALAY_OK;
    errno = 0;
    const unsigned long long n = strtoull(text, &end, 10);
    if (*text >= '0' && *text <= '9' && !*end && !errno && n >= least && n <= most)
        return HALAY_OK;
    snprintf(error, error_bytes, "%s is '%s'; it takes a number from %llu to %llu", variable, text,
             (unsigned long long)least, (unsigned long long)most);
    return HALAY_EINVAL;
}

static int check_autotune(char *error, size_t error_bytes)
{
    const char *text = getenv("HALAY_AUTOTUNE");
    struct hly_autotune ignored;
    if (hly_autotune_read(text, &ignored))
        return HALAY_OK;
    snprintf(error, error_bytes, "HALAY_AUTOTUNE is '%s'; " HLY_AUTOTUNE_TAKES, text);
    return HALAY_EINVAL;
}

/* What is read where it is used (by a trainer, or before there is a context) is checked here, so
 * that a program is told whether it uses it or not. */
static int check_others(char *error, size_t error_bytes)
{
    int rc = read_number("HALAY_FUSION", 0, FUSION_MAX, error, error_bytes);
    if (!rc)
        rc = check_autotune(error, error_bytes);
    char cpus[16];
    uint64_t number;
    if (rc || !hly_job_has("processors", cpus, sizeof(cpus)) ||
        hly_setting_number(cpus, strlen(cpus), 1, INT_MAX, &number))
        return rc;
    snprintf(error, error_bytes, "HALAY_JOB has processors=%s; it takes a number from 1", cpus);
    return HALAY_EINVAL;
}

/* A name, or two with a plus. Whether there are such plug-ins is seen when they are loaded. */
static int check_transport(const struct hly_settings *s, char *error, size_t error_bytes)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    const char *near = s->transport, *plus = strchr(near, '+');
    const char *far = plus ? plus + 1 : near;
    if (!*near)
        return HALAY_OK;
    if (*far && !far[strspn(far, letters)] && strspn(near, letters) > 0 &&
        (!plus || near + strspn(near, letters) == plus))
        return HALAY_OK;
    snprintf(error, error_bytes,
             "HALAY_TRANSPORT is '%s'; it takes the name of a transport, or two with a plus, as in "
             "shm+tcp: inside a node, and between nodes",
             near);
    return HALAY_EINVAL;
}

static int read_nccl(struct hly_settings *s, char *error, size_t error_bytes)
{
    const char *text = getenv("HALAY_NCCL_LIBRARY");
    struct hly_nccl_choice choice;
    if (!hly_nccl_choice_read(text, &choice)) {
        snprintf(error, error_bytes, "HALAY_NCCL_LIBRARY is '%s'; " HLY_NCCL_TAKES, text);
        return HALAY_EINVAL;
    }
    s->no_nccl = !choice.nccl;
    s->no_shared_gpu = !choice.own;
    s->shared_gpu_least_bytes = choice.least;
    return copy_text(s->nccl, sizeof(s->nccl), choice.file, "HALAY_NCCL_LIBRARY", error,
                     error_bytes);
}

static int read_selection(struct hly_settings *s, const halay_config_t *config, char *error,
                          size_t error_bytes)
{
    int rc = copy_text(s->algorithm, sizeof(s->algorithm), config->algorithm, "HALAY_ALGORITHM",
                       error, error_bytes);
    if (!rc)
        rc = copy_text(s->rows, sizeof(s->rows), NULL, "HALAY_SELECTION", error, error_bytes);
    if (!rc)
        rc = halay_selection_make(s->algorithm, s->rows, NULL, error, error_bytes, &s->selection);
    return rc;
}

int hly_settings_read(struct hly_settings *s, const halay_config_t *config, char *error,
                      size_t error_bytes)
{
    memset(s, 0, sizeof(*s));
    if (hly_settings_dropped(error, error_bytes))
        return HALAY_EINVAL;
    int rc = read_level(s, error, error_bytes);
    if (!rc)
        rc = read_deadlines(s, config, error, error_bytes);
    if (!rc)
        rc = read_timeout(s, error, error_bytes);
    if (!rc)
        rc = copy_text(s->isa, sizeof(s->isa), config->isa ? config->isa : "",
                       "halay_config_t's isa", error, error_bytes);
    if (!rc)
        rc = copy_text(s->transport, sizeof(s->transport), NULL, "HALAY_TRANSPORT", error,
                       error_bytes);
    if (!rc)
        rc = copy_text(s->plugin_dir, sizeof(s->plugin_dir), NULL, "HALAY_PLUGIN_DIR", error,
                       error_bytes);
    if (!rc)
        rc = copy_text(s->record, sizeof(s->record), NULL, "HALAY_RECORD", error, error_bytes);
    if (!rc)
        rc = read_switch("HALAY_EXPLAIN", false, &s->explain, error, error_bytes);
    if (!rc)
        rc = read_switch("HALAY_GPUDIRECT", false, &s->gpudirect, error, error_bytes);
    if (!rc)
        rc = check_others(error, error_bytes);
    if (!rc)
        rc = check_transport(s, error, error_bytes);
    if (!rc)
        rc = read_nccl(s, error, error_bytes);
    if (!rc)
        rc = read_selection(s, config, error, error_bytes);
    return rc;
}

/* "0-3,8": the processors that this process may use. */
static void read_cpus(char *text, size_t bytes)
{
    static const char key[] = "Cpus_allowed_list:";
    char line[4096];
    FILE *file = fopen("/proc/self/status", "re");
    snprintf(text, bytes, "?");
    while (file && fgets(line, sizeof(line), file))
        if (!strncmp(line, key, sizeof(key) - 1))
            snprintf(text, bytes, "%s",
                     line + sizeof(key) - 1 + strspn(line + sizeof(key) - 1, " \t"));
    text[strcspn(text, "\n")] = '\0';
    if (file)
        fclose(file);
}

void hly_settings_show(halay_context_t *context)
{
    const halay_boot_info_t *i = &context->info;
    char transports[64], cpus[128];
    hly_transports_text(context, transports, sizeof(transports));
    hly_log(
        context, HLY_INFO,
        "Halay %s: rank %d of %d, local rank %d of %d on node %d of %d, launcher %s, epoch %llu, "
        "transport %s",
        halay_version(), i->rank, i->nranks, i->local_rank, i->local_nranks, i->node, i->nnodes,
        i->launcher, (unsigned long long)i->epoch, transports);
    if (context->settings.level >= HLY_INFO) {
        read_cpus(cpus, sizeof(cpus));
        hly_log(context, HLY_INFO, "it may use processors %s; the ranks of its node share %d", cpus,
                context->ncpus);
    }
    if (i->nnodes > 1 && context->settings.level >= HLY_INFO) { /* it looks at all ranks */
        char between[HLY_BETWEEN_BYTES];
        const struct hly_transport *far = &context->transports[context->ntransports - 1];
        hly_between_text(context, far->ops->name, far->attr.over, between, sizeof(between));
        hly_log(context, HLY_INFO, "%s", between);
    }
    for (size_t v = 0; v < hly_settings_count; v++) {
        const struct hly_setting *setting = &hly_settings_all[v];
        if (hly_setting_is_open(setting) && getenv(setting->name))
            hly_log(context, HLY_INFO, "set by the environment: %s=%s", setting->name,
                    getenv(setting->name));
    }
}
