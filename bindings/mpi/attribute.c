/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attribute.c - attributes that programs keep with communicators, datatypes and windows. A keyval
 * is a number: its place in a table, and how often the place was used before, so that a number
 * which was freed is recognised. The table belongs to the process, as MPI's keyvals do. An object's
 * list begins with the attribute that was set last. No lock is held while a function of the program
 * runs, since it may call MPI.
 */
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>

#include "comm.h"
#include "error.h"
#include "window.h"

#define FIRST     0x1000 /* smaller numbers are predefined */
#define ROOM      65536
#define LIVES_MAX 16384
#define DUP_FN    1 /* the function that copies each attribute */

struct keyval {
    enum hly_mpi_kind kind;
    hly_mpi_fn *copy, *remove;
    void *extra;
    void *fortran;    /* NULL: the functions are of a program in C; freed with the keyval */
    int number, refs; /* the program's, and one for each attribute */
    bool freed;
};
struct hly_mpi_attributes { /* one, and those that were set before it */
    struct hly_mpi_attributes *next;
    struct keyval *keyval;
    void *value;
    bool number; /* set in Fortran: C gets a pointer to it */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
    struct keyval **at;
    int *lives; /* how often the place was used */
    int n, room;
} table;

/* ---------------------------------------------------------------- keyvals */

/* With the lock. A free place, or -1. */
static int find_place(void)
{
    for (int i = 0; i < table.n; i++)
        if (!table.at[i] && table.lives[i] < LIVES_MAX)
            return i;
    if (table.n < table.room)
        return table.n++;
    if (table.room == ROOM)
        return -1;
    const int room = table.room ? 2 * table.room : 64;
    struct keyval **at = realloc(table.at, (size_t)room * sizeof(*at));
    if (at)
        table.at = at;
    int *lives = at ? realloc(table.lives, (size_t)room * sizeof(*lives)) : NULL;
    if (!lives)
        return -1;
    table.lives = lives;
    for (int i = table.room; i < room; i++) {
        at[i] = NULL;
        lives[i] = 0;
    }
    table.room = room;
    return table.n++;
}

static int keyval_create(const char *function, enum hly_mpi_kind kind, hly_mpi_fn *copy,
                         hly_mpi_fn *remove, int *number, void *extra)
{
    const int rc = hly_mpi_check_job(function);
    if (rc)
        return rc;
    struct keyval *keyval = malloc(sizeof(*keyval));
    pthread_mutex_lock(&lock);
    const int place = keyval ? find_place() : -1;
    if (place >= 0) {
        *keyval = (struct keyval){.kind = kind,
                                  .copy = copy,
                                  .remove = remove,
                                  .extra = extra,
                                  .number = FIRST + place + ROOM * table.lives[place],
                                  .refs = 1};
        table.lives[place]++;
        table.at[place] = keyval;
        *number = keyval->number;
    }
    pthread_mutex_unlock(&lock);
    if (place >= 0)
        return MPI_SUCCESS;
    free(keyval);
    return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for a keyval, or there are %d already",
                        function, ROOM);
}

/* With the lock. */
static void keyval_drop(struct keyval *keyval)
{
    if (--keyval->refs)
        return;
    table.at[(keyval->number - FIRST) % ROOM] = NULL;
    free(keyval->fortran);
    free(keyval);
}

/* With the lock. One that the program has freed stays until its last attribute goes, since the
 * program may still delete those. NULL: there is none of this number. */
static struct keyval *keyval_of(enum hly_mpi_kind kind, int number)
{
    const int place = (number - FIRST) % ROOM;
    if (number < FIRST || place >= table.n || !table.at[place])
        return NULL;
    struct keyval *keyval = table.at[place];
    return keyval->number == number && keyval->kind == kind ? keyval : NULL;
}

static int unknown(const char *function, int number)
{
    return hly_mpi_fail(MPI_ERR_KEYVAL,
                        "%s: keyval %d was freed, is predefined, or is of another kind of object",
                        function, number);
}

