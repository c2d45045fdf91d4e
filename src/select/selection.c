/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selection.c - what a selection is made of: names (HALAY_ALGORITHM), rows of a file
 * (HALAY_SELECTION), constants (HALAY_MODEL), and select.c's table. Its hash covers what was
 * understood, not the text: ranks may read copies with other comments.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "select/select.h"

struct reader {
    char *error;
    size_t error_bytes;
    const char *path; /* of the rows */
    uint32_t line;
};

__attribute__((format(printf, 2, 3))) static int wrong(const struct reader *reader,
                                                       const char *format, ...)
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
static int find_planner(const struct reader *reader, const char *where, uint32_t collective,
                        const char *name, uint32_t *planner)
{
    char known[256] = "";
    if (!halay_planner_find((halay_collective_t)collective, name, planner))
        return HALAY_OK;
    list_planners((halay_collective_t)collective, known, sizeof(known));
    return wrong(reader, "%s: %s has no algorithm '%s'; it has:%s", where,
                 halay_collective_name((halay_collective_t)collective), name, known);
}

/* One "collective=planner" of HALAY_ALGORITHM. */
static int read_choice(halay_selection_t *s, const struct reader *reader, char *choice)
{
    char known[256] = "";
    uint32_t collective;
    char *equals = strchr(choice, '=');
    if (equals)
        *equals = 0;
    if (equals && find_collective(choice, &collective))
        return find_planner(reader, "HALAY_ALGORITHM", collective, equals + 1,
                            &s->forced[collective]);
    list_collectives(known, sizeof(known));
    return wrong(reader, "HALAY_ALGORITHM: '%s' is not collective=algorithm; collectives: %s",
                 choice, known);
}

