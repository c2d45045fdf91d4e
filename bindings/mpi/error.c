/* SPDX-License-Identifier: Apache-2.0 */
/* error.c - errors of MPI: their texts, the classes and codes that a program adds, and what an
 * error handler does. The text of the last error is kept for each thread, the rest for the process.
 */
#include "error.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- the thread's last error */

static __thread struct {
    int code;
    int request; /* the class of the request, if the code is MPI_ERR_IN_STATUS */
    char text[MPI_MAX_ERROR_STRING];
} last;

int hly_mpi_fail(int mpi_class, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last.text, sizeof last.text, format, arguments);
    va_end(arguments);
    last.code = mpi_class;
    return mpi_class;
}

static int class_of(int code)
{
    switch (code) {
    case HALAY_EINVAL:
        return MPI_ERR_ARG;
    case HALAY_ENOMEM:
        return MPI_ERR_NO_MEM;
    case HALAY_EUNSUPPORTED:
        return MPI_ERR_UNSUPPORTED_OPERATION;
    case HALAY_EPEER:
        return MPI_ERR_PROC_ABORTED;
    case HALAY_EPLAN:
    case HALAY_EINTERNAL:
        return MPI_ERR_INTERN;
    default: /* ESTATE, EMISMATCH, ETIMEOUT, EREVOKED, ...: MPI has no class for them */
        return MPI_ERR_OTHER;
    }
}

int hly_mpi_result_at(int code, halay_comm_t *comm, const char *function)
{
    halay_verdict_t verdict = {.size = sizeof verdict};
    if (code == HALAY_OK)
        return MPI_SUCCESS;
    if (!comm || halay_comm_verdict(comm, &verdict) != HALAY_OK || verdict.code != code)
        return hly_mpi_fail(class_of(code), "%s: %s", function, halay_strerror(code));
    /* The program has not called the barrier of MPI_Finalize. */
    const bool barrier = code == HALAY_EMISMATCH && strstr(verdict.text, "called barrier");
    return hly_mpi_fail(class_of(code), "%s: %s%s", function, verdict.text,
                        barrier ? ". MPI_Finalize is a barrier, too" : "");
}

int hly_mpi_result(int code, const struct hly_mpi_comm *comm, const char *function)
{
    return hly_mpi_result_at(code, comm ? comm->halay : NULL, function);
}

int hly_mpi_fail_again(int mpi_class, const char *text)
{
    if (text)
        snprintf(last.text, sizeof last.text, "%s", text);
    last.request = mpi_class == MPI_ERR_IN_STATUS ? last.code : MPI_SUCCESS;
    last.code = mpi_class;
    return mpi_class;
}

const char *hly_mpi_last_text(int mpi_class)
{
    return last.code == mpi_class || (last.code == MPI_ERR_IN_STATUS && last.request == mpi_class)
               ? last.text
               : NULL;
}

/* ---------------------------------------------------------------- classes and codes */

