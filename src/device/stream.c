/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stream.c - copies past the caches, in whole lines: what is written is neither read first nor
 * kept. Where a processor has no such stores it is memcpy.
 */
#include <stdint.h>
#include <string.h>

#include "device/device_builtin.h"

#if defined(__x86_64__)
#include <emmintrin.h>

#define LINE 64

void hly_stream_part(void *dst, const void *src, size_t bytes)
{
    char *to = dst;
    const char *from = src;
    size_t head = -(uintptr_t)dst % LINE;
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    size_t lines = (bytes - head) / LINE;
    to += head;
    from += head;
    for (size_t i = 0; i < lines; i++, to += LINE, from += LINE) {
        __m128i part[4];
        memcpy(part, from, LINE);
        for (int k = 0; k < 4; k++)
            _mm_stream_si128((__m128i *)(void *)to + k, part[k]);
    }
    memcpy(to, from, bytes - head - lines * LINE);
}

void hly_stream_end(void)
{
    _mm_sfence();
}
#else
void hly_stream_part(void *dst, const void *src, size_t bytes)
{
    memcpy(dst, src, bytes);
}

void hly_stream_end(void)
{
}
#endif

void hly_stream(void *dst, const void *src, size_t bytes)
{
    hly_stream_part(dst, src, bytes);
    hly_stream_end();
}
