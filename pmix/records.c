/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.c - a node's record, written by its first rank and read by those of all nodes.
 *
 * Nobody is told who the first ranks are: rank 0 is one, and the lowest rank that no record has
 * listed yet is the next. So the nodes are found, and numbered without gaps, in the same order
 * everywhere.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "records.h"

#define RECORD_KEY "halay.node.4" /* the number is the record's version */

#define STAY_NS 500000000ull

enum { RECORD_VERSION = 4, RECORD_LIBRARY = 24, RECORD_HOST = 48 };

struct record {
    char library[RECORD_LIBRARY]; /* first in all versions: its build is compared before all else
                                   */
    uint16_t version;
    uint8_t family, fabrics; /* of the address */
    uint32_t nranks;         /* 0: the node cannot join, and a text says why */
    uint64_t nonce;          /* of rank 0's node: tells two jobs of one name apart */
    uint64_t kept;           /* of all its ranks; 0: of none, or not of all */
    uint8_t secret[16];      /* of rank 0's node */
    char host[RECORD_HOST];
    uint8_t ip[16];
    struct {
        uint32_t rank;
        uint16_t port, flags; /* network order; flags: none yet */
    } ranks[];
};
_Static_assert(sizeof(struct record) == 128 && sizeof(((struct record *)0)->ranks[0]) == 8,
               "a node's record is 128 + 8 bytes a rank");

/* Those on the node's list, or one that is alone; and what all of them have kept. */
static void list_ranks(const struct hly_node *node, struct record *record)
{
    const bool alone = node->role == HLY_ROLE_ALONE;
    record->kept = node->self.kept;
    for (int i = 0; i < node->nlocal; i++) {
        if (alone ? node->local[i] != node->rank : !hly_node_lists(node, i))
            continue;
        const struct hly_boot_hello *it = alone ? &node->self : &node->hellos[i];
        record->ranks[record->nranks].port = it->address.port;
        record->ranks[record->nranks++].rank = node->local[i];
        record->kept = it->kept == record->kept ? record->kept : 0;
    }
}

static int publish(const struct hly_boot_log *log, struct record *record, size_t bytes)
{
    pmix_value_t value;
    memset(&value, 0, sizeof value);
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = (char *)record;
    value.data.bo.size = bytes;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, RECORD_KEY, &value);
    if (status == PMIX_SUCCESS)
        status = PMIx_Commit();
    if (status != PMIX_SUCCESS)
        return hly_boot_error(log, HALAY_EBOOT, "cannot publish this node's record: PMIx says %s",
                              PMIx_Error_string(status));
    return HALAY_OK;
}

static struct record *record_new(const struct hly_node *node, size_t bytes)
{
    struct record *record = calloc(1, sizeof *record + bytes);
    if (!record)
        return NULL;
    record->version = RECORD_VERSION;
    memcpy(record->library, node->self.library, sizeof record->library);
    memcpy(record->host, node->self.host, sizeof record->host - 1);
    return record;
}

int hly_pmix_refusal_put(const struct hly_boot_log *log, const struct hly_node *node)
{
    const size_t bytes = strlen(node->failure) + 1;
    struct record *record = record_new(node, bytes);
    if (!record)
        return HALAY_ENOMEM;
    memcpy(record->ranks, node->failure, bytes);
    const int rc = publish(log, record, sizeof *record + bytes);
    free(record);
    return rc;
}

int hly_pmix_record_put(const struct hly_boot_log *log, const struct hly_node *node)
{
    struct record *record = record_new(node, (size_t)node->nlocal * 8);
    if (!record)
        return HALAY_ENOMEM;
    record->family = node->self.address.family;
    record->fabrics = node->self.address.fabrics;
    list_ranks(node, record);
    if (node->self.processors && record->nranks > node->self.processors)
        record->fabrics |=
            HALAY_NODE_OVERSUBSCRIBED | (node->self.processors == 1 ? HALAY_NODE_SINGLE : 0);
    memcpy(record->ip, node->self.address.ip, sizeof record->ip);
    if (node->rank == 0 && (hly_boot_random(log, record->secret, sizeof record->secret) ||
                            hly_boot_random(log, &record->nonce, sizeof record->nonce))) {
        free(record);
        return HALAY_EBOOT;
    }
    size_t bytes = sizeof *record + (size_t)record->nranks * 8;
    assert(bytes == 128 + 8 * (size_t)record->nranks && record->nranks <= (uint32_t)node->nlocal);
    hly_boot_say(log, 2, "rank %u puts a record of %zu bytes", node->rank, bytes);
    const int rc = publish(log, record, bytes);
    free(record);
    return rc;
}

