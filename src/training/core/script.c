/* SPDX-License-Identifier: Apache-2.0 */
/*
 * script.c - items in order, found by name, and sorted into groups.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "programme.h"

struct hlt_item *hlt_script_find(const struct hlt_script *script, uint64_t name)
{
    if (!script->count)
        return NULL;
    for (size_t at = name & script->mask; script->index[at]; at = (at + 1) & script->mask) {
        struct hlt_item *item = &script->items[script->index[at] - 1];
        if (item->says.name == name)
            return item;
    }
    return NULL;
}

static void script_index(struct hlt_script *script, size_t item)
{
    size_t at = script->items[item].says.name & script->mask;
    while (script->index[at])
        at = (at + 1) & script->mask;
    script->index[at] = (uint32_t)item + 1;
}

int hlt_script_reserve(struct hlt_script *script, size_t room)
{
    size_t size = 64;
    if (room <= script->room)
        return 0;
    while (size < 2 * room)
        size *= 2;
    struct hlt_item *items = realloc(script->items, room * sizeof(*items));
    if (!items)
        return HALAY_ENOMEM;
    script->items = items;
    uint32_t *index = calloc(size, sizeof(*index));
    if (!index)
        return HALAY_ENOMEM;
    free(script->index);
    script->index = index;
    script->mask = size - 1;
    script->room = room;
    for (size_t i = 0; i < script->count; i++)
        script_index(script, i);
    return 0;
}

int hlt_script_add(struct hlt_script *script, const struct hlt_item *item)
{
    assert(!hlt_script_find(script, item->says.name));
    if (script->count == script->room &&
        hlt_script_reserve(script, script->room ? 2 * script->room : 64))
        return HALAY_ENOMEM;
    script->items[script->count] = *item;
    script_index(script, script->count++);
    return 0;
}

static void script_clear(struct hlt_script *script)
{
    if (script->count)
        memset(script->index, 0, (script->mask + 1) * sizeof(*script->index));
    script->count = 0;
}

void hlt_script_free(struct hlt_script *script)
{
    free(script->items);
    free(script->index);
}

struct hlt_share *hlt_programme_share(struct hlt_programme *programme, uint64_t series)
{
    struct hlt_share *share = programme->shares, *end = share + programme->nshares;
    while (share < end && share->series != series)
        share++;
    return share < end ? share : NULL;
}

/* ------------------------------------------------------------------ groups */

/* Sorts items [from, to), which are one run, into groups. The script has room for all of them. */
struct sorter {
    struct hlt_programme *programme;
    const struct hlt_item *items;
    char *taken;
    size_t from, to, most; /* most: bytes of a group */
};

static void sorter_take(struct sorter *sorter, struct hlt_group *group, size_t i)
{
    const int rc = hlt_script_add(&sorter->programme->script, &sorter->items[i]);
    assert(!rc);
    (void)rc;
    sorter->taken[i] = 1;
    group->count++;
}

/*
 * Adds the following tensors that can be fused. Stops at the first one that does not
 * fit, so that no tensor is launched before an earlier one of its kind.
 */
static void fused_fill(struct sorter *sorter, struct hlt_group *group)
{
    const struct hlt_announcement *first = &sorter->items[sorter->from].says;
    size_t left = sorter->most / halay_type_bytes(hlt_announcement_type(first));
    for (size_t i = sorter->from; i < sorter->to; i++) {
        const struct hlt_item *item = &sorter->items[i];
        if (sorter->taken[i] || !hlt_fuse_alike(first, &item->says))
            continue;
        if (item->says.count > left)
            return;
        left -= item->says.count;
        sorter_take(sorter, group, i);
    }
}

static void voted_fill(int nranks, struct sorter *sorter, struct hlt_group *group)
{
    for (size_t i = sorter->from; i < sorter->to && group->count < HLT_VOTE_ITEMS; i++) {
        const struct hlt_item *item = &sorter->items[i];
        if (sorter->taken[i] || hlt_fuse_takes(nranks, &item->says, sorter->most))
            continue;
        group->rows |= hlt_announcement_kind(&item->says) == HLT_KIND_ALLGATHER;
        sorter_take(sorter, group, i);
    }
}

/* Sorts one run. Groups are in the order of their first items. */
static void run_sort(int nranks, struct sorter *sorter)
{
    for (; sorter->from < sorter->to; sorter->from++) {
        struct hlt_programme *programme = sorter->programme;
        if (sorter->taken[sorter->from])
            continue;
        struct hlt_group *group = &programme->groups[programme->ngroups++];
        *group = (struct hlt_group){.first = (uint32_t)programme->script.count};
        group->fused = hlt_fuse_takes(nranks, &sorter->items[sorter->from].says, sorter->most);
        if (group->fused)
            fused_fill(sorter, group);
        else
            voted_fill(nranks, sorter, group);
        assert(group->count);
        for (size_t i = group->first; i < programme->script.count; i++)
            programme->script.items[i].group = (uint32_t)(programme->ngroups - 1);
    }
}

void hlt_programme_fill(int nranks, struct hlt_programme *programme, const struct hlt_item *items,
                        char *taken, size_t count, size_t most)
{
    struct sorter sorter = {.programme = programme, .items = items, .taken = taken, .most = most};
    script_clear(&programme->script);
    programme->ngroups = 0;
    while (sorter.to < count) {
        while (sorter.to < count && items[sorter.to].run == items[sorter.from].run)
            sorter.to++;
        run_sort(nranks, &sorter);
    }
    assert(programme->script.count == count);
}

int hlt_programme_group(int nranks, struct hlt_programme *programme, size_t most)
{
    const size_t count = programme->script.count;
    struct hlt_item *items = malloc(count * sizeof(*items));
    char *taken = calloc(count, 1);
    if (items && taken) {
        for (size_t i = 0; i < count; i++)
            items[programme->script.items[i].place] = programme->script.items[i];
        hlt_programme_fill(nranks, programme, items, taken, count, most);
    }
    const int rc = items && taken ? 0 : HALAY_ENOMEM;
    free(items);
    free(taken);
    return rc;
}

void hlt_script_cut(struct hlt_script *script, size_t kept)
{
    size_t from = script->count - kept;
    script_clear(script);
    for (size_t i = 0; i < kept; i++) {
        script->items[i] = script->items[from + i];
        script_index(script, script->count++);
    }
}