static const char *const texts[] = {
    [MPI_SUCCESS] = "MPI_SUCCESS: no error",
    [MPI_ERR_BUFFER] = "MPI_ERR_BUFFER: a buffer is not valid",
    [MPI_ERR_COUNT] = "MPI_ERR_COUNT: a count is not valid",
    [MPI_ERR_TYPE] = "MPI_ERR_TYPE: a datatype is not valid",
    [MPI_ERR_TAG] = "MPI_ERR_TAG: a tag is not valid",
    [MPI_ERR_COMM] = "MPI_ERR_COMM: a communicator is not valid",
    [MPI_ERR_RANK] = "MPI_ERR_RANK: a rank is not valid",
    [MPI_ERR_REQUEST] = "MPI_ERR_REQUEST: a request is not valid",
    [MPI_ERR_ROOT] = "MPI_ERR_ROOT: a root is not valid",
    [MPI_ERR_GROUP] = "MPI_ERR_GROUP: a group is not valid",
    [MPI_ERR_OP] = "MPI_ERR_OP: an operation is not valid",
    [MPI_ERR_TOPOLOGY] = "MPI_ERR_TOPOLOGY: the communicator has no such topology",
    [MPI_ERR_DIMS] = "MPI_ERR_DIMS: a dimension is not valid",
    [MPI_ERR_ARG] = "MPI_ERR_ARG: an argument is not valid",
    [MPI_ERR_UNKNOWN] = "MPI_ERR_UNKNOWN: the error is not known",
    [MPI_ERR_TRUNCATE] = "MPI_ERR_TRUNCATE: a message was longer than its receive buffer",
    [MPI_ERR_OTHER] = "MPI_ERR_OTHER: an error without a class",
    [MPI_ERR_INTERN] = "MPI_ERR_INTERN: an error in the library",
    [MPI_ERR_PENDING] = "MPI_ERR_PENDING: the request is not done yet",
    [MPI_ERR_IN_STATUS] = "MPI_ERR_IN_STATUS: the statuses have the errors",
    [MPI_ERR_ACCESS] = "MPI_ERR_ACCESS: permission was denied",
    [MPI_ERR_AMODE] = "MPI_ERR_AMODE: an access mode is not valid",
    [MPI_ERR_ASSERT] = "MPI_ERR_ASSERT: an assertion is not valid",
    [MPI_ERR_BAD_FILE] = "MPI_ERR_BAD_FILE: a file name is not valid",
    [MPI_ERR_BASE] = "MPI_ERR_BASE: a base address is not valid",
    [MPI_ERR_CONVERSION] = "MPI_ERR_CONVERSION: a conversion function has failed",
    [MPI_ERR_DISP] = "MPI_ERR_DISP: a displacement is not valid",
    [MPI_ERR_DUP_DATAREP] = "MPI_ERR_DUP_DATAREP: the data representation is defined already",
    [MPI_ERR_FILE_EXISTS] = "MPI_ERR_FILE_EXISTS: the file exists",
    [MPI_ERR_FILE_IN_USE] = "MPI_ERR_FILE_IN_USE: the file is open",
    [MPI_ERR_FILE] = "MPI_ERR_FILE: a file handle is not valid",
    [MPI_ERR_INFO_KEY] = "MPI_ERR_INFO_KEY: a key is not valid",
    [MPI_ERR_INFO_NOKEY] = "MPI_ERR_INFO_NOKEY: there is no such key",
    [MPI_ERR_INFO_VALUE] = "MPI_ERR_INFO_VALUE: a value is not valid",
    [MPI_ERR_INFO] = "MPI_ERR_INFO: an info object is not valid",
    [MPI_ERR_IO] = "MPI_ERR_IO: input or output has failed",
    [MPI_ERR_KEYVAL] = "MPI_ERR_KEYVAL: a key of attributes is not valid",
    [MPI_ERR_LOCKTYPE] = "MPI_ERR_LOCKTYPE: a type of lock is not valid",
    [MPI_ERR_NAME] = "MPI_ERR_NAME: the name is not published",
    [MPI_ERR_NO_MEM] = "MPI_ERR_NO_MEM: memory ran out",
    [MPI_ERR_NOT_SAME] = "MPI_ERR_NOT_SAME: an argument is not the same on all ranks",
    [MPI_ERR_NO_SPACE] = "MPI_ERR_NO_SPACE: the file system has no space",
    [MPI_ERR_NO_SUCH_FILE] = "MPI_ERR_NO_SUCH_FILE: there is no such file",
    [MPI_ERR_PORT] = "MPI_ERR_PORT: a port is not valid",
    [MPI_ERR_QUOTA] = "MPI_ERR_QUOTA: a quota is used up",
    [MPI_ERR_READ_ONLY] = "MPI_ERR_READ_ONLY: the file or file system can only be read",
    [MPI_ERR_RMA_ATTACH] = "MPI_ERR_RMA_ATTACH: memory cannot be attached to the window",
    [MPI_ERR_RMA_CONFLICT] = "MPI_ERR_RMA_CONFLICT: accesses to a window conflict",
    [MPI_ERR_RMA_RANGE] = "MPI_ERR_RMA_RANGE: the target's memory is not in the window",
    [MPI_ERR_RMA_SHARED] = "MPI_ERR_RMA_SHARED: memory cannot be shared",
    [MPI_ERR_RMA_SYNC] = "MPI_ERR_RMA_SYNC: calls that synchronize a window are in a wrong order",
    [MPI_ERR_SERVICE] = "MPI_ERR_SERVICE: a service name is not valid",
    [MPI_ERR_SIZE] = "MPI_ERR_SIZE: a size is not valid",
    [MPI_ERR_SPAWN] = "MPI_ERR_SPAWN: processes could not be started",
    [MPI_ERR_UNSUPPORTED_DATAREP] = "MPI_ERR_UNSUPPORTED_DATAREP: there is no such representation",
    [MPI_ERR_UNSUPPORTED_OPERATION] = "MPI_ERR_UNSUPPORTED_OPERATION: this MPI does not have it",
    [MPI_ERR_WIN] = "MPI_ERR_WIN: a window is not valid",
    [MPI_ERR_RMA_FLAVOR] = "MPI_ERR_RMA_FLAVOR: the window is of another flavor",
    [MPI_ERR_PROC_ABORTED] = "MPI_ERR_PROC_ABORTED: a peer has died, or cannot be reached",
    [MPI_ERR_VALUE_TOO_LARGE] = "MPI_ERR_VALUE_TOO_LARGE: a value does not fit into the variable",
    [MPI_ERR_SESSION] = "MPI_ERR_SESSION: a session is not valid",
    [MPI_ERR_ERRHANDLER] = "MPI_ERR_ERRHANDLER: an error handler is not valid",
    [MPI_ERR_ABI] = "MPI_ERR_ABI: the ABI does not permit this",
};
#define CLASSES ((int)(sizeof texts / sizeof texts[0]))