static int valid_record(const pmix_value_t *value, uint32_t rank, int nranks)
{
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size < sizeof(struct record))
        return 0;
    const struct record *got = (const struct record *)value->data.bo.bytes;
    int ok = got->version == RECORD_VERSION && got->nranks >= 1 &&
             got->nranks <= HLY_PMIX_LOCAL_MAX &&
             value->data.bo.size == sizeof *got + (size_t)got->nranks * 8;
    for (uint32_t i = 0; ok && i < got->nranks; i++)
        ok = got->ranks[i].rank < (uint32_t)nranks &&
             (i == 0 || got->ranks[i].rank > got->ranks[i - 1].rank);
    return ok && got->ranks[0].rank == rank && !got->host[RECORD_HOST - 1];
}

/*
 * A value of another rank. Servers have it from the fence, unless theirs carries no data, though it
 * is told to (prterun of Open MPI 5.0.11): then the server on the other node is asked, which did
 * not answer at all for a rank that had exited; so the limit is ours. (PMIx_Get_nb leaks each
 * value: libpmix 4.2.2.)
 */
static pmix_status_t get_value(struct hly_pmix_reading *r, uint32_t rank, pmix_value_t **value)
{
    pmix_proc_t proc;
    pmix_info_t info;
    bool immediate = true;
    PMIX_LOAD_PROCID(&proc, r->nspace, rank);
    memset(&info, 0, sizeof info);
    PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, &immediate, PMIX_BOOL);
    pmix_status_t status = PMIx_Get(&proc, RECORD_KEY, &info, 1, value);
    if (status == PMIX_SUCCESS)
        return status;
    hly_boot_say(r->log, 2, "the fence has brought nothing of rank %u (%s): its server is asked",
                 rank, PMIx_Error_string(status));
    r->asked = 1;
    status = PMIx_Get_nb(&proc, RECORD_KEY, NULL, 0, hly_pmix_call_got, r->call);
    if (status == PMIX_SUCCESS)
        status = hly_pmix_call_wait(r->call, r->end_ns);
    if (status == PMIX_SUCCESS) {
        *value = r->call->value;
        r->call->value = NULL;
    }
    return status;
}

/* Whether a node says there why it cannot join. */
static int refusal(const struct hly_pmix_reading *r, const pmix_value_t *value)
{
    const struct record *got = (const struct record *)value->data.bo.bytes;
    if (value->type != PMIX_BYTE_OBJECT || value->data.bo.size <= sizeof *got ||
        got->version != RECORD_VERSION || got->nranks)
        return 0;
    hly_boot_say(r->log, 0, "the ranks on %.*s cannot join the job: %.*s", RECORD_HOST - 1,
                 got->host, (int)(value->data.bo.size - sizeof *got), (const char *)got->ranks);
    return 1;
}

static int other_build(const struct hly_pmix_reading *r, const pmix_value_t *value, uint32_t rank)
{
    char library[RECORD_LIBRARY] = "", text[HLY_NODE_TEXT];
    struct hly_node *node = r->node;
    if (value->type == PMIX_BYTE_OBJECT && value->data.bo.size >= sizeof library)
        memcpy(library, value->data.bo.bytes, sizeof library - 1);
    if (!strcmp(library, node->self.library))
        return 0;
    snprintf(text, sizeof text,
             "rank %u on another node runs Halay %s, but rank %u on %s runs Halay %s: run the same "
             "build on all nodes",
             rank, library, node->rank, node->self.host, node->self.library);
    hly_boot_say(r->log, 0, "%s", text);
    if (node->role == HLY_ROLE_FIRST)
        hly_node_fail(node, text);
    return 1;
}

/* The record of the node whose first rank is `rank`; to be released. */
static int get_record(struct hly_pmix_reading *r, uint32_t rank, int nranks, pmix_value_t **value)
{
    pmix_status_t status = get_value(r, rank, value);
    if (status != PMIX_SUCCESS)
        return hly_boot_error(r->log, HALAY_EBOOT,
                              "rank %u has left no record of its node: PMIx says %s; do all ranks "
                              "run the same version of Halay?",
                              rank, PMIx_Error_string(status));
    const int said = refusal(r, *value) || other_build(r, *value, rank);
    if (!said && valid_record(*value, rank, nranks))
        return HALAY_OK;
    PMIX_VALUE_RELEASE(*value);
    if (said)
        return HALAY_EBOOT;
    return hly_boot_error(r->log, HALAY_EBOOT,
                          "the record of rank %u's node is not one of this version of Halay: run "
                          "the same version on all nodes",
                          rank);
}

