/* SPDX-License-Identifier: Apache-2.0 */
/*
 * settings.c - every variable that Halay reads. scripts/settings makes docs/settings.md of the
 * first table, and compares it with the sources and with halay(7).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "settings.h"

#define OWN_LEAST_MAX (UINT64_C(1) << 40)
#define SECRET        "secret"
#define EACH          "each rank"
#define ALIKE         "all ranks alike"
#define LEAST         "the least of all ranks"

#define BY_LAUNCHER "the launcher sets HALAY_JOB instead; start with this version's halayrun"

const struct hly_setting hly_settings_all[] = {
    {"HALAY_DEADLINE", "number", "1800", "seconds", EACH,
     "that a call may take before it ends with an error"},
    {"HALAY_START_DEADLINE", "number", "HALAY_DEADLINE, else 300", "seconds", EACH,
     "that the start waits for other ranks"},
    {"HALAY_STOP_TIMEOUT", "number", "30", "seconds", EACH,
     "that calls wait for a process that is stopped"},
    {"HALAY_LINK_TIMEOUT", "number", "30", "seconds", EACH, "that a link between nodes may be cut"},
    {"HALAY_STALL", "number", "1", "seconds", EACH,
     "after which a call that waits says for whom; 0: never"},
    {"HALAY_ALGORITHM", "list", "chosen", "", ALIKE, "collective=algorithm,..."},
    {"HALAY_SELECTION", "file", "built in", "", ALIKE,
     "rows that choose algorithms, or model, or model:FILE"},
    {"HALAY_CALIBRATION", "folder", "the user's cache", "", EACH,
     "in which halay-bench calibrate keeps rows, or off"},
    {"HALAY_EXPLAIN", "0 or 1", "0", "", "rank 0", "1: it prints why a call gets its algorithm"},
    {"HALAY_FUSION", "number", "67108864", "bytes", LEAST,
     "of the buffers in which small tensors are reduced as one; 0: none"},
    {"HALAY_AUTOTUNE", "0, 1 or list", "0", "", LEAST,
     "again, steps:N, warmup:N, group:BYTES, log:FILE: tunes the size of such groups"},
    {"HALAY_TRANSPORT", "name+name", "chosen", "", ALIKE,
     "the plug-ins that move the data: in a node+between nodes"},
    {"HALAY_VERBS", "list", "chosen", "", EACH,
     "device=NAME:PORT,gid=INDEX,mtu=BYTES,class=0 to 255,rails=1 to 4"},
    {"HALAY_TCP_SEAL", "word", "headers", "", ALIKE, "what tcp protects: headers or payload"},
    {"HALAY_GPUDIRECT", "0 or 1", "0", "", ALIKE,
     "1: adapters read and write GPU memory, where the call can"},
    {"HALAY_NCCL_LIBRARY", "file", "libnccl.so.2", "", EACH,
     "NCCL's, for calls in GPU memory; own, own:BYTES: Halay's kernels only; off: neither"},
    {"HALAY_INTERFACE", "name", "chosen", "", EACH, "the network interface that a rank listens at"},
    {"HALAY_RENDEZVOUS", "host:port", "MASTER_ADDR:MASTER_PORT", "", ALIKE,
     "where ranks that variables start meet"},
    {"HALAY_SECRET", SECRET, "drawn by halayrun", "", ALIKE,
     "what the ranks of a job have in common, and nobody else knows"},
    {"HALAY_DEBUG", "word", "warn", "", EACH, "what is printed: error, warn, info or trace"},
    {"HALAY_RECORD", "folder", "none", "", EACH, "for flight records of failed communicators"},
    {"HALAY_TIMELINE", "file", "none", "", EACH, "of Python's timeline, from the beginning on"},
    {"HALAY_TIMELINE_MARK_CYCLES", "0 or 1", "0", "", EACH,
     "1: marks in it where a round or a programme begins"},
    {"HALAY_HOROVOD", "0 or 1", "0", "", EACH, "1: import horovod gets Halay's"},
    {"HALAY_PLUGIN_DIR", "folder", "lib/halay", "", EACH, "where plug-ins are looked for"},
    {"HALAY_LIBRARY", "file", "found", "", EACH, "the libhalay.so that the Python package loads"},
    {"HALAY_JOB", "pairs, or none", "set by the launcher", "", EACH,
     "what it tells its processes; none: a job of this process alone"},
    {"HALAY_BIND", "word", "auto", "", "halayrun", "none: it leaves its ranks unbound"},
};
const size_t hly_settings_count = sizeof hly_settings_all / sizeof hly_settings_all[0];

static const struct {
    const char *name, *instead;
} dropped[] = {
    {"HALAY_AUTOTUNE_LOG", "set HALAY_AUTOTUNE=log:FILE"},
    {"HALAY_AUTOTUNE_STEPS", "set HALAY_AUTOTUNE=steps:N"},
    {"HALAY_AUTOTUNE_WARMUP", "set HALAY_AUTOTUNE=warmup:N"},
    {"HALAY_BATCH_COPIES", "a group in a GPU's memory is always copied by one launch; unset it"},
    {"HALAY_GROUP_BYTES", "set HALAY_AUTOTUNE=group:BYTES"},
    {"HALAY_ISA", "a C program chooses by halay_config_t's isa; unset it"},
    {"HALAY_LAST_WORDS", BY_LAUNCHER},
    {"HALAY_LAUNCHER", "to run a process alone, set HALAY_JOB=none"},
    {"HALAY_LINK_PATIENCE", "set HALAY_LINK_TIMEOUT"},
    {"HALAY_MEET", BY_LAUNCHER},
    {"HALAY_MEET_JOB", BY_LAUNCHER},
    {"HALAY_MEET_SLOT", BY_LAUNCHER},
    {"HALAY_MODEL", "set HALAY_SELECTION=model:FILE"},
    {"HALAY_NRANKS", BY_LAUNCHER},
    {"HALAY_OWN_GROUPS", "set HALAY_NCCL_LIBRARY=own:BYTES, or off"},
    {"HALAY_PROCESSORS", BY_LAUNCHER},
    {"HALAY_RECORD_AT", BY_LAUNCHER},
    {"HALAY_STOP_PATIENCE", "set HALAY_STOP_TIMEOUT"},
};

bool hly_setting_is_open(const struct hly_setting *setting)
{
    return strcmp(setting->type, SECRET) != 0;
}

bool hly_settings_dropped(char *error, size_t bytes)
{
    for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++) {
        const char *value = getenv(dropped[i].name);
        if (!value || !*value)
            continue;
        snprintf(error, bytes, "%s is '%.80s', but it is no setting any more: %s", dropped[i].name,
                 value, dropped[i].instead);
        return true;
    }
    return false;
}

bool hly_nccl_choice_read(const char *text, struct hly_nccl_choice *choice)
{
    const bool off = text && !strcmp(text, "off"), own = text && !strcmp(text, "own");
    const bool from = text && !strncmp(text, "own:", 4);
    *choice = (struct hly_nccl_choice){.file = text && !off && !own && !from ? text : "",
                                       .nccl = !off && !own && !from,
                                       .own = !off};
    return !from ||
           hly_setting_number(text + 4, strlen(text + 4), 1, OWN_LEAST_MAX, &choice->least);
}

bool hly_setting_number(const char *text, size_t length, uint64_t least, uint64_t most,
                        uint64_t *number)
{
    uint64_t n = 0;
    for (size_t i = 0; i < length; i++) {
        const uint64_t digit = (uint64_t)(text[i] - '0');
        if (text[i] < '0' || text[i] > '9' || n > (UINT64_MAX - digit) / 10)
            return false;
        n = 10 * n + digit;
    }
    *number = n;
    return length && n >= least && n <= most;
}
