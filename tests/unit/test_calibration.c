/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_calibration.c - the file of a calibration: where it is looked for, for which nodes it is,
 * and that none that anybody else could have written, or another version, is used.
 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../../common/calibration.h"
#include "../check.h"

static char folder[] = "/tmp/halay_calibration_XXXXXX", library[64], path[HLY_CALIBRATION_PATH],
            why[768];

static FILE *look(void)
{
    return hly_calibration_open(library, "1.2", path, why, sizeof why);
}

/* Where it would lie first. */
static const char *place(void)
{
    static char first[HLY_CALIBRATION_PATH];
    MUST(hly_calibration_place(0, library, first));
    return first;
}

static void write_file(const char *at, const char *version)
{
    FILE *file = fopen(at, "w");
    MUST(file);
    fprintf(file, HLY_CALIBRATION_HEAD "%s: rows\nallreduce - - any ring\n", version);
    MUST(!fclose(file) && !chmod(at, 0600));
}

static void used(const char *at)
{
    char line[100];
    FILE *file = look();
    CHECK(file && !*why && !strcmp(path, at), "%s: %s", path, why);
    CHECK(fgets(line, sizeof line, file) && !strncmp(line, HLY_CALIBRATION_HEAD, 10),
          "it begins with its head");
    fclose(file);
}

static void refused(const char *says)
{
    FILE *file = look();
    CHECK(!file && strstr(why, says) && strstr(why, "HALAY_CALIBRATION=off") && !strchr(why, '\n'),
          "%s: %s", says, why);
}

static void nothing(const char *at)
{
    FILE *file = look();
    CHECK(!file && !*why && !strcmp(path, at), "%s: '%s' %s", at, path, why);
}

/* The variables say where, in this order; what is no absolute path is nowhere. */
static void test_places(void)
{
    char deep[HLY_CALIBRATION_PATH + 64];
    setenv("HOME", "/home/of/someone", 1);
    CHECK(!strncmp(place(), "/home/of/someone/.cache/halay/calibration-", 42), "%s", place());
    CHECK(!strcmp(place() + strlen(place()) - 5, ".rows"), "%s", place());
    setenv("XDG_CACHE_HOME", "/cache", 1);
    CHECK(!strncmp(place(), "/cache/halay/calibration-", 25), "%s", place());
    setenv("XDG_CACHE_HOME", "cache", 1);
    CHECK(!strncmp(place(), "/home/", 6), "%s", place());
    setenv("HALAY_CALIBRATION", "/given", 1);
    CHECK(!strncmp(place(), "/given/calibration-", 19), "%s", place());
    CHECK(!hly_calibration_place(1, library, path), "no other one then");
    CHECK(!hly_calibration_off(), "a folder");
    setenv("HALAY_CALIBRATION", "off", 1);
    CHECK(hly_calibration_off(), "off");
    memset(deep, 'x', sizeof deep - 1);
    deep[0] = '/', deep[sizeof deep - 1] = 0;
    setenv("HALAY_CALIBRATION", deep, 1);
    CHECK(!*place(), "too long: nowhere");
    nothing("");
    unsetenv("HALAY_CALIBRATION");
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", "~", 1);
    CHECK(!*place(), "%s", place());
    unsetenv("HOME");
    CHECK(!*place(), "%s", place());
    nothing("");
    CHECK(hly_calibration_place(1, library, path) && strstr(path, "/lib/halay/calibration-"), "%s",
          path);
    CHECK(!hly_calibration_place(2, library, path), "and no more");
}

