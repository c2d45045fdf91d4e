/* SPDX-License-Identifier: Apache-2.0 */
/* info.c - info objects. One lock guards all of them: programs use few, and seldom. */
#include "info.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "error.h"

struct hly_mpi_info hly_mpi_info_env = {
    .head = {.handle = 0x131, .refs = 1, .face = &hly_mpi_this_face}};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Bytes of a key with its end. MPICH's programs have room for one less than others. */
#define KEY_BYTES (MPI_MAX_INFO_KEY - 1)

/* ---------------------------------------------------------------- pairs, with the lock held */

static struct hly_mpi_pair *find(struct hly_mpi_info *info, const char *key)
{
    for (int i = 0; i < info->count; i++)
        if (strcmp(info->pairs[i].key, key) == 0)
            return &info->pairs[i];
    return NULL;
}

/* False: no memory. */
static bool put(struct hly_mpi_info *info, const char *key, const char *value)
{
    struct hly_mpi_pair *pair = find(info, key);
    char *copy = strdup(value), *name = pair ? pair->key : strdup(key);
    if (!copy || !name)
        goto free_copies;
    if (!pair) {
        if (info->count == info->room) {
            int room = info->room ? info->room * 2 : 8;
            struct hly_mpi_pair *more = realloc(info->pairs, (size_t)room * sizeof *more);
            if (!more)
                goto free_copies;
            info->pairs = more;
            info->room = room;
        }
        pair = &info->pairs[info->count++];
        pair->value = NULL;
    }
    free(pair->value);
    pair->key = name;
    pair->value = copy;
    return true;

free_copies:
    free(copy);
    if (!pair)
        free(name);
    return false;
}

static void end_info(void *object)
{
    struct hly_mpi_info *info = object;
    for (int i = 0; i < info->count; i++) {
        free(info->pairs[i].key);
        free(info->pairs[i].value);
    }
    free(info->pairs);
}

/* What MPI_INFO_ENV has: how this process was started. */
static void fill_env(struct hly_mpi_info *info, bool with_size)
{
    char words[MPI_MAX_INFO_VAL], directory[MPI_MAX_INFO_VAL];
    struct utsname machine;
    FILE *file = fopen("/proc/self/cmdline", "r");
    size_t n = file ? fread(words, 1, sizeof words - 1, file) : 0;
    if (file)
        fclose(file);
    words[n] = 0;
    if (n) {
        size_t first = strlen(words) + 1;
        put(info, "command", words);
        for (size_t i = first; i + 1 < n; i++)
            if (!words[i])
                words[i] = ' ';
        if (first < n)
            put(info, "argv", words + first);
    }
    if (getcwd(directory, sizeof directory))
        put(info, "wdir", directory);
    if (uname(&machine) == 0) {
        put(info, "host", machine.nodename);
        put(info, "arch", machine.machine);
    }
    if (with_size && hly_mpi_job.world) {
        snprintf(words, sizeof words, "%d", hly_mpi_job.world->size);
        put(info, "maxprocs", words);
    }
}

/* Takes the lock, if there is an info object with which the call can work. */
static int enter(const char *function, struct hly_mpi_info *info, bool change)
{
    if (!info)
        return hly_mpi_fail(MPI_ERR_INFO, "%s: the info object is MPI_INFO_NULL", function);
    if (change && info == &hly_mpi_info_env)
        return hly_mpi_fail(MPI_ERR_INFO, "%s: MPI_INFO_ENV can only be read", function);
    pthread_mutex_lock(&lock);
    if (info == &hly_mpi_info_env && !info->count)
        fill_env(info, true);
    return MPI_SUCCESS;
}

static int leave(int rc)
{
    pthread_mutex_unlock(&lock);
    return rc;
}

static int check_key(const char *function, const char *key)
{
    if (!key || !*key)
        return hly_mpi_fail(MPI_ERR_INFO_KEY, "%s: the key is %s", function,
                            key ? "empty" : "NULL");
    if (strlen(key) >= KEY_BYTES)
        return hly_mpi_fail(MPI_ERR_INFO_KEY, "%s: the key has %zu characters: it may have %d",
                            function, strlen(key), KEY_BYTES - 1);
    return MPI_SUCCESS;
}

static int check_result(const char *function, const void *result)
{
    return result ? MPI_SUCCESS
                  : hly_mpi_fail(MPI_ERR_ARG, "%s: the address of a result is NULL", function);
}

/* ---------------------------------------------------------------- functions of MPI */

static int make(const char *function, struct hly_mpi_info **info)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct hly_mpi_info *made = hly_mpi_object_new(HLY_MPI_INFO, sizeof *made);
    pthread_once(&once, hly_mpi_infos_open);
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for an info object", function);
    *info = made;
    return MPI_SUCCESS;
}

void hly_mpi_infos_open(void)
{
    hly_mpi_object_ends(HLY_MPI_INFO, end_info);
}

int hly_mpi_info_create(struct hly_mpi_info **info)
{
    return make("MPI_Info_create", info);
}

int hly_mpi_info_create_env(int argc, char *argv[], struct hly_mpi_info **info)
{
    (void)argc;
    (void)argv;
    int rc = make("MPI_Info_create_env", info);
    if (rc)
        return rc;
    pthread_mutex_lock(&lock);
    fill_env(*info, false); /* the same before MPI_Init, where the size is not known */
    return leave(MPI_SUCCESS);
}

