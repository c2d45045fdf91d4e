/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tool.c - MPI_T, the interface for tools: performance variables that are the counters of Halay's
 * context, read-only and always running. There are no control variables, categories, events or
 * enumerations, so every index and handle of those is wrong.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

enum {
    NOT_INITIALIZED = 1003,
    NO_MEMORY = 1005,
    INVALID = 1006,
    INVALID_INDEX = 1007,
    INVALID_SESSION = 1009,
    INVALID_HANDLE = 1010,
    INVALID_NAME = 1011,
    NO_WRITE = 1016,
    NO_STARTSTOP = 1017,
    USER_BASIC = 0x09,
    NO_OBJECT = 1,
    COUNTER = 7
};
#define ALL_HANDLES ((void *)1)

static const struct {
    size_t offset;
    const char *name, *text;
} variables[] = {
#define VARIABLE(member, text)                                                                     \
    {                                                                                              \
        offsetof(halay_counters_t, member), "halay_" #member, text                                 \
    }
    VARIABLE(sent_bytes, "bytes of the program's data that were sent"),
    VARIABLE(sent_messages, "messages that were sent"),
    VARIABLE(received_bytes, "bytes of the program's data that were received"),
    VARIABLE(received_messages, "messages that were received"),
    VARIABLE(operations, "calls that have ended: collectives, sends, receives"),
    VARIABLE(errors, "calls that have ended with an error"),
    VARIABLE(connections, "connections to other ranks that were made"),
    VARIABLE(sleeps, "times that a thread has slept to wait for progress"),
    VARIABLE(plans_made, "plans that were made"),
    VARIABLE(plans_proved, "proofs of plans that were made"),
    VARIABLE(repeated, "calls that have used the plan of an earlier one"),
};
#define VARIABLES ((int)(sizeof variables / sizeof variables[0]))

struct session;
struct handle {
    struct handle *next;
    int variable;
};
struct session {
    struct session *next;
    struct handle *handles;
};
static struct {
    pthread_mutex_t lock;
    int users; /* MPI_T_init_thread() without MPI_T_finalize() */
    struct session *sessions;
} tool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---------------------------------------------------------------- the interface */

int hly_mpi_t_init_thread(int required, int *provided)
{
    (void)required;
    if (!provided)
        return INVALID;
    pthread_mutex_lock(&tool.lock);
    tool.users++;
    pthread_mutex_unlock(&tool.lock);
    *provided = MPI_THREAD_MULTIPLE;
    return MPI_SUCCESS;
}

int hly_mpi_t_finalize(void)
{
    pthread_mutex_lock(&tool.lock);
    int rc = tool.users ? MPI_SUCCESS : NOT_INITIALIZED;
    if (tool.users)
        tool.users--;
    pthread_mutex_unlock(&tool.lock);
    return rc;
}

static int ready(int otherwise)
{
    return __atomic_load_n(&tool.users, __ATOMIC_RELAXED) ? otherwise : NOT_INITIALIZED;
}

/* How many there are of something. */
static int number(int *result, int n)
{
    if (!result)
        return ready(INVALID);
    int rc = ready(MPI_SUCCESS);
    if (!rc)
        *result = n;
    return rc;
}

/* *length: the room before the call, after it the length of the text; both with its end. */
static void give(const char *text, char *to, int *length)
{
    if (!length)
        return;
    if (to && *length > 0)
        snprintf(to, (size_t)*length, "%s", text);
    *length = (int)strlen(text) + 1;
}

/* ---------------------------------------------------------------- performance variables */

int hly_mpi_t_pvar_get_num(int *num_pvar)
{
    return number(num_pvar, VARIABLES);
}

int hly_mpi_t_pvar_get_index(const char *name, int var_class, int *pvar_index)
{
    if (!name || !pvar_index)
        return ready(INVALID);
    for (int i = 0; i < VARIABLES; i++)
        if (var_class == COUNTER && strcmp(name, variables[i].name) == 0)
            return number(pvar_index, i);
    return ready(INVALID_NAME);
}

static void set(int *result, int value)
{
    if (result)
        *result = value;
}