/* Other nodes, or other variables that decide what is measured, have another file. */
static void test_kinds(void)
{
    char text[HLY_CALIBRATION_TEXT], other[HLY_CALIBRATION_TEXT];
    const uint32_t kind = hly_calibration_kind(text);
    CHECK(strstr(text, "processor ") && strstr(text, "cluster -, transport -"), "%s", text);
    CHECK(kind == hly_calibration_kind(other) && !strcmp(text, other), "it stays");
    static const char *const variables[] = {"SLURM_CLUSTER_NAME", "HALAY_TRANSPORT"};
    for (int i = 0; i < 2; i++) {
        setenv(variables[i], "shm+tcp", 1);
        CHECK(kind != hly_calibration_kind(other) && strstr(other, "shm+tcp"), "%s", other);
        setenv(variables[i], "a\nb\033", 1);
        hly_calibration_kind(other);
        CHECK(strstr(other, "a?b?") && !strchr(other, '\n'), "%s", other);
        unsetenv(variables[i]);
    }
}

static void test_files(void)
{
    char first[HLY_CALIBRATION_PATH], second[HLY_CALIBRATION_PATH], home[64];
    snprintf(home, sizeof home, "%s/home", folder);
    setenv("HOME", home, 1);
    strcpy(first, place());
    MUST(hly_calibration_place(1, library, second));
    nothing(first);
    MUST(!mkdir(home, 0700));
    snprintf(home, sizeof home, "%s/home/.cache", folder);
    MUST(!mkdir(home, 0700));
    snprintf(home, sizeof home, "%s/home/.cache/halay", folder);
    MUST(!mkdir(home, 0700));
    nothing(first);
    write_file(second, "1.2");
    used(second);
    write_file(first, "1.2");
    used(first);
    write_file(first, "1.1");
    refused("was made by Halay 1.1, and this is Halay 1.2");
    write_file(first, "1.2.1");
    refused("was made by Halay 1.2.1,");
    FILE *file = fopen(first, "w");
    MUST(file && fputs("allreduce - - any ring\n", file) >= 0 && !fclose(file));
    refused("was made by something else");
    MUST(!truncate(first, 0));
    refused("was made by something else");
    write_file(first, "1.2");
    MUST(!chmod(first, 0660));
    refused("may be written by others");
    MUST(!chmod(first, 0602));
    refused("may be written by others");
    MUST(!chmod(first, 0644));
    used(first);
    MUST(!truncate(first, HLY_CALIBRATION_BYTES + 1));
    refused("is too long");
    MUST(!unlink(first) && !mkfifo(first, 0600));
    refused("is no file"); /* and nobody waits for a writer */
    MUST(!unlink(first) && !mkdir(first, 0700));
    refused("is no file");
    MUST(!rmdir(first) && !symlink("/nowhere", first));
    used(second);
    MUST(!unlink(first));
    if (geteuid() == 0) { /* of another user, unless he owns the library, too */
        MUST(!chown(second, 65534, 65534));
        refused("belongs to another user");
        file = fopen(library, "w");
        MUST(file && !fclose(file) && !chown(library, 65534, 65534));
        used(second);
        MUST(!unlink(library));
    }
    MUST(!unlink(second));
    nothing(first);
    MUST(!rmdir(home));
    *strrchr(home, '/') = 0;
    MUST(!rmdir(home));
    *strrchr(home, '/') = 0;
    MUST(!rmdir(home));
}

int main(void)
{
    char lib[64];
    static const char *const variables[] = {"HALAY_CALIBRATION", "XDG_CACHE_HOME",
                                            "SLURM_CLUSTER_NAME", "HALAY_TRANSPORT"};
    for (int i = 0; i < 4; i++)
        unsetenv(variables[i]);
    MUST(mkdtemp(folder));
    snprintf(lib, sizeof lib, "%s/lib", folder);
    MUST(!mkdir(lib, 0700));
    snprintf(library, sizeof library, "%s/lib/libhalay.so", folder);
    strcat(lib, "/halay");
    MUST(!mkdir(lib, 0700));
    test_places();
    test_kinds();
    test_files();
    MUST(!rmdir(lib));
    *strrchr(lib, '/') = 0;
    MUST(!rmdir(lib) && !rmdir(folder));
    return 0;
}
