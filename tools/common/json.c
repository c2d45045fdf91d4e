/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - text as JSON. */
#include "json.h"

void hly_json_string(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < ' ')
            fprintf(out, "\\u%04x", c);
        else
            fputc(c < 0x7f ? c : '?', out);
    }
    fputc('"', out);
}
