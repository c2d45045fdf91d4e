/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - builds the sentence of notices (text.h). */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct hly_line hly_line(char *text, size_t bytes)
{
    text[0] = '\0';
    return (struct hly_line){.text = text, .bytes = bytes};
}

size_t hly_line_whole(const char *text, size_t most)
{
    size_t end = strnlen(text, most), last = end;
    if (end < most)
        return end;
    while (last && ((unsigned char)text[last - 1] & 0xc0) == 0x80)
        last--;
    if (!last--)
        return end; /* not UTF-8: cuts anywhere */
    const unsigned char lead = (unsigned char)text[last];
    const size_t bytes = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    return last + bytes <= end ? end : last;
}

__attribute__((format(printf, 2, 0))) static void put(struct hly_line *line, const char *format,
                                                      va_list args)
{
    const size_t room = line->bytes - line->used;
    char *to = line->text + line->used;
    const int n = vsnprintf(to, room, format, args);
    if (n >= 0 && (size_t)n < room) {
        line->used += (size_t)n;
        return;
    }
    line->used += n < 0 ? 0 : hly_line_whole(to, room - 1);
    line->text[line->used] = '\0';
    line->bytes = line->used + 1;
}

void hly_line_put(struct hly_line *line, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(line, format, args);
    va_end(args);
}

void hly_line_waited(struct hly_line *line, uint64_t waited_ns, const char *who, ...)
{
    va_list args;
    va_start(args, who);
    put(line, who, args);
    va_end(args);
    hly_line_put(line, " has waited for %.1f s", (double)waited_ns * 1e-9);
}

void hly_line_until(struct hly_line *line, const char *outcome, uint64_t end_ns, uint64_t now_ns)
{
    if (now_ns < end_ns && end_ns - now_ns < HLY_FAR_NS)
        hly_line_put(line, ". If that stays so %s in %.0f s at the latest", outcome,
                     (double)(end_ns - now_ns) * 1e-9);
}

/* Is the name that of a function that does this, as MPI_Recv is of "recv"? */
static bool says(const char *name, const char *does)
{
    const size_t length = strlen(name), end = strlen(does);
    bool same = length >= end;
    for (size_t i = 0; same && i < end; i++)
        same = (name[length - end + i] | 0x20) == does[i]; /* a letter in lower case */
    return same;
}

void hly_line_message(struct hly_line *line, const char *name, enum hly_line_of of, int peer,
                      int tag)
{
    static const char *const verbs[] = {
        [HLY_LINE_RECV] = "recv", [HLY_LINE_PROBE] = "probe", [HLY_LINE_SEND] = "send"};
    if (says(name, verbs[of]))
        hly_line_put(line, "%s(", name);
    else
        hly_line_put(line, "%s%s%s(", name, name[0] ? ": " : "", verbs[of]);
    hly_line_put(line, of == HLY_LINE_SEND ? "dest " : "source ");
    hly_line_put(line, peer < 0 ? "any" : "%d", peer);
    hly_line_put(line, tag < 0 ? ", tag any)" : ", tag %d)", tag);
}

bool hly_line_next(struct hly_line *line, const char *between)
{
    const bool named = line->named < HLY_NAMED_MOST;
    if (named && line->named++)
        hly_line_put(line, "%s", between);
    line->more += !named;
    return named;
}

bool hly_line_ranks(struct hly_line *line, int first, int last)
{
    if (!hly_line_next(line, ", ")) {
        line->more += last - first;
        return false;
    }
    hly_line_put(line, first < last ? "%d-%d" : "%d", first, last);
    return true;
}

void hly_line_process(struct hly_line *line, const char *what, int number, int64_t pid,
                      const char *doing, bool entered)
{
    hly_line_put(line, "%s %d (", what, number);
    if (pid)
        hly_line_put(line, "pid %lld: %s; ", (long long)pid, doing);
    else
        hly_line_put(line, "no process of it is seen; ");
    hly_line_put(line, "%sin halay_init)", entered ? "" : "not ");
}

void hly_line_more(struct hly_line *line, const char *between)
{
    if (line->more)
        hly_line_put(line, "%sand %d more", between, line->more);
    line->named = line->more = 0;
}
