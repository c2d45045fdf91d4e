/* SPDX-License-Identifier: Apache-2.0 */
/* root.c - the kernel's files, read below a root: this machine's, or a tree that stands for one. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

#define PATH_BYTES 4096

static void path_of(const struct hly_probe *p, char path[PATH_BYTES], const char *format,
                    va_list list)
{
    int n = snprintf(path, PATH_BYTES, "%.2000s", p->root);
    vsnprintf(path + n, PATH_BYTES - (size_t)n, format, list);
}

bool hly_read(const struct hly_probe *p, char *text, size_t bytes, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list list;
    va_start(list, format);
    path_of(p, path, format, list);
    va_end(list);
    *text = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    size_t n = fread(text, 1, bytes - 1, file);
    bool good = !ferror(file); /* sysfs answers EINVAL for an entry that is empty */
    fclose(file);
    while (n && isspace((unsigned char)text[n - 1]))
        n--;
    text[n] = '\0';
    return good;
}

bool hly_usable(const struct hly_probe *p, const char *format, ...)
{
    char path[PATH_BYTES];
    va_list list;
    va_start(list, format);
    path_of(p, path, format, list);
    va_end(list);
    return access(path, R_OK | W_OK) == 0;
}

/* "10" after "9" */
static int compare_names(const void *a, const void *b)
{
    return strverscmp(a, b);
}

int hly_list(const struct hly_probe *p, struct hly_names *names, const char *format, ...)
{
    char path[PATH_BYTES];
    const struct dirent *entry;
    va_list list;
    va_start(list, format);
    path_of(p, path, format, list);
    va_end(list);
    names->n = 0;
    DIR *folder = opendir(path);
    while (folder && names->n < HLY_NAMES && (entry = readdir(folder)))
        if (entry->d_name[0] != '.')
            snprintf(names->name[names->n++], sizeof names->name[0], "%.63s", entry->d_name);
    if (folder)
        closedir(folder);
    qsort(names->name, (size_t)names->n, sizeof names->name[0], compare_names);
    return names->n;
}

bool hly_line(const char *text, const char *key, char *value, size_t bytes)
{
    size_t length = strlen(key);
    *value = '\0';
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length))
            continue;
        line += length;
        line += strspn(line, ": \t");
        snprintf(value, bytes, "%.*s", (int)strcspn(line, "\n"), line);
        return true;
    }
    return false;
}

uint64_t hly_memory_bytes(const struct hly_probe *p)
{
    char memory[4096], total[64];
    hly_read(p, memory, sizeof memory, "/proc/meminfo");
    hly_line(memory, "MemTotal", total, sizeof total);
    return strtoull(total, NULL, 10) * 1024;
}

const char *hly_bytes_text(uint64_t bytes, char text[32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof units[0]) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 32, value < 10 && unit ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}
