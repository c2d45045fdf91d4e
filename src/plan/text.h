/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text that is written piece by piece, and counts on when the room is used up. */
#ifndef HALAY_PLAN_TEXT_H
#define HALAY_PLAN_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

struct hly_text {
    char *at;
    size_t room, used;
};

__attribute__((format(printf, 2, 3))) static inline void hly_text_put(struct hly_text *text,
                                                                      const char *format, ...)
{
    size_t left = text->used < text->room ? text->room - text->used : 0;
    va_list args;

    va_start(args, format);
    int length = vsnprintf(left ? text->at + text->used : NULL, left, format, args);
    va_end(args);
    if (length > 0) {
        text->used += (size_t)length;
    }
}

/* To its first sentence, and whole words of that, in so many bytes. */
static inline void hly_text_shorten(char *text, size_t bytes)
{
    char *end = strstr(text, ". "); /* the advice follows, which whoever names this gives, too */
    if (end)
        *end = '\0';
    if (strlen(text) <= bytes)
        return;
    text[bytes - 3] = '\0';
    end = strrchr(text, ' ');
    strcpy(end ? end : text + bytes - 3, "...");
}

#endif