int hly_mpi_info_free(struct hly_mpi_info **info)
{
    int rc = enter("MPI_Info_free", *info, true);
    if (rc)
        return rc;
    leave(MPI_SUCCESS);
    hly_mpi_object_release(*info);
    *info = NULL;
    return MPI_SUCCESS;
}

int hly_mpi_info_dup(struct hly_mpi_info *info, struct hly_mpi_info **newinfo)
{
    struct hly_mpi_info *made = NULL;
    int rc = make("MPI_Info_dup", &made);
    if (rc)
        return rc;
    rc = enter("MPI_Info_dup", info, false);
    if (rc)
        goto release_made;
    for (int i = 0; !rc && i < info->count; i++)
        if (!put(made, info->pairs[i].key, info->pairs[i].value))
            rc = hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Info_dup: no memory for the pairs");
    leave(rc);
    if (rc)
        goto release_made;
    *newinfo = made;
    return MPI_SUCCESS;

release_made:
    hly_mpi_object_release(made);
    return rc;
}

int hly_mpi_info_set(struct hly_mpi_info *info, const char *key, const char *value)
{
    int rc = check_key("MPI_Info_set", key);
    if (rc)
        return rc;
    if (!value)
        return hly_mpi_fail(MPI_ERR_INFO_VALUE, "MPI_Info_set: the value is NULL");
    if (strlen(value) >= MPI_MAX_INFO_VAL)
        return hly_mpi_fail(MPI_ERR_INFO_VALUE,
                            "MPI_Info_set: the value has %zu characters: it may have %d",
                            strlen(value), MPI_MAX_INFO_VAL - 1);
    rc = enter("MPI_Info_set", info, true);
    if (rc)
        return rc;
    if (!put(info, key, value))
        rc = hly_mpi_fail(MPI_ERR_NO_MEM, "MPI_Info_set: no memory for the pair");
    return leave(rc);
}

int hly_mpi_info_delete(struct hly_mpi_info *info, const char *key)
{
    int rc = check_key("MPI_Info_delete", key);
    if (!rc)
        rc = enter("MPI_Info_delete", info, true);
    if (rc)
        return rc;
    struct hly_mpi_pair *pair = find(info, key);
    if (!pair)
        return leave(
            hly_mpi_fail(MPI_ERR_INFO_NOKEY, "MPI_Info_delete: there is no key \"%s\"", key));
    free(pair->key);
    free(pair->value);
    info->count--;
    memmove(pair, pair + 1, (size_t)(&info->pairs[info->count] - pair) * sizeof *pair);
    return leave(MPI_SUCCESS);
}

/* room: bytes of value with its end; 0: the value is not wanted. *length: of the whole value. */
static int get(const char *function, struct hly_mpi_info *info, const char *key, int room,
               char *value, int *length, int *flag)
{
    int rc = check_key(function, key);
    if (!rc)
        rc = check_result(function, flag);
    if (!rc && room > 0)
        rc = check_result(function, value);
    if (!rc)
        rc = enter(function, info, false);
    if (rc)
        return rc;
    struct hly_mpi_pair *pair = find(info, key);
    *flag = pair != NULL;
    if (pair && length)
        *length = (int)strlen(pair->value);
    if (pair && room > 0)
        snprintf(value, (size_t)room, "%s", pair->value);
    return leave(MPI_SUCCESS);
}

int hly_mpi_info_get(struct hly_mpi_info *info, const char *key, int valuelen, char *value,
                     int *flag)
{
    if (valuelen < 0 || valuelen > MPI_MAX_INFO_VAL)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Info_get: the length is %d: it has to be 0 to %d",
                            valuelen, MPI_MAX_INFO_VAL);
    return get("MPI_Info_get", info, key, valuelen + 1, value, NULL, flag);
}

int hly_mpi_info_get_string(struct hly_mpi_info *info, const char *key, int *buflen, char *value,
                            int *flag)
{
    int length = 0, rc = check_result("MPI_Info_get_string", buflen);
    if (rc)
        return rc;
    if (*buflen < 0)
        return hly_mpi_fail(
            MPI_ERR_ARG, "MPI_Info_get_string: the length is %d: it has to be 0 or more", *buflen);
    rc = get("MPI_Info_get_string", info, key, *buflen, value, &length, flag);
    if (!rc && *flag)
        *buflen = length + 1;
    return rc;
}

int hly_mpi_info_get_valuelen(struct hly_mpi_info *info, const char *key, int *valuelen, int *flag)
{
    int rc = check_result("MPI_Info_get_valuelen", valuelen);
    return rc ? rc : get("MPI_Info_get_valuelen", info, key, 0, NULL, valuelen, flag);
}

int hly_mpi_info_get_nkeys(struct hly_mpi_info *info, int *nkeys)
{
    int rc = check_result("MPI_Info_get_nkeys", nkeys);
    if (!rc)
        rc = enter("MPI_Info_get_nkeys", info, false);
    if (rc)
        return rc;
    *nkeys = info->count;
    return leave(MPI_SUCCESS);
}

int hly_mpi_info_get_nthkey(struct hly_mpi_info *info, int n, char *key)
{
    int rc = check_result("MPI_Info_get_nthkey", key);
    if (!rc)
        rc = enter("MPI_Info_get_nthkey", info, false);
    if (rc)
        return rc;
    if (n < 0 || n >= info->count)
        rc = hly_mpi_fail(MPI_ERR_ARG, "MPI_Info_get_nthkey: there is no key %d: there are %d", n,
                          info->count);
    else
        snprintf(key, KEY_BYTES, "%s", info->pairs[n].key);
    return leave(rc);
}
