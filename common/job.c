/* SPDX-License-Identifier: Apache-2.0 */
/* job.c - the one reader and the one writer of HALAY_JOB (job.h). */
#define _GNU_SOURCE
#include "job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where "key=value" begins, or the end of text. */
static const char *pair_of(const char *text, const char *key)
{
    const size_t length = strlen(key);
    while (*text && (strncmp(text, key, length) != 0 || text[length] != '=')) {
        text += strcspn(text, ";");
        text += *text == ';';
    }
    return text;
}

const char *hly_job_find(const char *text, const char *key, char *value, size_t bytes)
{
    const char *pair = pair_of(text ? text : "", key);
    if (!*pair)
        return NULL;
    pair += strlen(key) + 1;
    const size_t length = strcspn(pair, ";");
    if (!length || length >= bytes)
        return NULL;
    memcpy(value, pair, length);
    value[length] = '\0';
    return value;
}

bool hly_job_is_none(const char *text)
{
    return text && !strcmp(text, "none");
}

bool hly_job_has(const char *key, char *value, size_t bytes)
{
    *value = '\0';
    return hly_job_find(getenv(HLY_JOB_VARIABLE), key, value, bytes);
}

bool hly_job_none(void)
{
    return hly_job_is_none(getenv(HLY_JOB_VARIABLE));
}

/* The place of the variable in env, or of its end. */
static size_t place_of(char **env)
{
    static const char head[] = HLY_JOB_VARIABLE "=";
    size_t n = 0;
    while (env[n] && strncmp(env[n], head, sizeof head - 1) != 0)
        n++;
    return n;
}

bool hly_job_put(char ***env, const char *key, const char *value)
{
    const size_t at = place_of(*env);
    const bool is_new = !(*env)[at];
    const char *old = is_new ? "" : (*env)[at] + sizeof HLY_JOB_VARIABLE;
    const char *pair = pair_of(old, key), *rest = pair + strcspn(pair, ";");
    char *text = NULL;
    rest += *rest == ';';
    if (strchr(value, ';') ||
        asprintf(&text, HLY_JOB_VARIABLE "=%.*s%s%s%s=%s", (int)(pair - old), old, rest,
                 *rest || (pair > old && pair[-1] != ';') ? ";" : "", key, value) < 0)
        return false;
    if (is_new) {
        char **grown = realloc(*env, (at + 2) * sizeof *grown);
        if (!grown) {
            free(text);
            return false;
        }
        *env = grown;
        grown[at + 1] = NULL;
    } else {
        free((*env)[at]);
    }
    (*env)[at] = text;
    return true;
}