int hly_mpi_t_pvar_get_info(int pvar_index, char *name, int *name_len, int *verbosity,
                            int *var_class, struct hly_mpi_type **datatype, void **enumtype,
                            char *desc, int *desc_len, int *bind, int *readonly, int *continuous,
                            int *atomic)
{
    /* MPI_UNSIGNED_LONG_LONG, also before MPI_Init has made it. */
    static struct hly_mpi_type counted = {.head = {.handle = 0x20f}};
    int rc = ready(pvar_index < 0 || pvar_index >= VARIABLES ? INVALID_INDEX : MPI_SUCCESS);
    if (rc)
        return rc;
    give(variables[pvar_index].name, name, name_len);
    give(variables[pvar_index].text, desc, desc_len);
    set(verbosity, USER_BASIC);
    set(var_class, COUNTER);
    *datatype = &counted;
    if (enumtype)
        *enumtype = NULL;
    set(bind, NO_OBJECT);
    set(readonly, 1);
    set(continuous, 1);
    set(atomic, 0);
    return MPI_SUCCESS;
}

/* With the lock held. */
static struct session **find_session(const void *session)
{
    struct session **at = &tool.sessions;
    while (*at && *at != session)
        at = &(*at)->next;
    return at;
}

static int find(void *session, const void *handle, struct handle ***found)
{
    struct session *of = *find_session(session);
    if (!of)
        return INVALID_SESSION;
    *found = &of->handles;
    while (**found && **found != handle)
        *found = &(**found)->next;
    return **found ? MPI_SUCCESS : INVALID_HANDLE;
}

int hly_mpi_t_pvar_session_create(void **session)
{
    int rc = ready(session ? MPI_SUCCESS : INVALID);
    if (rc)
        return rc;
    struct session *made = calloc(1, sizeof *made);
    if (!made)
        return NO_MEMORY;
    pthread_mutex_lock(&tool.lock);
    made->next = tool.sessions;
    tool.sessions = made;
    pthread_mutex_unlock(&tool.lock);
    *session = made;
    return MPI_SUCCESS;
}

int hly_mpi_t_pvar_session_free(void **session)
{
    int rc = ready(session ? MPI_SUCCESS : INVALID);
    if (rc)
        return rc;
    pthread_mutex_lock(&tool.lock);
    struct session **at = find_session(*session), *old = *at;
    if (old)
        *at = old->next;
    pthread_mutex_unlock(&tool.lock);
    if (!old)
        return INVALID_SESSION;
    for (struct handle *handle = old->handles, *next; handle; handle = next) {
        next = handle->next;
        free(handle);
    }
    free(old);
    *session = NULL;
    return MPI_SUCCESS;
}

int hly_mpi_t_pvar_handle_alloc(void *session, int pvar_index, void *obj_handle, void **handle,
                                int *count)
{
    (void)obj_handle;
    int rc = ready(pvar_index < 0 || pvar_index >= VARIABLES ? INVALID_INDEX : MPI_SUCCESS);
    if (rc)
        return rc;
    if (!handle || !count)
        return INVALID;
    struct handle *made = calloc(1, sizeof *made);
    if (!made)
        return NO_MEMORY;
    pthread_mutex_lock(&tool.lock);
    struct session *of = *find_session(session);
    if (of) {
        made->variable = pvar_index;
        made->next = of->handles;
        of->handles = made;
    }
    pthread_mutex_unlock(&tool.lock);
    if (!of) {
        free(made);
        return INVALID_SESSION;
    }
    *handle = made;
    *count = 1;
    return MPI_SUCCESS;
}

int hly_mpi_t_pvar_handle_free(void *session, void **handle)
{
    struct handle **at = NULL;
    int rc = ready(handle ? MPI_SUCCESS : INVALID);
    if (rc)
        return rc;
    pthread_mutex_lock(&tool.lock);
    rc = find(session, *handle, &at);
    struct handle *old = rc ? NULL : *at;
    if (old)
        *at = old->next;
    pthread_mutex_unlock(&tool.lock);
    free(old);
    if (!rc)
        *handle = NULL;
    return rc;
}

