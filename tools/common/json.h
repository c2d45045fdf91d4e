/* SPDX-License-Identifier: Apache-2.0 */
/* json.h - text as JSON. */
#ifndef HLY_JSON_H
#define HLY_JSON_H

#include <stdio.h>

/* With quotes and escapes. What is no ASCII becomes "?": kernel files promise no encoding. */
void hly_json_string(FILE *out, const char *text);

#endif