static int keyval_free(const char *function, enum hly_mpi_kind kind, int *number)
{
    const int rc = hly_mpi_check_job(function);
    if (rc)
        return rc;
    pthread_mutex_lock(&lock);
    struct keyval *keyval = keyval_of(kind, *number);
    if (keyval && !keyval->freed) { /* again while an attribute still uses it: nothing to do */
        keyval->freed = true;
        keyval_drop(keyval);
    }
    pthread_mutex_unlock(&lock);
    if (!keyval)
        return unknown(function, *number);
    *number = MPI_KEYVAL_INVALID;
    return MPI_SUCCESS;
}

bool hly_mpi_keyval_fortran(int number, struct hly_mpi_keyval_functions *functions)
{
    bool done = false;
    pthread_mutex_lock(&lock);
    const int place = (number - FIRST) % ROOM;
    struct keyval *keyval = number >= FIRST && place < table.n ? table.at[place] : NULL;
    if (keyval && keyval->number == number && !keyval->fortran) {
        const struct hly_mpi_keyval_functions former = {keyval->copy, keyval->remove,
                                                        keyval->extra};
        keyval->copy = (uintptr_t)former.copy == DUP_FN ? former.copy : functions->copy;
        keyval->remove = functions->remove;
        keyval->extra = keyval->fortran = functions->extra;
        *functions = former;
        done = true;
    }
    pthread_mutex_unlock(&lock);
    return done;
}

/* ---------------------------------------------------------------- functions of the program */

/* What the keyval's functions get: in C it is a pointer. */
static void *value_for(const struct hly_mpi_attributes *a)
{
    return a->number && !a->keyval->fortran ? (void *)(uintptr_t)&a->value : a->value;
}

static int call_remove(enum hly_mpi_kind kind, void *object, const struct hly_mpi_attributes *a)
{
    const struct keyval *keyval = a->keyval;
    if (!keyval->remove)
        return MPI_SUCCESS;
    return hly_mpi_this_face.call_delete(keyval->remove, kind, object, keyval->number, value_for(a),
                                         keyval->extra);
}

/* *flag: is there a copy, of this value? */
static int call_copy(enum hly_mpi_kind kind, void *object, const struct hly_mpi_attributes *a,
                     void **value, int *flag)
{
    const struct keyval *keyval = a->keyval;
    *flag = (uintptr_t)keyval->copy == DUP_FN;
    *value = a->value;
    if (*flag || !keyval->copy)
        return MPI_SUCCESS;
    return hly_mpi_this_face.call_copy(keyval->copy, kind, object, keyval->number, keyval->extra,
                                       value_for(a), value, flag);
}

/* ---------------------------------------------------------------- lists */

/* With the lock. */
static struct hly_mpi_attributes *find(struct hly_mpi_attributes *list, const struct keyval *keyval)
{
    while (list && list->keyval != keyval)
        list = list->next;
    return list;
}

/* Takes the attribute out of the list, if it is still there. */
static void unlink_one(struct hly_mpi_attributes **list, struct hly_mpi_attributes *a)
{
    pthread_mutex_lock(&lock);
    while (*list && *list != a)
        list = &(*list)->next;
    if (*list) {
        *list = a->next;
        keyval_drop(a->keyval);
        free(a);
    }
    pthread_mutex_unlock(&lock);
}

int hly_mpi_attributes_free(enum hly_mpi_kind kind, void *object, struct hly_mpi_attributes **list)
{
    while (*list) {
        struct hly_mpi_attributes *first = *list;
        const int rc = call_remove(kind, object, first);
        if (rc)
            return rc;
        unlink_one(list, first);
    }
    return MPI_SUCCESS;
}

int hly_mpi_attributes_copy(enum hly_mpi_kind kind, void *from, struct hly_mpi_attributes *list,
                            struct hly_mpi_attributes **copy)
{
    struct hly_mpi_attributes **end = copy;
    *copy = NULL;
    for (const struct hly_mpi_attributes *a = list; a; a = a->next) {
        void *value;
        int flag;
        const int rc = call_copy(kind, from, a, &value, &flag);
        if (rc)
            return rc;
        if (!flag)
            continue;
        struct hly_mpi_attributes *made = malloc(sizeof(*made));
        if (!made)
            return hly_mpi_fail(MPI_ERR_NO_MEM, "no memory for an attribute's copy");
        const bool number = a->keyval->fortran || (a->number && value == a->value);
        *made = (struct hly_mpi_attributes){NULL, a->keyval, value, number};
        pthread_mutex_lock(&lock);
        a->keyval->refs++;
        pthread_mutex_unlock(&lock);
        *end = made;
        end = &made->next;
    }
    return MPI_SUCCESS;
}

