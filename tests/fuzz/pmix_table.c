/* SPDX-License-Identifier: Apache-2.0 */
/* The table of nodes that a node's first rank hands out, and the record of a node. */
#include "fuzz.h"
#include "pmix/table.c" /* NOLINT(bugprone-suspicious-include) */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    struct hly_pmix_table table = {0};
    const int nranks = 1 + fuzz_byte(&f);
    char *copy = fuzz_text(&f);
    table.at = copy;
    table.bytes = f.left;
    if (f.left >= sizeof(struct head) && read_table(&table, nranks))
        for (int r = 0; r < nranks; r++) {
            halay_place_t place = {.size = sizeof(place)};
            FUZZ_WANT(hly_boot_places_get(&table.places, r, &place) == HALAY_OK);
        }
    free(copy);
    return 0;
}