/* Is it a handle of the session? If so: otherwise. */
static int check(void *session, const void *handle, int otherwise)
{
    struct handle **at = NULL;
    int rc = ready(MPI_SUCCESS);
    if (rc)
        return rc;
    pthread_mutex_lock(&tool.lock);
    rc = find(session, handle, &at);
    pthread_mutex_unlock(&tool.lock);
    return rc ? rc : otherwise;
}

int hly_mpi_t_pvar_read(void *session, void *handle, void *buf)
{
    halay_counters_t counters = {.size = sizeof counters};
    int rc = check(session, handle, buf ? MPI_SUCCESS : INVALID);
    if (rc)
        return rc;
    if (hly_mpi_job.context)
        halay_context_counters(hly_mpi_job.context, &counters);
    const struct handle *of = handle;
    memcpy(buf, (char *)&counters + variables[of->variable].offset, sizeof(uint64_t));
    return MPI_SUCCESS;
}

int hly_mpi_t_pvar_readreset(void *session, void *handle, void *buf)
{
    (void)buf;
    return check(session, handle, NO_WRITE);
}

int hly_mpi_t_pvar_write(void *session, void *handle, const void *buf)
{
    (void)buf;
    return check(session, handle, NO_WRITE);
}

int hly_mpi_t_pvar_reset(void *session, void *handle)
{
    return handle == ALL_HANDLES ? ready(MPI_SUCCESS) : check(session, handle, NO_WRITE);
}

int hly_mpi_t_pvar_start(void *session, void *handle)
{
    return handle == ALL_HANDLES ? ready(MPI_SUCCESS) : check(session, handle, NO_STARTSTOP);
}

int hly_mpi_t_pvar_stop(void *session, void *handle)
{
    return handle == ALL_HANDLES ? ready(MPI_SUCCESS) : check(session, handle, NO_STARTSTOP);
}

/* ---------------------------------------------------------------- what there is none of */

int hly_mpi_t_category_changed(int *update_number)
{
    return number(update_number, 0);
}