static int attribute_put(const char *function, enum hly_mpi_kind kind, void *object,
                         struct hly_mpi_attributes **list, int number, void *value, bool fortran)
{
    struct hly_mpi_attributes *made = malloc(sizeof(*made));
    if (!made)
        return hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for an attribute", function);
    pthread_mutex_lock(&lock);
    struct keyval *keyval = keyval_of(kind, number);
    struct hly_mpi_attributes *old = keyval ? find(*list, keyval) : NULL;
    if (keyval && !old) {
        *made = (struct hly_mpi_attributes){*list, keyval, value, fortran};
        keyval->refs++;
        *list = made;
    }
    pthread_mutex_unlock(&lock);
    if (keyval && !old)
        return MPI_SUCCESS;
    free(made);
    if (!keyval)
        return unknown(function, number);
    const int rc = call_remove(kind, object, old);
    if (rc)
        return rc;
    pthread_mutex_lock(&lock);
    old = find(*list, keyval); /* its own function may have removed it */
    if (old) {
        old->value = value;
        old->number = fortran;
    }
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

static int attribute_set(const char *function, enum hly_mpi_kind kind, void *object,
                         struct hly_mpi_attributes **list, int number, void *value)
{
    return attribute_put(function, kind, object, list, number, value, false);
}

static int attribute_take(const char *function, enum hly_mpi_kind kind,
                          struct hly_mpi_attributes *list, int number, void *value, int *flag,
                          bool fortran)
{
    pthread_mutex_lock(&lock);
    const struct keyval *keyval = keyval_of(kind, number);
    struct hly_mpi_attributes *found = keyval ? find(list, keyval) : NULL;
    *flag = found != NULL;
    if (found)
        *(void **)value = found->number && !fortran ? &found->value : found->value;
    pthread_mutex_unlock(&lock);
    return keyval ? MPI_SUCCESS : unknown(function, number);
}

static int attribute_get(const char *function, enum hly_mpi_kind kind,
                         struct hly_mpi_attributes *list, int number, void *value, int *flag)
{
    return attribute_take(function, kind, list, number, value, flag, false);
}

static int attribute_delete(const char *function, enum hly_mpi_kind kind, void *object,
                            struct hly_mpi_attributes **list, int number)
{
    pthread_mutex_lock(&lock);
    const struct keyval *keyval = keyval_of(kind, number);
    struct hly_mpi_attributes *found = keyval ? find(*list, keyval) : NULL;
    pthread_mutex_unlock(&lock);
    if (!keyval)
        return unknown(function, number);
    if (!found)
        return hly_mpi_fail(MPI_ERR_KEYVAL, "%s: the object has no attribute of keyval %d",
                            function, number);
    const int rc = call_remove(kind, object, found);
    if (!rc)
        unlink_one(list, found);
    return rc;
}

/* ---------------------------------------------------------------- of communicators */

/* The predefined ones are the same on each communicator, and pointers to int, as MPI says. */
static int *predefined(int number)
{
    static int tag_ub = INT_MAX, io = MPI_ANY_SOURCE, host = MPI_PROC_NULL, global, app;
    switch (number) {
    case MPI_TAG_UB:
        return &tag_ub;
    case MPI_IO:
        return &io;
    case MPI_HOST:
        return &host;
    case MPI_WTIME_IS_GLOBAL:
        return &global;
    case MPI_APPNUM:
        return &app;
    case MPI_LASTUSEDCODE:
        return hly_mpi_error_last_used();
    case MPI_UNIVERSE_SIZE:
        return &hly_mpi_job.size;
    default:
        return NULL;
    }
}

static int get_comm(const char *function, struct hly_mpi_comm *comm, int number, void *value,
                    int *flag)
{
    const int rc = hly_mpi_check_comm(function, comm);
    int *known = predefined(number);
    if (rc)
        return rc;
    if (!known)
        return attribute_get(function, HLY_MPI_COMM, comm->attributes, number, value, flag);
    *(void **)value = known;
    *flag = 1;
    return MPI_SUCCESS;
}

int hly_mpi_comm_create_keyval(hly_mpi_fn *comm_copy_attr_fn, hly_mpi_fn *comm_delete_attr_fn,
                               int *comm_keyval, void *extra_state)
{
    return keyval_create("MPI_Comm_create_keyval", HLY_MPI_COMM, comm_copy_attr_fn,
                         comm_delete_attr_fn, comm_keyval, extra_state);
}

int hly_mpi_comm_free_keyval(int *comm_keyval)
{
    return keyval_free("MPI_Comm_free_keyval", HLY_MPI_COMM, comm_keyval);
}

int hly_mpi_comm_set_attr(struct hly_mpi_comm *comm, int comm_keyval, void *attribute_val)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_set_attr", comm);
    return rc ? rc
              : attribute_set("MPI_Comm_set_attr", HLY_MPI_COMM, comm, &comm->attributes,
                              comm_keyval, attribute_val);
}

