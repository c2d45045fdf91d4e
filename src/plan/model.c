/* SPDX-License-Identifier: Apache-2.0 */
/*
 * model.c - the constants of a machine, compiled in or read from a file of "key value" lines.
 * Invariant: a model that was read has every key once, each a number that is not negative.
 */
#include <halay/plan.h>

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINES_MAX    1000
#define CONSTANT_MAX 1e12

static const struct key {
    const char *name;
    size_t offset;
    int whole; /* a number of bytes, uint64_t */
} keys[] = {
    {"call_ns", offsetof(halay_model_t, call_ns), 0},
    {"step_ns", offsetof(halay_model_t, step_ns), 0},
    {"copy_byte_ns", offsetof(halay_model_t, copy_byte_ns), 0},
    {"reduce_byte_ns", offsetof(halay_model_t, reduce_byte_ns), 0},
    {"near_overhead_ns", offsetof(halay_model_t, near.overhead_ns), 0},
    {"near_latency_ns", offsetof(halay_model_t, near.latency_ns), 0},
    {"near_byte_ns", offsetof(halay_model_t, near.byte_ns), 0},
    {"near_eager_bytes", offsetof(halay_model_t, near.eager_bytes), 1},
    {"far_overhead_ns", offsetof(halay_model_t, far.overhead_ns), 0},
    {"far_latency_ns", offsetof(halay_model_t, far.latency_ns), 0},
    {"far_byte_ns", offsetof(halay_model_t, far.byte_ns), 0},
    {"far_eager_bytes", offsetof(halay_model_t, far.eager_bytes), 1},
    {"stage_latency_ns", offsetof(halay_model_t, stage_latency_ns), 0},
    {"stage_byte_ns", offsetof(halay_model_t, stage_byte_ns), 0},
};

#define NKEYS (sizeof(keys) / sizeof(keys[0]))
#define NMUST 12 /* the others keep their default where a file has not got them */

/*
 * Measured by halay-bench calibrate on a virtual machine with two processors: near over shm, far
 * over tcp through the loopback interface. They rank the algorithms; they are nobody's cluster. The
 * stage's are those of a PCIe 4.0 link of 16 lanes on paper: no GPU was measured.
 */
void halay_model_default(halay_model_t *model)
{
    *model = (halay_model_t){
        .size = sizeof(*model),
        .call_ns = 93,
        .step_ns = 29,
        .copy_byte_ns = 0.02,
        .reduce_byte_ns = 0.08,
        .near = {41, 37, 0.12, 8192},
        .far = {2500, 1100, 0.19, 65536},
        .stage_latency_ns = 8000,
        .stage_byte_ns = 0.04,
    };
}

static double value_of(const halay_model_t *model, const struct key *key)
{
    const char *at = (const char *)model + key->offset;
    uint64_t whole;
    double value;

    if (key->whole) {
        memcpy(&whole, at, sizeof(whole));
        return (double)whole;
    }
    memcpy(&value, at, sizeof(value));
    return value;
}

static void set_value(halay_model_t *model, const struct key *key, double value)
{
    char *at = (char *)model + key->offset;
    uint64_t whole = (uint64_t)value;

    memcpy(at, key->whole ? (void *)&whole : (void *)&value, sizeof(value));
}

size_t halay_model_print(const halay_model_t *model, char *text, size_t bytes)
{
    size_t used = 0;

    for (size_t i = 0; i < NKEYS; i++) {
        size_t left = text && used < bytes ? bytes - used : 0;
        int n = snprintf(left ? text + used : NULL, left, "%s %.*g\n", keys[i].name,
                         keys[i].whole ? 15 : 6, value_of(model, &keys[i]));
        used += n > 0 ? (size_t)n : 0;
    }
    return used + 1; /* with the terminating zero */
}

uint64_t halay_model_hash(const halay_model_t *model)
{
    uint64_t h = 0x6d6f64656cu;

    for (size_t i = 0; i < NKEYS; i++) {
        double value = value_of(model, &keys[i]) + 0.0; /* no -0 */
        uint64_t word;
        memcpy(&word, &value, sizeof(word));
        h = (h ^ word) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    return h ? h : 1;
}

__attribute__((format(printf, 3, 4))) static int wrong(char *error, size_t bytes,
                                                       const char *format, ...)
{
    va_list args;

    va_start(args, format);
    if (error) {
        vsnprintf(error, bytes, format, args);
    }
    va_end(args);
    return HALAY_EINVAL;
}

/* One line; sets the bit of its key in *seen. */
static int read_line(const char *path, int number, char *line, halay_model_t *model, uint32_t *seen,
                     char *error, size_t bytes)
{
    char *save = NULL, *end, *name, *text;
    size_t k = 0;

    line[strcspn(line, "#\n")] = 0;
    name = strtok_r(line, " \t\r", &save);
    if (!name) {
        return 0;
    }
    while (k < NKEYS && strcmp(name, keys[k].name) != 0) {
        k++;
    }
    if (k == NKEYS) {
        return wrong(error, bytes,
                     "%s, line %d: there is no constant '%.40s'; halay-bench calibrate writes "
                     "those that there are",
                     path, number, name);
    }
    text = strtok_r(NULL, " \t\r", &save);
    double value = text ? strtod(text, &end) : 0;
    if (!text || *end || end == text || !isfinite(value) || value < 0 || value > CONSTANT_MAX ||
        (keys[k].whole && value != (double)(uint64_t)value) || strtok_r(NULL, " \t\r", &save)) {
        return wrong(error, bytes, "%s, line %d: %s takes one number, not less than 0", path,
                     number, name);
    }
    if (*seen & 1u << k) {
        return wrong(error, bytes, "%s, line %d: %s is there twice", path, number, name);
    }
    *seen |= 1u << k;
    set_value(model, &keys[k], value);
    return 0;
}

int halay_model_read(const char *path, halay_model_t *model, char *error, size_t error_bytes)
{
    char line[256];
    uint32_t seen = 0;
    int rc = 0, number = 0;

    if (!path || !model || model->size < sizeof(*model)) {
        return wrong(error, error_bytes, "no file or no model was given");
    }
    FILE *file = fopen(path, "r");
    if (!file) {
        return wrong(error, error_bytes, "%s: %s", path, strerror(errno));
    }
    halay_model_t made;
    halay_model_default(&made);
    made.size = model->size;
    while (!rc && fgets(line, sizeof(line), file)) {
        if (!strchr(line, '\n') && !feof(file)) {
            rc = wrong(error, error_bytes, "%s, line %d is too long", path, number + 1);
        } else if (++number > LINES_MAX) {
            rc = wrong(error, error_bytes, "%s has more than %d lines", path, LINES_MAX);
        } else {
            rc = read_line(path, number, line, &made, &seen, error, error_bytes);
        }
    }
    if (!rc && ferror(file)) {
        rc = wrong(error, error_bytes, "%s: %s", path, strerror(errno));
    }
    fclose(file);
    for (size_t k = 0; !rc && k < NMUST; k++) {
        if (!(seen & 1u << k)) {
            rc = wrong(error, error_bytes, "%s: %s is missing", path, keys[k].name);
        }
    }
    if (!rc) {
        *model = made;
    }
    return rc;
}
