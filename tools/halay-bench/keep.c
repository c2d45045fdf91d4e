/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.c - of `halay-bench calibrate`: the file of rows for this kind of nodes. It has a block for
 * each number of ranks that has been measured, which begins with a line of the block's key; a new
 * one takes the place of the old one. The file is replaced as a whole: who reads it meanwhile has
 * the old one or the new one.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../../common/calibration.h"
#include "../common/library.h"
#include "bench.h"

#define BLOCK      "# measured "
#define LINES_MOST 900 /* of blocks; the oldest ones go */

static const char *where_of(const halay_topology_t *t, bool scattered)
{
    if (t->nnodes < 2)
        return !t->oversubscribed ? "one" : t->oversubscribed == 1 ? "oversubscribed" : "single";
    return t->nnodes == t->nranks ? "apart" : scattered ? "shared" : "together";
}

/* "# measured 4-4/1 one:" */
static void key_of(const halay_topology_t *t, bool scattered, char *key, size_t bytes)
{
    snprintf(key, bytes, BLOCK "%d-%d/%d %s:", t->nranks, t->nranks, t->nnodes,
             where_of(t, scattered));
}

static void write_block(FILE *to, const halay_topology_t *t, bool scattered,
                        const struct hly_finding *finding)
{
    char key[80], date[32] = "?";
    const time_t now = time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day))
        strftime(date, sizeof date, "%Y-%m-%d", &day);
    key_of(t, scattered, key, sizeof key);
    fprintf(to, "%s %s, %s, transport %s%s\n", key, date, t->host, t->transport,
            finding->cut ? ", not all sizes" : "");
    for (int i = 0; i < finding->n; i++) {
        const struct hly_found *f = &finding->row[i];
        fprintf(to, "%s %d-%d/%d %llu-%llu %s %s # %.1f us, %s %.1f us\n",
                halay_collective_name((halay_collective_t)f->collective), t->nranks, t->nranks,
                t->nnodes, (unsigned long long)f->least, (unsigned long long)f->most,
                where_of(t, scattered), halay_planner_get(f->chosen)->name, f->chosen_ns / 1e3,
                halay_planner_get(f->by_default)->name, f->default_ns / 1e3);
    }
}

/* The other blocks of the old file; of too many the first ones, which are the oldest, are left. */
static void copy_blocks(FILE *from, FILE *to, const char *key)
{
    char line[512];
    int lines = 0, skip = 0;
    bool other = false;
    for (int pass = 0; pass < 2; pass++) {
        rewind(from);
        other = false;
        while (fgets(line, sizeof line, from)) {
            if (!strncmp(line, BLOCK, sizeof BLOCK - 1))
                other = strncmp(line, key, strlen(key)) != 0;
            if (!other)
                continue;
            if (pass == 0)
                lines++;
            else if (skip > 0)
                skip--;
            else
                fputs(line, to);
        }
        skip = lines > LINES_MOST ? lines - LINES_MOST : 0;
    }
}

/* -errno */
static int write_file(const char *path, const char *library, const halay_topology_t *t,
                      bool scattered, const struct hly_finding *finding)
{
    char temporary[HLY_CALIBRATION_PATH + 16], text[HLY_CALIBRATION_TEXT], key[80];
    char old_path[HLY_CALIBRATION_PATH], why[768];
    int rc = hly_calibration_make_folder(path);
    snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
    int fd = rc ? -1 : mkstemp(temporary);
    if (fd < 0)
        return rc ? rc : -errno;
    FILE *to = fdopen(fd, "w");
    if (!to) {
        close(fd);
        unlink(temporary);
        return -ENOMEM;
    }
    key_of(t, scattered, key, sizeof key);
    hly_calibration_kind(text);
    fprintf(to, HLY_CALIBRATION_HEAD "%s: rows as of HALAY_SELECTION\n# %s\n", halay_version(),
            text);
    FILE *old = hly_calibration_open(library, halay_version(), old_path, why, sizeof why);
    if (old && !strcmp(old_path, path))
        copy_blocks(old, to, key);
    if (old)
        fclose(old);
    write_block(to, t, scattered, finding);
    const mode_t mask = umask(077);
    umask(mask);
    const bool bad = fflush(to) || ferror(to) || fchmod(fd, 0644 & ~mask) || fsync(fd);
    rc = bad ? -errno : 0;
    rc = fclose(to) && !rc ? -errno : rc;
    if (!rc && rename(temporary, path))
        rc = -errno;
    if (rc)
        unlink(temporary);
    return rc;
}

int hly_bench_keep(const halay_topology_t *t, bool scattered, bool mixed,
                   const struct hly_finding *finding)
{
    char library[HLY_PATH_BYTES], path[HLY_CALIBRATION_PATH] = "", why[256] = "";
    hly_library_path(library);
    if (mixed)
        snprintf(why, sizeof why, "the nodes of this job are of several kinds; run it on one kind");
    else if (hly_calibration_off())
        snprintf(why, sizeof why, "HALAY_CALIBRATION is off");
    else if (!hly_calibration_place(0, library, path) || !*path)
        snprintf(why, sizeof why,
                 "there is no home directory; HALAY_CALIBRATION=DIR names a folder");
    else {
        const int rc = write_file(path, library, t, scattered, finding);
        if (rc)
            snprintf(why, sizeof why, "%.160s: %s; HALAY_CALIBRATION=DIR names another folder",
                     path, strerror(-rc));
    }
    if (*why) {
        fprintf(stderr, "halay-bench: the rows are not kept: %s\n", why);
        write_block(stdout, t, scattered, finding);
        return 1;
    }
    printf("%s: %d row%s for %d ranks on %d node%s\n", path, finding->n, finding->n == 1 ? "" : "s",
           t->nranks, t->nnodes, t->nnodes == 1 ? "" : "s");
    return 0;
}