int hly_mpi_comm_get_attr(struct hly_mpi_comm *comm, int comm_keyval, void *attribute_val,
                          int *flag)
{
    return get_comm("MPI_Comm_get_attr", comm, comm_keyval, attribute_val, flag);
}

int hly_mpi_comm_delete_attr(struct hly_mpi_comm *comm, int comm_keyval)
{
    const int rc = hly_mpi_check_comm("MPI_Comm_delete_attr", comm);
    return rc ? rc
              : attribute_delete("MPI_Comm_delete_attr", HLY_MPI_COMM, comm, &comm->attributes,
                                 comm_keyval);
}

/* MPI-1's names of the same. */
int hly_mpi_keyval_create(hly_mpi_fn *copy_fn, hly_mpi_fn *delete_fn, int *keyval,
                          void *extra_state)
{
    return keyval_create("MPI_Keyval_create", HLY_MPI_COMM, copy_fn, delete_fn, keyval,
                         extra_state);
}

int hly_mpi_keyval_free(int *keyval)
{
    return keyval_free("MPI_Keyval_free", HLY_MPI_COMM, keyval);
}

int hly_mpi_attr_put(struct hly_mpi_comm *comm, int keyval, void *attribute_val)
{
    const int rc = hly_mpi_check_comm("MPI_Attr_put", comm);
    return rc ? rc
              : attribute_set("MPI_Attr_put", HLY_MPI_COMM, comm, &comm->attributes, keyval,
                              attribute_val);
}

int hly_mpi_attr_get(struct hly_mpi_comm *comm, int keyval, void *attribute_val, int *flag)
{
    return get_comm("MPI_Attr_get", comm, keyval, attribute_val, flag);
}

int hly_mpi_attr_delete(struct hly_mpi_comm *comm, int keyval)
{
    const int rc = hly_mpi_check_comm("MPI_Attr_delete", comm);
    return rc ? rc
              : attribute_delete("MPI_Attr_delete", HLY_MPI_COMM, comm, &comm->attributes, keyval);
}

/* ---------------------------------------------------------------- of datatypes */

static int check_type(const char *function, const struct hly_mpi_type *type)
{
    const int rc = hly_mpi_check_job(function);
    return rc || type
               ? rc
               : hly_mpi_fail(MPI_ERR_TYPE, "%s: the datatype is MPI_DATATYPE_NULL, or was freed",
                              function);
}

int hly_mpi_type_create_keyval(hly_mpi_fn *type_copy_attr_fn, hly_mpi_fn *type_delete_attr_fn,
                               int *type_keyval, void *extra_state)
{
    return keyval_create("MPI_Type_create_keyval", HLY_MPI_TYPE, type_copy_attr_fn,
                         type_delete_attr_fn, type_keyval, extra_state);
}

int hly_mpi_type_free_keyval(int *type_keyval)
{
    return keyval_free("MPI_Type_free_keyval", HLY_MPI_TYPE, type_keyval);
}

int hly_mpi_type_set_attr(struct hly_mpi_type *datatype, int type_keyval, void *attribute_val)
{
    const int rc = check_type("MPI_Type_set_attr", datatype);
    return rc ? rc
              : attribute_set("MPI_Type_set_attr", HLY_MPI_TYPE, datatype, &datatype->attributes,
                              type_keyval, attribute_val);
}