/* Adds the node of a record. */
static int add_node(const struct hly_boot_log *log, const struct record *record,
                    struct hly_pmix_records *to, int32_t *node_of, int *room)
{
    struct hly_boot_places *p = &to->places;
    if (p->nnodes == *room) {
        *room = *room ? *room * 2 : 4;
        void *nodes = realloc(to->nodes, (size_t)*room * sizeof to->nodes[0]);
        if (!nodes)
            return HALAY_ENOMEM;
        to->nodes = nodes;
    }
    struct hly_boot_node *node = &to->nodes[p->nnodes];
    memset(node, 0, sizeof *node);
    memcpy(node->host, record->host, sizeof record->host);
    node->address.family = record->family;
    node->address.fabrics = record->fabrics;
    memcpy(node->address.ip, record->ip, sizeof record->ip);
    for (uint32_t i = 0; i < record->nranks; i++) {
        uint32_t rank = record->ranks[i].rank;
        if (node_of[rank] >= 0)
            return hly_boot_error(log, HALAY_EBOOT,
                                  "two nodes' records list rank %u: ranks %u's node and another",
                                  rank, record->ranks[0].rank);
        node_of[rank] = p->nnodes;
        to->ports[rank] = record->ranks[i].port;
    }
    p->nnodes++;
    return HALAY_OK;
}

static int find_nodes(struct hly_pmix_reading *r, struct hly_pmix_records *to, int32_t *node_of)
{
    pmix_value_t *value = NULL;
    int room = 0, nranks = to->places.nranks;
    memset(node_of, 0xff, (size_t)nranks * sizeof node_of[0]);
    for (int rank = 0; rank < nranks; rank++) {
        if (node_of[rank] >= 0)
            continue;
        int rc = get_record(r, (uint32_t)rank, nranks, &value);
        if (rc)
            return rc;
        const struct record *record = (const struct record *)value->data.bo.bytes;
        if (rank == 0) {
            char nonce[24];
            const char *parts[2] = {r->nspace, nonce};
            snprintf(nonce, sizeof nonce, "%016llx", (unsigned long long)record->nonce);
            hly_boot_hash(parts, 2, to->job);
            memcpy(to->secret, record->secret, sizeof to->secret);
            to->kept = record->kept;
        }
        to->kept = to->kept == record->kept ? to->kept : 0;
        rc = add_node(r->log, record, to, node_of, &room);
        PMIX_VALUE_RELEASE(value);
        if (rc)
            return rc;
    }
    return HALAY_OK;
}

int hly_pmix_records_read(struct hly_pmix_reading *r, int nranks, struct hly_pmix_records *records)
{
    int32_t *node_of = malloc((size_t)nranks * sizeof node_of[0]);
    memset(records, 0, sizeof *records);
    records->places.nranks = nranks;
    records->ports = calloc((size_t)nranks, sizeof records->ports[0]);
    records->runs = malloc((size_t)nranks * sizeof records->runs[0]);
    int rc =
        node_of && records->ports && records->runs ? find_nodes(r, records, node_of) : HALAY_ENOMEM;
    for (int rank = 0; !rc && rank < nranks; rank++)
        if (!rank || node_of[rank] != node_of[rank - 1])
            records->runs[records->places.nruns++] = (struct hly_boot_run){rank, node_of[rank]};
    free(node_of);
    records->places.runs = records->runs;
    records->places.nodes = records->nodes;
    records->places.ports = records->ports;
    return rc;
}

/*
 * Where nodes ask each other's servers, a first rank stays until all have asked: nobody answers for
 * one that has left PMIx. The first ranks alone wait for each other, as long as is of use: an error
 * here is nobody's loss. Nor is it, if only this one had to ask (a second life of PMIx in a
 * process, OpenPMIx 4.2): then the others do not come, and ranks wait for this one in their first
 * call.
 */
void hly_pmix_records_stay(struct hly_pmix_reading *r, const struct hly_pmix_records *records)
{
    const struct hly_boot_places *p = &records->places;
    uint64_t now = hly_boot_now_ns();
    pmix_proc_t *first = r->asked ? calloc((size_t)p->nnodes, sizeof *first) : NULL;
    if (!first)
        return;
    for (int i = 0, n = 0; i < p->nruns; i++)
        if (p->runs[i].node == n) { /* nodes are numbered by their first ranks */
            PMIX_LOAD_PROCID(&first[n], r->nspace, (pmix_rank_t)p->runs[i].first);
            n++;
        }
    if (PMIx_Fence_nb(first, (size_t)p->nnodes, NULL, 0, hly_pmix_call_over, r->call) ==
        PMIX_SUCCESS)
        hly_pmix_call_wait(r->call, now + STAY_NS < r->end_ns ? now + STAY_NS : r->end_ns);
    free(first);
}

void hly_pmix_records_finish(struct hly_pmix_records *records)
{
    free(records->runs);
    free(records->nodes);
    free(records->ports);
    free(records->processes);
    memset(records, 0, sizeof *records);
}