/* Those of MPI_T begin at 1001. */
static const char *const tool_texts[] = {
    "MPI_T_ERR_CANNOT_INIT: MPI_T cannot be initialized",
    "MPI_T_ERR_NOT_ACCESSIBLE: it cannot be accessed now",
    "MPI_T_ERR_NOT_INITIALIZED: MPI_T is not initialized",
    "MPI_T_ERR_NOT_SUPPORTED: this MPI does not have it",
    "MPI_T_ERR_MEMORY: memory ran out",
    "MPI_T_ERR_INVALID: an argument is not valid",
    "MPI_T_ERR_INVALID_INDEX: an index is not valid",
    "MPI_T_ERR_INVALID_ITEM: an item is not valid",
    "MPI_T_ERR_INVALID_SESSION: a session is not valid",
    "MPI_T_ERR_INVALID_HANDLE: a handle is not valid",
    "MPI_T_ERR_INVALID_NAME: there is no such name",
    "MPI_T_ERR_OUT_OF_HANDLES: all handles are in use",
    "MPI_T_ERR_OUT_OF_SESSIONS: all sessions are in use",
    "MPI_T_ERR_CVAR_SET_NOT_NOW: the variable cannot be set now",
    "MPI_T_ERR_CVAR_SET_NEVER: the variable cannot be set",
    "MPI_T_ERR_PVAR_NO_WRITE: the variable cannot be written",
    "MPI_T_ERR_PVAR_NO_STARTSTOP: the variable cannot be started or stopped",
    "MPI_T_ERR_PVAR_NO_ATOMIC: the variable cannot be read and reset at once",
};
#define TOOL_FIRST   1001
#define TOOL_CLASSES ((int)(sizeof tool_texts / sizeof tool_texts[0]))

/* The program's own: number FIRST_OWN + place. They are never used again. */
#define FIRST_OWN (MPI_ERR_LASTCODE + 1)
struct own {
    int of;    /* class of a code; a class: its own number */
    int codes; /* of a class: how many are left */
    bool gone;
    char *text;
};
static struct {
    pthread_mutex_t lock;
    struct own *at;
    int count, room;
} owns = {.lock = PTHREAD_MUTEX_INITIALIZER};
static int last_used = MPI_ERR_LASTCODE;

int *hly_mpi_error_last_used(void)
{
    return &last_used;
}

/* With the lock held. */
static struct own *own_of(int code)
{
    int place = code - FIRST_OWN;
    return code >= FIRST_OWN && place < owns.count && !owns.at[place].gone ? &owns.at[place] : NULL;
}

static bool is_predefined(int code)
{
    return (code >= 0 && code < CLASSES) ||
           (code >= TOOL_FIRST && code < TOOL_FIRST + TOOL_CLASSES);
}

/* Adds a class (of: -1) or a code of a class. */
static int add(const char *function, int of, int *code)
{
    int rc = MPI_SUCCESS;
    if (!code)
        return hly_mpi_fail(MPI_ERR_ARG, "%s: the result's address is NULL", function);
    pthread_mutex_lock(&owns.lock);
    struct own *parent = own_of(of);
    if (of != -1 && !is_predefined(of) && (!parent || parent->of != of)) {
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: %d is no error class", function, of);
        goto unlock;
    }
    if (owns.count == owns.room) {
        int room = owns.room ? owns.room * 2 : 16;
        struct own *more = realloc(owns.at, (size_t)room * sizeof *more);
        if (!more) {
            rc = hly_mpi_fail(MPI_ERR_NO_MEM, "%s: no memory for one more code", function);
            goto unlock;
        }
        owns.at = more;
        owns.room = room;
        parent = own_of(of);
    }
    last_used = *code = FIRST_OWN + owns.count++;
    owns.at[*code - FIRST_OWN] = (struct own){.of = of == -1 ? *code : of};
    if (parent)
        parent->codes++;
unlock:
    pthread_mutex_unlock(&owns.lock);
    return rc;
}

