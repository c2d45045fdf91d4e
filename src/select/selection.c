/* SPDX-License-Identifier: Apache-2.0 */
/*
 * selection.c - what a selection is made of: names (HALAY_ALGORITHM), rows of a file
 * (HALAY_SELECTION), constants (model:FILE), and select.c's table. Its hash covers what was
 * understood, not the text: ranks may read copies with other comments.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../common/calibration.h"
#include "comm/comm.h"
#include "select/select.h"

/* ---------------------------------------------------------------- what people write */

static int read_choices(halay_selection_t *s, const struct hly_row_reader *reader,
                        const char *algorithm)
{
    char *save = NULL, *text = strdup(algorithm);
    int rc = text ? HALAY_OK : HALAY_ENOMEM;
    for (char *t = text ? strtok_r(text, ",", &save) : NULL; !rc && t;
         t = strtok_r(NULL, ",", &save))
        rc = hly_row_choice(reader, t, s->forced);
    free(text);
    return rc;
}

static int read_rows(halay_selection_t *s, struct hly_row_reader *reader, FILE *file,
                     struct hly_row *rows)
{
    static const char head[] = HLY_CALIBRATION_HEAD;
    char line[512];
    int rc = HALAY_OK;
    while (!rc && fgets(line, sizeof(line), file)) {
        bool empty = false;
        if (++reader->line == 1)
            reader->kept = !strncmp(line, head, sizeof(head) - 1);
        if (!strchr(line, '\n') && !feof(file))
            rc = hly_row_wrong(reader, "%s, line %u is too long", reader->path, reader->line);
        else if (reader->line > HLY_SELECT_LINES)
            rc = hly_row_wrong(reader, "%s has more than %d lines", reader->path, HLY_SELECT_LINES);
        else
            rc = hly_row_read(reader, line, &rows[s->nrows], &empty);
        if (!rc && !empty)
            s->nrows++;
    }
    if (!rc && ferror(file))
        rc = hly_row_wrong(reader, "%s: %s", reader->path, strerror(errno));
    return rc;
}

static int read_given(halay_selection_t *s, struct hly_row_reader *reader, struct hly_row *rows)
{
    FILE *file = fopen(reader->path, "r");
    if (!file)
        return hly_row_wrong(reader,
                             "HALAY_SELECTION is neither a file that can be read nor 'model' nor "
                             "'model:FILE': %s: "
                             "%s",
                             reader->path, strerror(errno));
    int rc = read_rows(s, reader, file, rows);
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
        const struct hly_row *r = &s->rows[i];
        uint64_t row[9] = {r->collective, r->min_ranks, r->max_ranks,
                           r->nodes,      r->min_bytes, r->max_bytes,
                           r->planner,    r->kept,      (uint64_t)r->where};
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

static int fill(halay_selection_t *s, struct hly_row_reader *reader, const char *algorithm,
                const char *model, FILE *file)
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
            hly_row_wrong(reader, "HALAY_SELECTION: model:%s", why);
        }
    }
    s->by_model = !strcmp(reader->path, "model");
    if (!rc && file)
        rc = read_rows(s, reader, file, rows);
    else if (!rc && *reader->path && !s->by_model)
        rc = read_given(s, reader, rows);
    if (!rc)
        rc = find_pair(s);
    if (!rc)
        rc = hly_select_rows(rows, room, &s->nrows);
    if (!rc)
        sort_rows(s, rows);
    free(rows);
    return rc;
}

static int make(struct hly_row_reader *reader, const char *algorithm, const char *model, FILE *file,
                halay_selection_t **selection)
{
    halay_selection_t *s = calloc(1, sizeof(*s));
    if (!s)
        return HALAY_ENOMEM;
    halay_model_default(&s->model);
    for (int c = 0; c < HALAY_COLLECTIVE_COUNT; c++)
        s->forced[c] = UINT32_MAX;
    int rc = fill(s, reader, algorithm ? algorithm : "", model ? model : "", file);
    if (rc) {
        halay_selection_free(s);
        return rc;
    }
    s->hash = hash_of(s);
    *selection = s;
    return HALAY_OK;
}

int halay_selection_make(const char *algorithm, const char *rows, const char *model, char *error,
                         size_t error_bytes, halay_selection_t **selection)
{
    static const char by_file[] = "model:";
    struct hly_row_reader reader = {error, error_bytes, rows ? rows : "", 0, false};
    if (!strncmp(reader.path, by_file, sizeof(by_file) - 1)) {
        model = reader.path + sizeof(by_file) - 1;
        reader.path = "model";
        if (!*model)
            return hly_row_wrong(&reader, "HALAY_SELECTION is 'model:', which names no file");
    }
    return selection ? make(&reader, algorithm, model, NULL, selection) : HALAY_EINVAL;
}

int hly_selection_read(FILE *file, const char *path, char *error, size_t error_bytes,
                       halay_selection_t **selection)
{
    struct hly_row_reader reader = {error, error_bytes, path, 0, false};
    return make(&reader, NULL, NULL, file, selection);
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
