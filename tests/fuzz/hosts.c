/* SPDX-License-Identifier: Apache-2.0 */
/* halayrun's lists of hosts: -H, host files, and what LSF says. */
#include <stdio.h>

#include "fuzz.h"
#include "tools/halayrun/hosts.h"
#include "tools/halayrun/note.h"

void hly_note(const char *format, ...)
{
    (void)format;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    struct hly_hosts hosts = {0};
    const uint8_t what = fuzz_byte(&f) % 4;
    char *text = fuzz_text(&f);
    int rc;
    fuzz_file_feed(f.at, f.left);
    if (what == 0) {
        rc = hly_hosts_parse(&hosts, text);
    } else if (what == 1) {
        rc = hly_hosts_read(&hosts, FUZZ_PATH);
    } else {
        unsetenv("LSB_DJOB_RANKFILE");
        unsetenv("LSB_MCPU_HOSTS");
        setenv(what == 2 ? "LSB_DJOB_RANKFILE" : "LSB_MCPU_HOSTS", what == 2 ? FUZZ_PATH : text, 1);
        rc = hly_hosts_from_lsf(&hosts);
    }
    if (!rc && hosts.n) {
        const int slots = hly_hosts_slots(&hosts), n = slots < 1000 ? slots : 1000;
        FUZZ_WANT(slots >= 1);
        hly_hosts_here(&hosts);
        hly_hosts_fill(&hosts, n);
        FUZZ_WANT(hly_hosts_used(&hosts) >= 1);
    }
    hly_hosts_destroy(&hosts);
    free(text);
    return 0;
}
