/* SPDX-License-Identifier: Apache-2.0 */
/* autotune.c - reads HALAY_AUTOTUNE: at halay_init, to refuse it; and in each trainer. */
#include <string.h>

#include "autotune.h"
#include "settings.h"

#define STEPS  10 /* as Horovod's: 3 samples of 10 steps before the first that counts */
#define WARMUP 3

static bool take(struct hly_autotune *a, const char *word, size_t length)
{
    const struct {
        const char *key;
        uint64_t least, most, *number;
    } rows[] = {{"steps:", 1, HLY_AUTOTUNE_STEPS_MAX, &a->steps},
                {"warmup:", 0, HLY_AUTOTUNE_WARMUP_MAX, &a->warmup},
                {"group:", 0, HLY_AUTOTUNE_GROUP_MAX, &a->group_bytes}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const size_t key = strlen(rows[i].key);
        if (length < key || strncmp(word, rows[i].key, key) != 0)
            continue;
        a->on = a->on || rows[i].number != &a->group_bytes;
        return hly_setting_number(word + key, length - key, rows[i].least, rows[i].most,
                                  rows[i].number);
    }
    const bool again = length == 5 && !strncmp(word, "again", 5);
    a->again = a->again || again;
    a->on = a->on || again || (length == 1 && *word == '1');
    return again || (length == 1 && *word == '1');
}

bool hly_autotune_read(const char *text, struct hly_autotune *autotune)
{
    *autotune =
        (struct hly_autotune){.steps = STEPS, .warmup = WARMUP, .group_bytes = HLY_AUTOTUNE_UNSET};
    if (!text || !*text || !strcmp(text, "0"))
        return true;
    for (const char *word = text;; word++) {
        const size_t length = strcspn(word, ",");
        if (!strncmp(word, "log:", 4)) { /* a file's name may have commas */
            autotune->on = true;
            autotune->log = word + 4;
            return *autotune->log;
        }
        if (!take(autotune, word, length))
            return false;
        word += length;
        if (!*word)
            return true;
    }
}