int hly_mpi_add_error_class(int *errorclass)
{
    return add("MPI_Add_error_class", -1, errorclass);
}

int hly_mpi_add_error_code(int errorclass, int *errorcode)
{
    if (errorclass == -1)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Add_error_code: -1 is no error class");
    return add("MPI_Add_error_code", errorclass, errorcode);
}

int hly_mpi_add_error_string(int errorcode, const char *string)
{
    int rc = MPI_SUCCESS;
    char *text = string ? strndup(string, MPI_MAX_ERROR_STRING - 1) : NULL;
    if (!text)
        return hly_mpi_fail(string ? MPI_ERR_NO_MEM : MPI_ERR_ARG, "MPI_Add_error_string: %s",
                            string ? "no memory for the text" : "the text is NULL");
    pthread_mutex_lock(&owns.lock);
    struct own *own = own_of(errorcode);
    if (own) {
        free(own->text);
        own->text = text;
    } else {
        free(text);
        rc = hly_mpi_fail(MPI_ERR_ARG,
                          "MPI_Add_error_string: the program has not added the code %d", errorcode);
    }
    pthread_mutex_unlock(&owns.lock);
    return rc;
}

static int drop(const char *function, int code, bool a_class)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&owns.lock);
    struct own *own = own_of(code);
    if (!own || (own->of == code) != a_class) {
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: the program has not added the %s %d", function,
                          a_class ? "class" : "code", code);
    } else if (own->text) {
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: remove the text of %d first", function, code);
    } else if (own->codes) {
        rc = hly_mpi_fail(MPI_ERR_ARG, "%s: remove the %d codes of class %d first", function,
                          own->codes, code);
    } else {
        struct own *parent = a_class ? NULL : own_of(own->of);
        if (parent)
            parent->codes--;
        own->gone = true;
    }
    pthread_mutex_unlock(&owns.lock);
    return rc;
}

int hly_mpi_remove_error_class(int errorclass)
{
    return drop("MPI_Remove_error_class", errorclass, true);
}

int hly_mpi_remove_error_code(int errorcode)
{
    return drop("MPI_Remove_error_code", errorcode, false);
}

int hly_mpi_remove_error_string(int errorcode)
{
    int rc = MPI_SUCCESS;
    pthread_mutex_lock(&owns.lock);
    struct own *own = own_of(errorcode);
    if (own && own->text) {
        free(own->text);
        own->text = NULL;
    } else {
        rc = hly_mpi_fail(MPI_ERR_ARG, "MPI_Remove_error_string: the program has given %d no text",
                          errorcode);
    }
    pthread_mutex_unlock(&owns.lock);
    return rc;
}

int hly_mpi_error_class(int errorcode, int *errorclass)
{
    if (!errorclass)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Error_class: the result's address is NULL");
    pthread_mutex_lock(&owns.lock);
    struct own *own = own_of(errorcode);
    bool known = own || is_predefined(errorcode);
    if (known)
        *errorclass = own ? own->of : errorcode;
    pthread_mutex_unlock(&owns.lock);
    return known ? MPI_SUCCESS
                 : hly_mpi_fail(MPI_ERR_ARG, "MPI_Error_class: %d is no error code", errorcode);
}

/* MPI_ERR_COUNT: MPI_Send: count is -1, ...: of the thread's last error, if it has this code. */
static bool error_text(int code, char text[MPI_MAX_ERROR_STRING])
{
    pthread_mutex_lock(&owns.lock);
    struct own *own = own_of(code);
    bool known = own || is_predefined(code);
    const char *found = "the error code has no text";
    if (own)
        found = own->text ? own->text : "";
    else if (known)
        found = code < CLASSES ? texts[code] : tool_texts[code - TOOL_FIRST];
    if (known && !own && code != MPI_SUCCESS && hly_mpi_last_text(code))
        snprintf(text, MPI_MAX_ERROR_STRING, "%.*s: %.450s", (int)strcspn(found, ":"), found,
                 last.text);
    else
        snprintf(text, MPI_MAX_ERROR_STRING, "%s", found);
    pthread_mutex_unlock(&owns.lock);
    return known;
}

const char *hly_mpi_error_text(int code)
{
    static __thread char text[MPI_MAX_ERROR_STRING];
    error_text(code, text);
    return text;
}

int hly_mpi_error_string(int errorcode, char *string, int *resultlen)
{
    if (!string || !resultlen)
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Error_string: an address for the result is NULL");
    if (!error_text(errorcode, string))
        return hly_mpi_fail(MPI_ERR_ARG, "MPI_Error_string: %d is no error code", errorcode);
    *resultlen = (int)strlen(string);
    return MPI_SUCCESS;
}