int hly_mpi_type_get_attr(struct hly_mpi_type *datatype, int type_keyval, void *attribute_val,
                          int *flag)
{
    const int rc = check_type("MPI_Type_get_attr", datatype);
    return rc ? rc
              : attribute_get("MPI_Type_get_attr", HLY_MPI_TYPE, datatype->attributes, type_keyval,
                              attribute_val, flag);
}

int hly_mpi_type_delete_attr(struct hly_mpi_type *datatype, int type_keyval)
{
    const int rc = check_type("MPI_Type_delete_attr", datatype);
    return rc ? rc
              : attribute_delete("MPI_Type_delete_attr", HLY_MPI_TYPE, datatype,
                                 &datatype->attributes, type_keyval);
}

/* ---------------------------------------------------------------- of programs in Fortran */

int hly_mpi_fortran_set_attr(const char *function, enum hly_mpi_kind kind, void *object, int number,
                             intptr_t value)
{
    struct hly_mpi_comm *comm = kind == HLY_MPI_COMM ? object : NULL;
    struct hly_mpi_type *type = kind == HLY_MPI_TYPE ? object : NULL;
    const int rc =
        kind == HLY_MPI_COMM ? hly_mpi_check_comm(function, comm) : check_type(function, type);
    return rc ? rc
              : attribute_put(function, kind, object, comm ? &comm->attributes : &type->attributes,
                              number, (void *)value, true);
}

int hly_mpi_fortran_get_attr(const char *function, enum hly_mpi_kind kind, void *object, int number,
                             intptr_t *value, int *flag)
{
    struct hly_mpi_comm *comm = kind == HLY_MPI_COMM ? object : NULL;
    struct hly_mpi_type *type = kind == HLY_MPI_TYPE ? object : NULL;
    const int rc =
        kind == HLY_MPI_COMM ? hly_mpi_check_comm(function, comm) : check_type(function, type);
    return rc ? rc
              : attribute_take(function, kind, comm ? comm->attributes : type->attributes, number,
                               value, flag, true);
}

/* ---------------------------------------------------------------- of windows */

int hly_mpi_win_create_keyval(hly_mpi_fn *win_copy_attr_fn, hly_mpi_fn *win_delete_attr_fn,
                              int *win_keyval, void *extra_state)
{
    return keyval_create("MPI_Win_create_keyval", HLY_MPI_WIN, win_copy_attr_fn, win_delete_attr_fn,
                         win_keyval, extra_state);
}

int hly_mpi_win_free_keyval(int *win_keyval)
{
    return keyval_free("MPI_Win_free_keyval", HLY_MPI_WIN, win_keyval);
}

int hly_mpi_win_set_attr(struct hly_mpi_win *win, int win_keyval, void *attribute_val)
{
    const int rc = hly_mpi_check_win("MPI_Win_set_attr", win);
    return rc ? rc
              : attribute_set("MPI_Win_set_attr", HLY_MPI_WIN, win, &win->attributes, win_keyval,
                              attribute_val);
}

/* The base is the value itself; the others are pointers to it. */
int hly_mpi_win_get_attr(struct hly_mpi_win *win, int win_keyval, void *attribute_val, int *flag)
{
    void **value = attribute_val;
    const int rc = hly_mpi_check_win("MPI_Win_get_attr", win);
    if (rc)
        return rc;
    *flag = 1;
    switch (win_keyval) {
    case MPI_WIN_BASE:
        *value = win->base;
        return MPI_SUCCESS;
    case MPI_WIN_SIZE:
        *value = &win->size;
        return MPI_SUCCESS;
    case MPI_WIN_DISP_UNIT:
        *value = &win->disp_unit;
        return MPI_SUCCESS;
    case MPI_WIN_CREATE_FLAVOR:
        *value = &win->flavor;
        return MPI_SUCCESS;
    case MPI_WIN_MODEL:
        *value = &win->model;
        return MPI_SUCCESS;
    default:
        return attribute_get("MPI_Win_get_attr", HLY_MPI_WIN, win->attributes, win_keyval,
                             attribute_val, flag);
    }
}

int hly_mpi_win_delete_attr(struct hly_mpi_win *win, int win_keyval)
{
    const int rc = hly_mpi_check_win("MPI_Win_delete_attr", win);
    return rc ? rc
              : attribute_delete("MPI_Win_delete_attr", HLY_MPI_WIN, win, &win->attributes,
                                 win_keyval);
}
