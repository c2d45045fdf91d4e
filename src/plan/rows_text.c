/* SPDX-License-Identifier: Apache-2.0 */
/* rows_text.c - rows, and algorithms asked for by name, as people write them. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

int hly_row_wrong(const struct hly_row_reader *reader, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (reader->error)
        vsnprintf(reader->error, reader->error_bytes, format, args);
    va_end(args);
    return HALAY_EINVAL;
}

/* ---------------------------------------------------------------- names */

static void list_planners(halay_collective_t collective, char *text, size_t bytes)
{
    for (uint32_t i = 0; i < halay_planner_count(); i++) {
        const halay_planner_info_t *info = halay_planner_get(i);
        size_t used = strlen(text);
        if (info->collective == (uint32_t)collective && used < bytes)
            snprintf(text + used, bytes - used, " %s", info->name);
    }
}

static void list_collectives(char *text, size_t bytes)
{
    for (int c = 0; c < HALAY_COLLECTIVE_COUNT; c++) {
        size_t used = strlen(text);
        snprintf(text + used, bytes - used, "%s%s", c ? ", " : "",
                 halay_collective_name((halay_collective_t)c));
    }
}

static bool find_collective(const char *name, uint32_t *collective)
{
    for (uint32_t c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
        if (!strcmp(name, halay_collective_name((halay_collective_t)c))) {
            *collective = c;
            return true;
        }
    return false;
}

/* `where` says what is wrong: the variable, or file and line. */
static int find_planner(const struct hly_row_reader *reader, const char *where, uint32_t collective,
                        const char *name, uint32_t *planner)
{
    char known[256] = "";
    if (!halay_planner_find((halay_collective_t)collective, name, planner))
        return HALAY_OK;
    list_planners((halay_collective_t)collective, known, sizeof(known));
    return hly_row_wrong(reader, "%s: %s has no algorithm '%s'; it has:%s", where,
                         halay_collective_name((halay_collective_t)collective), name, known);
}

int hly_row_choice(const struct hly_row_reader *reader, char *choice, uint32_t forced[])
{
    char known[256] = "";
    uint32_t collective;
    char *equals = strchr(choice, '=');
    if (equals)
        *equals = 0;
    if (equals && find_collective(choice, &collective))
        return find_planner(reader, "HALAY_ALGORITHM", collective, equals + 1, &forced[collective]);
    list_collectives(known, sizeof(known));
    return hly_row_wrong(reader,
                         "HALAY_ALGORITHM: '%s' is not collective=algorithm; collectives: %s",
                         choice, known);
}

/* ---------------------------------------------------------------- rows of a file */

/* "-": any; else a number, with K, M or G. */
static bool read_most(const char *text, uint64_t any, uint64_t *most)
{
    static const char units[] = "KMG";
    char *end;
    if (!strcmp(text, "-")) {
        *most = any;
        return true;
    }
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    const char *unit = *end ? strchr(units, *end) : NULL;
    unsigned shift = unit ? 10u * (unsigned)(unit - units + 1) : 0;
    if (errno || *text < '0' || *text > '9' || end[unit != NULL] || n > UINT64_MAX >> shift)
        return false;
    *most = (uint64_t)n << shift;
    return *most <= any;
}

/* "16", "4-16", "-". */
static bool read_range(char *text, uint64_t any, uint64_t *least, uint64_t *most)
{
    char *dash = strcmp(text, "-") ? strchr(text, '-') : NULL;
    *least = 0;
    if (dash)
        *dash = 0;
    const bool good =
        read_most(dash ? dash + 1 : text, any, most) && (!dash || read_most(text, any, least));
    if (dash)
        *dash = '-';
    return good && *least <= *most;
}

/* The same, also with "/2" after it. */
static bool read_ranks(char *text, struct hly_row *row)
{
    uint64_t least = 0, most = 0, nodes = 0;
    char *slash = strchr(text, '/');
    if (slash)
        *slash = 0;
    bool good = read_range(text, UINT32_MAX, &least, &most);
    if (slash) {
        *slash = '/';
        good = good && read_most(slash + 1, UINT32_MAX, &nodes) && nodes && nodes < UINT32_MAX;
    }
    row->min_ranks = (uint32_t)least;
    row->max_ranks = (uint32_t)most;
    row->nodes = (uint32_t)nodes;
    return good;
}

static bool read_where(const char *text, enum hly_where *where)
{
    static const char *const names[] = {"any", "shared",         "apart", "together",
                                        "one", "oversubscribed", "single"};
    for (int i = 0; i < 7; i++)
        if (!strcmp(text, names[i])) {
            *where = (enum hly_where)i;
            return true;
        }
    return false;
}

int hly_row_read(const struct hly_row_reader *reader, char *line, struct hly_row *row, bool *empty)
{
    char *save = NULL, *word[6], known[256] = "", place[320];
    size_t n = 0;
    line[strcspn(line, "#\n")] = 0;
    for (char *t = strtok_r(line, " \t\r", &save); t && n < 6; t = strtok_r(NULL, " \t\r", &save))
        word[n++] = t;
    *empty = n == 0;
    if (n == 0)
        return HALAY_OK;
    *row = (struct hly_row){.number = reader->line, .given = true, .kept = reader->kept};
    snprintf(place, sizeof(place), "%.280s, line %u", reader->path, reader->line);
    if (n != 5)
        return hly_row_wrong(reader,
                             "%s: a row is 'COLLECTIVE MAX_RANKS MAX_BYTES "
                             "any|shared|together|apart|one|oversubscribed|"
                             "single ALGORITHM', "
                             "and this has %zu words",
                             place, n);
    if (!find_collective(word[0], &row->collective)) {
        list_collectives(known, sizeof(known));
        return hly_row_wrong(reader, "%s: there is no collective '%s'; there are: %s", place,
                             word[0], known);
    }
    if (!read_ranks(word[1], row) ||
        !read_range(word[2], UINT64_MAX, &row->min_bytes, &row->max_bytes))
        return hly_row_wrong(reader,
                             "%s: '%s %s': the most ranks and bytes are numbers, or LEAST-MOST, or "
                             "- for any; ranks may have /NODES behind",
                             place, word[1], word[2]);
    if (!read_where(word[3], &row->where))
        return hly_row_wrong(
            reader,
            "%s: '%s' is not any, shared (several nodes, one with several ranks), together "
            "(shared, each node's ranks consecutive), apart (a node for each rank), one (node), "
            "oversubscribed (one node, more ranks than processors) or single (and one processor)",
            place, word[3]);
    return find_planner(reader, place, row->collective, word[4], &row->planner);
}
