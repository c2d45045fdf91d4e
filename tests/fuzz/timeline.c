/* SPDX-License-Identifier: Apache-2.0 */
/* Names in the timeline: whatever they are, each is one string of JSON. */
#include "fuzz.h"
#include "src/training/shell/timeline_write.c" /* NOLINT(bugprone-suspicious-include) */

/* The end of a string that begins at `at`, or NULL. */
static const char *string(const char *at, const char *end)
{
    if (at == end || *at++ != '"')
        return NULL;
    for (; at < end && *at != '"'; at++) {
        if ((unsigned char)*at < ' ')
            return NULL;
        if (*at == '\\' && (end - at < 6 || at[1] != 'u'))
            return NULL;
        at += *at == '\\' ? 5 : 0;
    }
    return at < end ? at + 1 : NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct hlt_timeline timeline;
    static const char key[] = "\"args\":{\"name\":";
    struct fuzz f = {data, bytes < 4096 ? bytes : 4096};
    char *name = fuzz_text(&f);
    timeline.fd = FUZZ_FD;
    timeline.used = timeline.error = 0;
    timeline.written = 1;
    named(&timeline, "thread_name", 17, name);
    FUZZ_WANT(timeline.used < sizeof(timeline.buffer));
    const char *end = timeline.buffer + timeline.used;
    const char *at = memmem(timeline.buffer, timeline.used, key, sizeof(key) - 1);
    FUZZ_WANT(at);
    at = string(at + sizeof(key) - 1, end);
    FUZZ_WANT(at && end - at == 2 && !memcmp(at, "}}", 2));
    free(name);
    return 0;
}
