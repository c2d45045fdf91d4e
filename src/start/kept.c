/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.c - rows that halay-bench calibrate has kept for nodes like this one. They are read before
 * the ranks meet, which compares their hash, and used where all ranks have the same; whatever else
 * is the matter, the table's rows are used, and it is no error (docs/decisions/plans.md#0132).
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "../../common/calibration.h"
#include "select/select.h"
#include "start/start.h"

void hly_kept_read(halay_context_t *ctx)
{
    struct hly_settings *s = &ctx->settings;
    struct hly_kept *kept = &s->kept;
    static const char head[] = HLY_CALIBRATION_HEAD; /* lies where the library does */
    Dl_info library;
    char wrong[sizeof(kept->why) / 2] = "";
    if (*s->algorithm || *s->rows || hly_calibration_off())
        return;
    const char *at = dladdr(head, &library) ? library.dli_fname : "";
    FILE *file =
        hly_calibration_open(at, halay_version(), kept->path, kept->why, sizeof(kept->why));
    kept->looked = true;
    if (!file)
        return;
    if (hly_selection_read(file, kept->path, wrong, sizeof(wrong), &kept->selection))
        snprintf(kept->why, sizeof(kept->why),
                 "the calibration is not used: %s; halay-bench calibrate makes it anew", wrong);
    else
        ctx->info.kept = halay_selection_hash(kept->selection);
    fclose(file);
}

void hly_kept_agree(halay_context_t *ctx)
{
    struct hly_kept *kept = &ctx->settings.kept;
    const bool first = ctx->info.rank == 0;
    if (!kept->looked)
        return;
    if (*kept->why) {
        hly_log(ctx, first ? HLY_WARN : HLY_INFO, "%s", kept->why);
    } else if (!kept->selection) {
        hly_log(ctx, HLY_INFO, "no calibration: there is no %s; halay-bench calibrate makes one",
                kept->path);
    } else if (ctx->info.kept_alike > 0) {
        hly_log(ctx, HLY_INFO, "algorithms by the calibration %s", kept->path);
        halay_selection_free(ctx->settings.selection);
        ctx->settings.selection = kept->selection;
        kept->selection = NULL;
        kept->used = true;
    } else if (ctx->info.kept_alike < 0) {
        hly_log(
            ctx, first ? HLY_WARN : HLY_INFO,
            "the calibration %s is not used: not all ranks have it. HALAY_CALIBRATION=DIR names "
            "a folder that all nodes see, off ignores it; with HALAY_DEBUG=info each rank says "
            "what it has",
            kept->path);
    } else {
        hly_log(ctx, HLY_INFO, "the calibration %s is not used: the ranks have not compared it",
                kept->path);
    }
    halay_selection_free(kept->selection);
    kept->selection = NULL;
}
