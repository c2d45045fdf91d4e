/* SPDX-License-Identifier: Apache-2.0 */
/* The table of nodes, as a rank gets it from rank 0: its head's numbers, then its bytes. */
#include "boot/tcp/tcp.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    const struct hly_boot_key key = {0};
    struct hly_boot_identity id = {.listen_fd = -1};
    struct hly_boot_answer answer = {.nranks = 1 + fuzz_byte(&f)};
    answer.nnodes = fuzz_word(&f);
    answer.nruns = fuzz_word(&f);
    answer.nothers = fuzz_word(&f);
    answer.nprocesses = fuzz_word(&f);
    answer.bytes = (uint32_t)f.left;
    char *table = fuzz_text(&f);
    if (hly_boot_table_read(&key, &answer, table, &id) == HALAY_OK) {
        for (int r = 0; r < id.nranks; r++) {
            halay_place_t place = {.size = sizeof(place)};
            halay_boot_info_t info = {.size = sizeof(info), .rank = r};
            FUZZ_WANT(hly_boot_places_get(&id.places, r, &place) == HALAY_OK);
            hly_boot_places_info(&id.places, &info);
            FUZZ_WANT(info.local_rank < info.local_nranks && info.node < info.nnodes);
        }
    }
    hly_boot_identity_finish(&id);
    free(table);
    return 0;
}
