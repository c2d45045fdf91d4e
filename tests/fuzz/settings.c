/* SPDX-License-Identifier: Apache-2.0 */
/* HALAY_VERBS, the variables of torchrun and HALAY_RENDEZVOUS, and lists of processors as the
 * kernel writes them. */
#include <stdio.h>

#include "boot/tcp/tcp.h"
#include "fuzz.h"
#include "transports/verbs/rails.h"

static void variables(char *text)
{
    static const char *const names[] = {
        "RANK",        "WORLD_SIZE",       "LOCAL_RANK",       "MASTER_ADDR",
        "MASTER_PORT", "HALAY_RENDEZVOUS", "LOCAL_WORLD_SIZE", "TORCHELASTIC_RUN_ID"};
    const struct hly_boot_log log = {NULL, NULL};
    struct hly_tcp_variables v;
    char *save = NULL, *one = strtok_r(text, "\n", &save);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (one)
            setenv(names[i], one, 1);
        else
            unsetenv(names[i]);
        one = one ? strtok_r(NULL, "\n", &save) : NULL;
    }
    if (hly_tcp_variables(&log, &v) == HALAY_OK)
        FUZZ_WANT(v.rank >= 0 && v.rank < v.nranks && v.nports <= HLY_TCP_PORTS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    const uint8_t what = fuzz_byte(&f) % 3;
    char *text = fuzz_text(&f), *half = strchr(text, '\n');
    if (what == 0) {
        hly_verbs_settings_t s = {.port = -1, .gid = -1, .mtu = -1, .class = -1, .rails = -1};
        char why[HLY_VERBS_TEXT] = "";
        FUZZ_WANT(!hly_verbs_settings_read(text, &s, why) || *why);
    } else if (what == 1) {
        variables(text);
    } else if (half) {
        const char *list = text;
        int first, last;
        *half = 0;
        hly_verbs_lists_meet(text, half + 1);
        while (hly_verbs_list_next(&list, &first, &last))
            continue;
    }
    free(text);
    return 0;
}
