/* SPDX-License-Identifier: Apache-2.0 */
/* HALAY_ALGORITHM, HALAY_SELECTION, its file of rows, and a file of constants. */
#include <halay/plan.h>

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    const uint8_t what = fuzz_byte(&f) % 3;
    char error[512] = "";
    halay_selection_t *made = NULL;
    char *text = fuzz_text(&f);
    fuzz_file_feed(f.at, f.left);
    int rc = halay_selection_make(what == 0 ? text : NULL, what == 1 ? FUZZ_PATH : NULL,
                                  what == 2 ? FUZZ_PATH : NULL, error, sizeof(error), &made);
    FUZZ_WANT(rc ? *error : made != NULL);
    if (!rc)
        halay_selection_free(made);
    free(text);
    return 0;
}
