/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - the processor, and the variables. Whether they are accepted is asked of the library
 * itself: a context of one rank is made through a bootstrap of our own, so that no job is joined
 * even where a launcher has started this program.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <halay/boot.h>

#include "../../common/calibration.h"
#include "../../common/settings.h"
#include "../common/library.h"
#include "info.h"

static int alone_probe(int *announced)
{
    *announced = 1;
    return 1;
}

static int alone_open(void *arg, halay_log_fn log, void *log_arg, uint64_t deadline_ns,
                      halay_boot_info_t *info, halay_boot_t **boot)
{
    (void)arg;
    (void)log;
    (void)log_arg;
    (void)deadline_ns;
    *info = (halay_boot_info_t){
        .size = sizeof *info, .nranks = 1, .local_nranks = 1, .nnodes = 1, .epoch = 1};
    gethostname(info->host, sizeof info->host - 1);
    strcpy(info->launcher, "halay-info");
    *boot = NULL;
    return HALAY_OK;
}

static int alone_get(const halay_boot_t *boot, int rank, halay_place_t *place)
{
    (void)boot, (void)rank, (void)place;
    return HALAY_EINVAL;
}

static void alone_close(halay_boot_t *boot)
{
    (void)boot;
}

static void alone_lost(halay_boot_t *boot, int rank)
{
    (void)boot, (void)rank;
}

static int alone_newcomers(halay_boot_t *boot, int *count)
{
    (void)boot, (void)count;
    return HALAY_EUNSUPPORTED;
}

static int try_init(const char *isa, char *error, size_t bytes)
{
    static const halay_boot_ops_t alone = {.size = sizeof alone,
                                           .name = "halay-info",
                                           .probe = alone_probe,
                                           .open = alone_open,
                                           .get = alone_get,
                                           .lost = alone_lost,
                                           .newcomers = alone_newcomers,
                                           .close = alone_close,
                                           .leave = alone_close};
    halay_context_t *context;
    halay_config_t config = HALAY_CONFIG_INIT;
    config.boot = &alone;
    config.isa = isa;
    config.error = error;
    config.error_bytes = bytes;
    int rc = halay_init(&config, &context);
    return rc ? rc : halay_finalize(context);
}

/* ---------------------------------------------------------------- what the processor can do */

/* Only what the processor has is tried: the library would complain about the rest. */
static void show_isa(const char *isa, int here, int try)
{
    const char *answer = here ? "yes" : "no";
    if (here && try && try_init(isa, NULL, 0))
        answer = "refused";
    printf(" %s %s%s", isa, answer, strcmp(isa, "scalar") ? "," : "\n");
}

int hly_info_check(char *reason, size_t bytes)
{
    return try_init(NULL, reason, bytes);
}

#if defined(__x86_64__)
/* Whether the kernel lists all these words. Not every compiler's __builtin_cpu_supports() is right.
 */
static int processor_has(const char *const *words)
{
    char line[8192] = "";
    FILE *info = fopen("/proc/cpuinfo", "r");
    if (!info)
        return 0;
    while (fgets(line, sizeof line, info) && strncmp(line, "flags", 5) != 0)
        ;
    fclose(info);
    line[strcspn(line, "\n")] = ' ';
    for (; *words; words++) {
        if (!strstr(line, *words))
            return 0;
    }
    return 1;
}
#endif

void hly_info_processor(int accepted)
{
    cpu_set_t set;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int usable = sched_getaffinity(0, sizeof set, &set) ? (int)online : CPU_COUNT(&set);
    printf("processors: %d usable of %ld\n", usable, online);
    printf("instruction sets:");
#if defined(__x86_64__)
    static const char *const avx512[] = {" avx2 ",     " f16c ",     " avx512f ", " avx512bw ",
                                         " avx512vl ", " avx512dq ", NULL};
    static const char *const avx2[] = {" avx2 ", " f16c ", NULL};
    show_isa("avx512", processor_has(avx512), accepted);
    show_isa("avx2", processor_has(avx2), accepted);
#endif
    show_isa("scalar", 1, accepted);
}

/* ---------------------------------------------------------------- variables */

void hly_info_variables(void)
{
    printf("variables\n");
    for (size_t i = 0; i < hly_settings_count; i++) {
        const struct hly_setting *s = &hly_settings_all[i];
        const char *value = getenv(s->name);
        char now[512];
        if (value)
            snprintf(now, sizeof now, hly_setting_is_open(s) ? "set: %s" : "set", value);
        else
            snprintf(now, sizeof now, "not set: %s", s->usual);
        printf("  %-26s %-32s %s%s%s; %s\n", s->name, now, s->unit, *s->unit ? " " : "", s->meaning,
               s->scope);
    }
}

void hly_info_calibration(void)
{
    char library[HLY_PATH_BYTES], path[HLY_CALIBRATION_PATH], why[768] = "";
    char kind[HLY_CALIBRATION_TEXT];
    if (hly_calibration_off())
        return;
    hly_calibration_kind(kind);
    hly_library_path(library);
    FILE *file = hly_calibration_open(library, halay_version(), path, why, sizeof why);
    printf("calibration of nodes with %s\n", kind);
    if (file || *why)
        printf("  %s\n", file ? path : why);
    else
        printf("  none; halay-bench calibrate makes %s\n",
               *path ? path : "one, where HALAY_CALIBRATION names a folder");
    if (file)
        fclose(file);
}