static int read_choices(halay_selection_t *s, const struct reader *reader, const char *algorithm)
{
    char *save = NULL, *text = strdup(algorithm);
    int rc = text ? HALAY_OK : HALAY_ENOMEM;
    for (char *t = text ? strtok_r(text, ",", &save) : NULL; !rc && t;
         t = strtok_r(NULL, ",", &save))
        rc = read_choice(s, reader, t);
    free(text);
    return rc;
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

/* allreduce MAX_RANKS MAX_BYTES WHERE PLANNER; sets *planner's row, or leaves it if empty. */
static int read_row(const struct reader *reader, char *line, struct hly_row *row, bool *empty)
{
    char *save = NULL, *word[6], known[256] = "", place[320];
    uint64_t ranks;
    size_t n = 0;
    line[strcspn(line, "#\n")] = 0;
    for (char *t = strtok_r(line, " \t\r", &save); t && n < 6; t = strtok_r(NULL, " \t\r", &save))
        word[n++] = t;
    *empty = n == 0;
    if (n == 0)
        return HALAY_OK;
    *row = (struct hly_row){.number = reader->line, .given = true};
    snprintf(place, sizeof(place), "%.280s, line %u", reader->path, reader->line);
    if (n != 5)
        return wrong(reader,
                     "%s: a row is 'COLLECTIVE MAX_RANKS MAX_BYTES "
                     "any|shared|together|apart|one|oversubscribed|"
                     "single ALGORITHM', "
                     "and this has %zu words",
                     place, n);
    if (!find_collective(word[0], &row->collective)) {
        list_collectives(known, sizeof(known));
        return wrong(reader, "%s: there is no collective '%s'; there are: %s", place, word[0],
                     known);
    }
    if (!read_most(word[1], UINT32_MAX, &ranks) || !read_most(word[2], UINT64_MAX, &row->max_bytes))
        return wrong(reader, "%s: '%s %s': the most ranks and bytes are numbers, or - for any",
                     place, word[1], word[2]);
    row->max_ranks = (uint32_t)ranks;
    if (!read_where(word[3], &row->where))
        return wrong(
            reader,
            "%s: '%s' is not any, shared (several nodes, one with several ranks), together "
            "(shared, each node's ranks consecutive), apart (a node for each rank), one (node), "
            "oversubscribed (one node, more ranks than processors) or single (and one processor)",
            place, word[3]);
    return find_planner(reader, place, row->collective, word[4], &row->planner);
}

static int read_rows(halay_selection_t *s, struct reader *reader, struct hly_row *rows)
{
    char line[512];
    int rc = HALAY_OK;
    FILE *file = fopen(reader->path, "r");
    if (!file)
        return wrong(reader,
                     "HALAY_SELECTION is neither a file that can be read nor 'model': %s: "
                     "%s",
                     reader->path, strerror(errno));
    while (!rc && fgets(line, sizeof(line), file)) {
        bool empty = false;
        reader->line++;
        if (!strchr(line, '\n') && !feof(file))
            rc = wrong(reader, "%s, line %u is too long", reader->path, reader->line);
        else if (reader->line > HLY_SELECT_LINES)
            rc = wrong(reader, "%s has more than %d lines", reader->path, HLY_SELECT_LINES);
        else
            rc = read_row(reader, line, &rows[s->nrows], &empty);
        if (!rc && !empty)
            s->nrows++;
    }
    if (!rc && ferror(file))
        rc = wrong(reader, "%s: %s", reader->path, strerror(errno));
    fclose(file);
    return rc;
}

/* ---------------------------------------------------------------- the whole */

/* Brings rows of one collective together, in their order: s->first[c] .. s->first[c + 1]. */
static void sort_rows(halay_selection_t *s, const struct hly_row *rows)
{
    uint32_t at = 0;
    for (uint32_t c = 0; c < HALAY_COLLECTIVE_COUNT; c++) {
        s->first[c] = at;
        for (uint32_t i = 0; i < s->nrows; i++)
            if (rows[i].collective == c)
                s->rows[at++] = rows[i];
    }
    s->first[HALAY_COLLECTIVE_COUNT] = at;
}

static uint64_t hash_of(const halay_selection_t *s)
{
    uint64_t model[2] = {s->by_model, halay_model_hash(&s->model)};
    uint64_t h = hly_hash(1, s->forced, sizeof(s->forced));
    h = hly_hash(h, model, sizeof(model));
    for (uint32_t i = 0; i < s->nrows; i++) {
        uint64_t row[5] = {s->rows[i].collective, s->rows[i].max_ranks, s->rows[i].max_bytes,
                           s->rows[i].planner, (uint64_t)s->rows[i].where};
        h = hly_hash(h, row, sizeof(row));
    }
    return h;
}

/* A pair's receiver may come long after the sender has given up, and is to be told: so it waits for
 * an answer to what it says, and not only for data that came long ago. Whatever broadcasts do. */
static int find_pair(halay_selection_t *s)
{
    return halay_planner_find(HALAY_BROADCAST, "binomial", &s->pair);
}

static int fill(halay_selection_t *s, struct reader *reader, const char *algorithm,
                const char *model)
{
    const struct hly_plan_row *table;
    uint32_t room = HLY_SELECT_LINES + hly_plan_rows(&table);
    struct hly_row *rows = calloc(room, sizeof(*rows));
    s->rows = calloc(room, sizeof(*s->rows));
    int rc = rows && s->rows ? HALAY_OK : HALAY_ENOMEM;
    if (!rc)
        rc = read_choices(s, reader, algorithm);
    if (!rc && *model) {
        rc = halay_model_read(model, &s->model, reader->error, reader->error_bytes);
        if (rc && reader->error && reader->error_bytes > 13) {
            char why[256];
            snprintf(why, sizeof(why), "%s", reader->error);
            wrong(reader, "HALAY_MODEL: %s", why);
        }
    }
    s->by_model = !strcmp(reader->path, "model");
    if (!rc && *reader->path && !s->by_model)
        rc = read_rows(s, reader, rows);
    if (!rc)
        rc = find_pair(s);
    if (!rc)
        rc = hly_select_rows(rows, room, &s->nrows);
    if (!rc)
        sort_rows(s, rows);
    free(rows);
    return rc;
}

int halay_selection_make(const char *algorithm, const char *rows, const char *model, char *error,
                         size_t error_bytes, halay_selection_t **selection)
{
    struct reader reader = {error, error_bytes, rows ? rows : "", 0};
    if (!selection)
        return HALAY_EINVAL;
    halay_selection_t *s = calloc(1, sizeof(*s));
    if (!s)
        return HALAY_ENOMEM;
    halay_model_default(&s->model);
    for (int c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
        s->forced[c] = UINT32_MAX;
    int rc = fill(s, &reader, algorithm ? algorithm : "", model ? model : "");
    if (rc) {
        halay_selection_free(s);
        return rc;
    }
    s->hash = hash_of(s);
    *selection = s;
    return HALAY_OK;
}

void halay_selection_free(halay_selection_t *s)
{
    if (s)
        free(s->rows);
    free(s);
}

uint64_t halay_selection_hash(const halay_selection_t *selection)
{
    return selection->hash;
}
