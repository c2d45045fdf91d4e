/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tune_file.c - what autotuning has found is kept for the next job, a file for each programme and
 * kind of job; and its log. Files are other jobs': what they say is only used if it is one of the
 * settings. A folder that cannot be written is logged, and stops nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../../common/autotune.h"
#include "../../../common/calibration.h"
#include "../../../common/file_limit.h"
#include "../core/tune.h"
#include "calls.h"

#define FILE_BYTES 1024

static int is_mute(void)
{
    const char *level = getenv("HALAY_DEBUG");
    return level && !strcmp(level, "error");
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    char text[HLT_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (!is_mute())
        fprintf(stderr, "halay: autotune: %s\n", text);
}

void hlt_tune_refuse(const char *why)
{
    say("nothing is tuned: %s", why);
}

/* 0: there is no folder for it, and why. */
static int path_of(const struct hlt_tune *tune, char path[HLY_CALIBRATION_PATH], const char **why)
{
    char kind[HLY_CALIBRATION_TEXT];
    const uint64_t key[] = {tune->key, hly_calibration_kind(kind)};
    *why = "HALAY_CALIBRATION is off";
    if (hly_calibration_off())
        return 0;
    *why = "there is no home directory; HALAY_CALIBRATION=DIR names a folder";
    if (!hly_calibration_folder(path))
        return 0;
    const size_t used = strlen(path);
    snprintf(path + used, HLY_CALIBRATION_PATH - used, "/groups-%016llx.txt",
             (unsigned long long)hlt_hash_words(0, key, 2));
    return 1;
}

/* Fills text with a regular file's beginning. 0: there is no such file, or it cannot be read. */
static int read_file(const char *path, char text[FILE_BYTES])
{
    struct stat about;
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    ssize_t got = -1;
    if (!fstat(fd, &about) && S_ISREG(about.st_mode))
        got = read(fd, text, FILE_BYTES - 1);
    close(fd);
    text[got > 0 ? got : 0] = 0;
    return got >= 0;
}

/* The word behind "\nkey "; empty: it is not there. */
static void find_word(const char *text, const char *key, char word[32])
{
    const char *at = strstr(text, key);
    const size_t length = at ? strcspn(at + strlen(key), "\n") : 0;
    snprintf(word, 32, "%.*s", (int)(length < 31 ? length : 31), at ? at + strlen(key) : "");
}

/* The kept setting; -1: there is none, or it is stale, which this logs. */
static int read_kept(const struct hlt_tune *tune)
{
    char path[HLY_CALIBRATION_PATH], text[FILE_BYTES], version[32], bytes[32], *end;
    const char *why;
    if (!path_of(tune, path, &why) || !read_file(path, text))
        return -1;
    find_word(text, "\nhalay ", version);
    find_word(text, "\ngroup_bytes ", bytes);
    const unsigned long long most = strtoull(bytes, &end, 10);
    const int understood = *version && *bytes && !*end, ours = !strcmp(version, halay_version());
    for (int i = 0; understood && ours && i < tune->search.nsettings; i++)
        if (tune->bytes[i] == most)
            return i;
    say("%s is stale (%s%s), and is made anew", path,
        !understood ? "it cannot be understood"
        : ours      ? "made for another HALAY_FUSION"
                    : "made by Halay ",
        understood && !ours ? version : "");
    return -1;
}

/* 0, or errno. */
static int write_file(const char *path, const char *text)
{
    char made[HLY_CALIBRATION_PATH + 16];
    snprintf(made, sizeof(made), "%s.XXXXXX", path);
    const int fd = mkostemp(made, O_CLOEXEC);
    if (fd < 0)
        return errno;
    const size_t bytes = strlen(text);
    errno = ENOSPC;
    int failed = hly_file_fits(bytes) && write(fd, text, bytes) == (ssize_t)bytes ? 0 : errno;
    if (close(fd) && !failed)
        failed = errno;
    if (!failed && rename(made, path))
        failed = errno;
    if (failed)
        unlink(made);
    return failed;
}

static void show_bytes(size_t bytes, char text[32])
{
    if (bytes >= 1 << 20 && bytes % (1 << 20) == 0)
        snprintf(text, 32, "of %zu MiB", bytes >> 20);
    else if (bytes)
        snprintf(text, 32, "of %zu KiB", bytes >> 10);
    else
        snprintf(text, 32, "of one tensor");
}

static void show_tensors(const struct hlt_tune *tune, char text[64])
{
    snprintf(text, 64, "%zu tensor%s, %llu bytes", tune->ntensors, tune->ntensors == 1 ? "" : "s",
             (unsigned long long)tune->total_bytes);
}

static void give_up(const struct hlt_tune *tune)
{
    char what[64];
    show_tensors(tune, what);
    say("%s: not tuned: too few steps in a row have the same tensors", what);
}

/* Keeps the result, and says it in one line. */
static void write_kept(const struct hlt_core *core, const struct hlt_tune *tune)
{
    char path[HLY_CALIBRATION_PATH], text[FILE_BYTES], size[32], kept[HLY_CALIBRATION_PATH + 64];
    char what[64];
    const struct hlt_search *search = &tune->search;
    const char *why = "";
    show_bytes(tune->bytes[tune->setting], size);
    show_tensors(tune, what);
    if (search->nsettings == 1) {
        say("%s: all settings give the same groups", what);
        return;
    }
    if (tune->from_file) {
        say("%s: groups %s at most, as kept by an earlier job", what, size);
        return;
    }
    snprintf(text, sizeof(text),
             "# Fused groups for %s, %d ranks; by HALAY_AUTOTUNE\n"
             "halay %s\ngroup_bytes %zu\ngain %.3f\n",
             what, core->nranks, halay_version(), tune->bytes[tune->setting], search->gain);
    if (path_of(tune, path, &why)) {
        int failed = -hly_calibration_make_folder(path);
        failed = failed ? failed : write_file(path, text);
        why = failed ? strerror(failed) : "";
        snprintf(kept, sizeof(kept), "%s%s%s%s", failed ? "not kept: " : "kept in ", path,
                 failed ? ": " : "", why);
    } else {
        snprintf(kept, sizeof(kept), "not kept: %s", why);
    }
    if (tune->setting)
        say("%s: groups %s at most, a step takes %.0f %% less time; %s", what, size,
            100 * search->gain, kept);
    else
        say("%s: groups %s at most, the default: no other is 3 %% better; %s", what, size, kept);
}

/* A line for the log of HALAY_AUTOTUNE. Horovod's columns: those that there are no settings for are
 * always the same. */
static void log_block(const struct hlt_tune *tune, double ns)
{
    struct hly_autotune autotune;
    hly_autotune_read(getenv("HALAY_AUTOTUNE"), &autotune);
    const char *path = autotune.log;
    if (!path)
        return;
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
    const int fd = open(path, flags, 0666); /* a FIFO that nobody reads does not hold a step up */
    FILE *file = fd < 0 ? NULL : fdopen(fd, "a");
    int failed = !file;
    if (fd >= 0 && !file)
        close(fd);
    if (file && !lseek(fd, 0, SEEK_END))
        fputs("hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,"
              "cycle_time_ms,tensor_fusion_threshold,score\n",
              file);
    if (file)
        fprintf(file, "0,0,0,1,0,%g,%g\n", (double)tune->bytes[tune->block_setting] / (1 << 20),
                ns > 0 ? (double)tune->total_bytes / ns * 1e3 : 0);
    if (file && fclose(file))
        failed = 1;
    if (failed && !tune->search.round && !tune->block_setting) /* once */
        say("the log of HALAY_AUTOTUNE: %s: %s", path, strerror(errno));
}

void hlt_tune_recall(struct hlt_core *core)
{
    struct hlt_tune *tune = core->replay.programme->tune;
    const int reads = core->rank == 0 && !core->autotune.again && tune->search.nsettings > 1;
    if (tune->state == HLT_TUNE_ASKS)
        tune->words[0] = reads ? read_kept(tune) : -1;
}

void hlt_tune_speak(struct hlt_core *core)
{
    const struct hlt_tune *tune = core->speaks;
    core->speaks = NULL;
    if (tune && tune->says == HLT_TUNE_BLOCK)
        log_block(tune, tune->block_ns);
    else if (tune && tune->says == HLT_TUNE_FOUND)
        write_kept(core, tune);
    else if (tune)
        give_up(tune);
}
