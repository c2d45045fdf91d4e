/* SPDX-License-Identifier: Apache-2.0 */
/* calibration.c - where halay-bench calibrate keeps its rows, and whether they may be used. */
#define _GNU_SOURCE
#include "calibration.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *set(const char *variable)
{
    const char *text = getenv(variable);
    return text && *text ? text : NULL;
}

bool hly_calibration_off(void)
{
    const char *where = set("HALAY_CALIBRATION");
    return where && !strcmp(where, "off");
}

#define FILE_NAME 64 /* a name in the folder, at most */

/* ---------------------------------------------------------------- the kind of a node */

/* The value of the first line with one of these keys; x86, then what other processors have. */
static void processor_model(char *text, size_t bytes)
{
    static const char *const keys[] = {"model name", "cpu\t", "CPU part", "Model Name"};
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    snprintf(text, bytes, "unknown");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        bool known = false;
        for (size_t k = 0; colon && k < sizeof keys / sizeof keys[0]; k++)
            known = known || !strncmp(line, keys[k], strlen(keys[k]));
        if (!known)
            continue;
        colon += 1 + strspn(colon + 1, " \t");
        snprintf(text, bytes, "%.*s", (int)strcspn(colon, "\n"), colon);
        break;
    }
    if (file)
        fclose(file);
}

static void processors(char *text, size_t bytes)
{
    FILE *file = fopen("/sys/devices/system/cpu/online", "re");
    if (!file || !fgets(text, (int)bytes, file))
        snprintf(text, bytes, "%ld", sysconf(_SC_NPROCESSORS_ONLN));
    text[strcspn(text, "\n")] = 0;
    if (file)
        fclose(file);
}

uint32_t hly_calibration_kind(char text[HLY_CALIBRATION_TEXT])
{
    const char *cluster = set("SLURM_CLUSTER_NAME"), *transport = set("HALAY_TRANSPORT");
    char model[80], online[40];
    uint32_t hash = 2166136261u; /* FNV-1a */
    processor_model(model, sizeof model);
    processors(online, sizeof online);
    snprintf(text, HLY_CALIBRATION_TEXT,
             "processor %s, processors %s, cluster %.40s, transport %.40s", model, online,
             cluster ? cluster : "-", transport ? transport : "-");
    for (char *c = text; *c; c++) {
        if (!isprint((unsigned char)*c))
            *c = '?';
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    }
    return hash;
}

/* ---------------------------------------------------------------- where */

static bool folder(int n, const char *library, char *path, size_t bytes)
{
    const char *given = set("HALAY_CALIBRATION"), *cache = set("XDG_CACHE_HOME");
    const char *home = set("HOME"), *slash = strrchr(library, '/');
    size_t used = bytes;
    path[0] = 0;
    if (given)
        used = n == 0 ? (size_t)snprintf(path, bytes, "%s", given) : bytes;
    else if (n == 0 && cache && *cache == '/')
        used = (size_t)snprintf(path, bytes, "%s/halay", cache);
    else if (n == 0 && home && *home == '/')
        used = (size_t)snprintf(path, bytes, "%s/.cache/halay", home);
    else if (n == 1 && slash)
        used = (size_t)snprintf(path, bytes, "%.*s/halay", (int)(slash - library), library);
    if (used >= bytes)
        path[0] = 0;
    return n == 0 || (n == 1 && !given);
}

bool hly_calibration_folder(char path[HLY_CALIBRATION_PATH])
{
    return folder(0, "", path, HLY_CALIBRATION_PATH - FILE_NAME) && *path;
}

int hly_calibration_make_folder(const char *path)
{
    char folder[HLY_CALIBRATION_PATH];
    int rc = 0;
    snprintf(folder, sizeof folder, "%s", path);
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = 0;
        rc = mkdir(folder, 0700) && errno != EEXIST ? -errno : 0;
        *slash = '/';
    }
    return rc;
}

bool hly_calibration_place(int n, const char *library, char path[HLY_CALIBRATION_PATH])
{
    char text[HLY_CALIBRATION_TEXT];
    if (!folder(n, library, path, HLY_CALIBRATION_PATH - FILE_NAME))
        return false;
    const size_t used = strlen(path);
    if (used)
        snprintf(path + used, HLY_CALIBRATION_PATH - used, "/calibration-%08x.rows",
                 hly_calibration_kind(text));
    return true;
}

/* ---------------------------------------------------------------- whether */

/* What is in it is believed: nobody else may have written it. The owner of the library decides more
 * than this already. */
static const char *distrusted(const struct stat *file, const char *library)
{
    struct stat ours;
    if (!S_ISREG(file->st_mode))
        return "is no file";
    if (file->st_uid != 0 && file->st_uid != geteuid() &&
        (stat(library, &ours) || ours.st_uid != file->st_uid))
        return "belongs to another user";
    if (file->st_mode & (S_IWGRP | S_IWOTH))
        return "may be written by others (chmod go-w)";
    return file->st_size > HLY_CALIBRATION_BYTES ? "is too long" : NULL;
}

/* Of another version its algorithms may be others, or as fast as they were not. */
static bool of_version(FILE *file, const char *version, char *made, size_t bytes)
{
    static const char head[] = HLY_CALIBRATION_HEAD;
    char line[256] = "";
    snprintf(made, bytes, "something else");
    if (!fgets(line, sizeof line, file) || strncmp(line, head, sizeof head - 1) != 0)
        return false;
    line[strcspn(line, ":\n")] = 0;
    snprintf(made, bytes, "Halay %.40s", line + sizeof head - 1);
    rewind(file);
    return !strcmp(line + sizeof head - 1, version);
}

FILE *hly_calibration_open(const char *library, const char *version,
                           char path[HLY_CALIBRATION_PATH], char *why, size_t bytes)
{
    static const char remedy[] =
        "halay-bench calibrate makes it anew, HALAY_CALIBRATION=off ignores it";
    char first[HLY_CALIBRATION_PATH] = "", made[64];
    struct stat about;
    *why = 0;
    for (int n = 0; hly_calibration_place(n, library, path); n++) {
        if (n == 0)
            strcpy(first, path);
        int fd = *path ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY) : -1;
        if (fd < 0) /* whatever keeps it from being read: it is the same as if it were not there */
            continue;
        FILE *file = fdopen(fd, "r");
        if (!file) {
            close(fd);
            continue;
        }
        const char *wrong = fstat(fd, &about) ? "cannot be looked at" : distrusted(&about, library);
        if (wrong)
            snprintf(why, bytes, "the calibration %s %s: it is not used; %s", path, wrong, remedy);
        else if (!of_version(file, version, made, sizeof made))
            snprintf(why, bytes,
                     "the calibration %s was made by %s, and this is Halay %s: it is not "
                     "used; %s",
                     path, made, version, remedy);
        else
            return file;
        fclose(file);
        return NULL;
    }
    strcpy(path, first);
    return NULL;
}