int hly_mpi_t_category_get_categories(int cat_index, int len, int indices[])
{
    (void)cat_index;
    (void)len;
    (void)indices;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_category_get_cvars(int cat_index, int len, int indices[])
{
    (void)cat_index;
    (void)len;
    (void)indices;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_category_get_events(int cat_index, int len, int indices[])
{
    (void)cat_index;
    (void)len;
    (void)indices;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_category_get_index(const char *name, int *cat_index)
{
    (void)name;
    (void)cat_index;
    return ready(INVALID_NAME);
}

int hly_mpi_t_category_get_info(int cat_index, char *name, int *name_len, char *desc, int *desc_len,
                                int *num_cvars, int *num_pvars, int *num_categories)
{
    (void)cat_index;
    (void)name;
    (void)name_len;
    (void)desc;
    (void)desc_len;
    (void)num_cvars;
    (void)num_pvars;
    (void)num_categories;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_category_get_num(int *num_cat)
{
    return number(num_cat, 0);
}

int hly_mpi_t_category_get_num_events(int cat_index, int *num_events)
{
    (void)cat_index;
    (void)num_events;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_category_get_pvars(int cat_index, int len, int indices[])
{
    (void)cat_index;
    (void)len;
    (void)indices;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_cvar_get_index(const char *name, int *cvar_index)
{
    (void)name;
    (void)cvar_index;
    return ready(INVALID_NAME);
}

int hly_mpi_t_cvar_get_info(int cvar_index, char *name, int *name_len, int *verbosity,
                            struct hly_mpi_type **datatype, void **enumtype, char *desc,
                            int *desc_len, int *bind, int *scope)
{
    (void)cvar_index;
    (void)name;
    (void)name_len;
    (void)verbosity;
    (void)datatype;
    (void)enumtype;
    (void)desc;
    (void)desc_len;
    (void)bind;
    (void)scope;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_cvar_get_num(int *num_cvar)
{
    return number(num_cvar, 0);
}

int hly_mpi_t_cvar_handle_alloc(int cvar_index, void *obj_handle, void **handle, int *count)
{
    (void)cvar_index;
    (void)obj_handle;
    (void)handle;
    (void)count;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_cvar_handle_free(void **handle)
{
    (void)handle;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_cvar_read(void *handle, void *buf)
{
    (void)handle;
    (void)buf;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_cvar_write(void *handle, const void *buf)
{
    (void)handle;
    (void)buf;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_enum_get_info(void *enumtype, int *num, char *name, int *name_len)
{
    (void)enumtype;
    (void)num;
    (void)name;
    (void)name_len;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_enum_get_item(void *enumtype, int indx, int *value, char *name, int *name_len)
{
    (void)enumtype;
    (void)indx;
    (void)value;
    (void)name;
    (void)name_len;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_callback_get_info(void *event_registration, int cb_safety,
                                      struct hly_mpi_info **info_used)
{
    (void)event_registration;
    (void)cb_safety;
    (void)info_used;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_callback_set_info(void *event_registration, int cb_safety,
                                      struct hly_mpi_info *info)
{
    (void)event_registration;
    (void)cb_safety;
    (void)info;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_copy(void *event_instance, void *buffer)
{
    (void)event_instance;
    (void)buffer;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_get_index(const char *name, int *event_index)
{
    (void)name;
    (void)event_index;
    return ready(INVALID_NAME);
}

int hly_mpi_t_event_get_info(int event_index, char *name, int *name_len, int *verbosity,
                             struct hly_mpi_type *array_of_datatypes[],
                             int64_t array_of_displacements[], int *num_elements, void **enumtype,
                             struct hly_mpi_info **info, char *desc, int *desc_len, int *bind)
{
    (void)event_index;
    (void)name;
    (void)name_len;
    (void)verbosity;
    (void)array_of_datatypes;
    (void)array_of_displacements;
    (void)num_elements;
    (void)enumtype;
    (void)info;
    (void)desc;
    (void)desc_len;
    (void)bind;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_event_get_num(int *num_events)
{
    return number(num_events, 0);
}

int hly_mpi_t_event_get_source(void *event_instance, int *source_index)
{
    (void)event_instance;
    (void)source_index;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_get_timestamp(void *event_instance, int64_t *event_timestamp)
{
    (void)event_instance;
    (void)event_timestamp;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_handle_alloc(int event_index, void *obj_handle, struct hly_mpi_info *info,
                                 void **event_registration)
{
    (void)event_index;
    (void)obj_handle;
    (void)info;
    (void)event_registration;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_event_handle_free(void *event_registration, void *user_data,
                                hly_mpi_fn *free_cb_function)
{
    (void)event_registration;
    (void)user_data;
    (void)free_cb_function;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_handle_get_info(void *event_registration, struct hly_mpi_info **info_used)
{
    (void)event_registration;
    (void)info_used;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_handle_set_info(void *event_registration, struct hly_mpi_info *info)
{
    (void)event_registration;
    (void)info;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_read(void *event_instance, int element_index, void *buffer)
{
    (void)event_instance;
    (void)element_index;
    (void)buffer;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_register_callback(void *event_registration, int cb_safety,
                                      struct hly_mpi_info *info, void *user_data,
                                      hly_mpi_fn *event_cb_function)
{
    (void)event_registration;
    (void)cb_safety;
    (void)info;
    (void)user_data;
    (void)event_cb_function;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_event_set_dropped_handler(void *event_registration, hly_mpi_fn *dropped_cb_function)
{
    (void)event_registration;
    (void)dropped_cb_function;
    return ready(INVALID_HANDLE);
}

int hly_mpi_t_source_get_info(int source_index, char *name, int *name_len, char *desc,
                              int *desc_len, int *ordering, int64_t *ticks_per_second,
                              int64_t *max_ticks, struct hly_mpi_info **info)
{
    (void)source_index;
    (void)name;
    (void)name_len;
    (void)desc;
    (void)desc_len;
    (void)ordering;
    (void)ticks_per_second;
    (void)max_ticks;
    (void)info;
    return ready(INVALID_INDEX);
}

int hly_mpi_t_source_get_num(int *num_sources)
{
    return number(num_sources, 0);
}

int hly_mpi_t_source_get_timestamp(int source_index, int64_t *timestamp)
{
    (void)source_index;
    (void)timestamp;
    return ready(INVALID_INDEX);
}
