/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the trainers of other ranks say: announcements in rounds, votes, rows of alltoalls and marks
 * of fused groups, while this rank submits, joins, polls and waits. A trainer with Halay's calls
 * replaced by this file's: the others say what this rank does, but for what the input changes. So
 * programmes are learnt, replayed, and go void.
 */
#include <pthread.h>
#include <time.h>

#include "fuzz.h"
#include "src/training/shell/trainer.h"

enum { RANKS = 3, RANK = 1, NAMES = 6, CALLS = 32, COUNT = 12, KNOWN = 8, STEPS = 400 };

#define ROUND_NS UINT64_C(100000)   /* that a round takes, */
#define END_NS   UINT64_C(50000000) /* where the others only say what this rank does */

struct halay_request {
    uint64_t *words; /* of all ranks; NULL: nothing comes */
    size_t nwords;   /* of each */
    int used, round, code;
    char *bytes; /* reduced */
    size_t nbytes;
};

static struct fuzz *input;
static uint64_t now_ns;
static struct halay_request requests[CALLS];
static struct hlt_announcement known[KNOWN];
static int nknown, called, comms[2], ncomms;

/* ---------------------------------------------------------------- what the others say */

static void change(void *at, size_t bytes)
{
    const size_t where = (fuzz_byte(input) | (size_t)fuzz_byte(input) << 8) % bytes & ~(size_t)7;
    const uint8_t how = fuzz_byte(input);
    uint64_t word = how & 1 ? fuzz_byte(input) : fuzz_word(input);
    word = how & 2 ? ~word : word << (how & 0x18);
    memcpy((char *)at + where, &word, bytes - where < 8 ? bytes - where : 8);
}

/* It announces what this rank has announced before, or will. */
static void tell_known(struct hlt_block *block, uint8_t how)
{
    memset(block, 0, sizeof(*block));
    for (int i = 0; i <= (how & 3) && nknown; i++) {
        const uint8_t what = fuzz_byte(input);
        struct hlt_announcement *says = &block->entries[block->count++];
        *says = known[what % (unsigned)nknown];
        if (what & 0x80)
            says->what = (says->what & ~UINT64_C(0xff)) | fuzz_byte(input);
    }
}

static void tell_block(struct hlt_block *block, const struct hlt_block *own)
{
    const uint8_t how = fuzz_byte(input);
    *block = *own;
    if (how >= 0xf0)
        fuzz_take(input, block, sizeof(*block));
    else if (how >= 0xc0)
        tell_known(block, how);
    if ((how & 0xc0) == 0x80)
        change(block, how & 1 ? sizeof(*block) : 16 + sizeof(block->entries[0]));
}

static void tell_round(struct hlt_block *blocks)
{
    const struct hlt_block *own = &blocks[RANK];
    for (uint64_t i = 0; i < own->count; i++)
        if (hlt_announcement_kind(&own->entries[i]) < HLT_KIND_WITHDRAW)
            known[nknown < KNOWN ? nknown++ : (int)(i % KNOWN)] = own->entries[i];
    for (int r = 0; r < RANKS; r++)
        if (r != RANK)
            tell_block(&blocks[r], own);
}

static void tell_words(const struct halay_request *r)
{
    for (size_t rank = 0; rank < RANKS; rank++) {
        if (rank == RANK)
            continue;
        memcpy(r->words + rank * r->nwords, r->words + RANK * r->nwords, r->nwords * 8);
        if (fuzz_byte(input) & 0x80)
            change(r->words + rank * r->nwords, r->nwords * 8);
    }
}

/* ---------------------------------------------------------------- Halay's calls */

static int begin(halay_request_t **request, struct halay_request says)
{
    struct halay_request *r = requests;
    while (r->used)
        FUZZ_WANT(++r < requests + CALLS);
    *r = says;
    r->used = 1;
    *request = r;
    return HALAY_OK;
}

int __wrap_halay_request_test(halay_request_t *r)
{
    const uint8_t how = fuzz_byte(input);
    if (how == 0xff && input->left)
        return HALAY_INPROGRESS;
    r->used = 0;
    if (r->code || how == 0xfe)
        return r->code ? r->code : HALAY_EPEER;
    if (r->round)
        tell_round((struct hlt_block *)r->words);
    else if (r->words)
        tell_words(r);
    else if (r->bytes && r->nbytes && how & 0x40)
        change(r->bytes, r->nbytes);
    return HALAY_OK;
}

int __wrap_halay_iallgather(const void *in, void *out, size_t count, halay_type_t type,
                            halay_comm_t *comm, halay_request_t **request)
{
    FUZZ_WANT(in == HALAY_IN_PLACE && type == HALAY_UINT64);
    now_ns += input->left ? ROUND_NS : END_NS; /* a rank that is waited for would spin else */
    return begin(request, (struct halay_request){
                              .words = out, .nwords = count, .round = (void *)comm == &comms[0]});
}

int __wrap_halay_ialltoall(const void *in, void *out, size_t count, halay_type_t type,
                           halay_comm_t *comm, halay_request_t **request)
{
    (void)comm;
    FUZZ_WANT(count == 1 && type == HALAY_UINT64);
    memcpy(out, in, RANKS * sizeof(uint64_t));
    return begin(request, (struct halay_request){.bytes = out, .nbytes = RANKS * sizeof(uint64_t)});
}

int __wrap_halay_iallreduce(const void *in, void *out, size_t count, halay_type_t type,
                            halay_op_t op, halay_comm_t *comm, halay_request_t **request)
{
    const size_t bytes = count * halay_type_bytes(type);
    (void)comm, (void)op;
    if (in != HALAY_IN_PLACE)
        memcpy(out, in, bytes);
    else if (bytes)
        memset((char *)out + bytes - 1, *((char *)out + bytes - 1), 1); /* all of it is there */
    return begin(request, (struct halay_request){.bytes = out, .nbytes = bytes});
}

int __wrap_halay_ibroadcast(void *buffer, size_t count, halay_type_t type, int root,
                            halay_comm_t *comm, halay_request_t **request)
{
    (void)comm;
    FUZZ_WANT(root >= 0 && root < RANKS);
    return begin(request,
                 (struct halay_request){.bytes = buffer, .nbytes = count * halay_type_bytes(type)});
}

/* Of what these move the other ranks' calls say as much, or the call fails: nothing is written. */
int __wrap_halay_iallgatherv(const void *in, void *out, const size_t counts[],
                             const size_t displs[], halay_type_t type, halay_comm_t *comm,
                             halay_request_t **request)
{
    (void)in, (void)out, (void)counts, (void)displs, (void)type, (void)comm;
    return begin(request, (struct halay_request){0});
}

int __wrap_halay_ialltoallv(const void *in, const size_t in_counts[], const size_t in_displs[],
                            void *out, const size_t out_counts[], const size_t out_displs[],
                            halay_type_t type, halay_comm_t *comm, halay_request_t **request)
{
    (void)in, (void)in_counts, (void)in_displs, (void)out, (void)out_counts, (void)out_displs;
    (void)type, (void)comm;
    return begin(request, (struct halay_request){0});
}

int __wrap_halay_ireduce_scatterv(const void *in, void *out, const size_t counts[],
                                  halay_type_t type, halay_op_t op, halay_comm_t *comm,
                                  halay_request_t **request)
{
    (void)in, (void)op, (void)comm;
    return begin(request, (struct halay_request){.bytes = out,
                                                 .nbytes = counts[RANK] * halay_type_bytes(type)});
}

int __wrap_halay_local_refuse(halay_comm_t *comm, int code, const char *text,
                              halay_request_t **request)
{
    (void)comm;
    FUZZ_WANT(code && strlen(text) < HLT_TEXT_BYTES);
    return begin(request, (struct halay_request){.code = code});
}

int __wrap_halay_allgather(const void *in, void *out, size_t count, halay_type_t type,
                           halay_comm_t *comm)
{
    (void)in, (void)type, (void)comm;
    tell_words(&(struct halay_request){.words = out, .nwords = count});
    return HALAY_OK;
}

int __wrap_halay_comm_called(halay_comm_t *comm, int *is)
{
    (void)comm;
    *is = called;
    called = called == 2 ? 2 : 0;
    return HALAY_OK;
}

int __wrap_halay_comm_dup(halay_comm_t *comm, halay_comm_t **dup)
{
    (void)comm;
    *dup = (halay_comm_t *)&comms[ncomms++ % 2]; /* control, data */
    return HALAY_OK;
}

int __wrap_halay_comm_deadline(halay_comm_t *comm, uint64_t *deadline_ns)
{
    (void)comm;
    *deadline_ns = UINT64_C(3000000000);
    return HALAY_OK;
}

int __wrap_halay_comm_rank(const halay_comm_t *comm, int *rank)
{
    (void)comm;
    *rank = RANK;
    return HALAY_OK;
}

int __wrap_halay_comm_size(const halay_comm_t *comm, int *size)
{
    (void)comm;
    *size = RANKS;
    return HALAY_OK;
}

int __wrap_halay_mem_kind(halay_context_t *context, const void *address, size_t bytes,
                          uint32_t *kind)
{
    (void)context, (void)address, (void)bytes;
    *kind = HALAY_MEMORY_HOST;
    return HALAY_OK;
}

#define FAILS(name_, ...)                                                                          \
    int __wrap_##name_(__VA_ARGS__)                                                                \
    {                                                                                              \
        return HALAY_EINVAL;                                                                       \
    }
FAILS(halay_comm_verdict, void)
FAILS(halay_context_topology, void)
FAILS(halay_local_alloc, void)
FAILS(halay_barrier, void)
FAILS(halay_broadcast, void)

void __wrap_halay_comm_free(void)
{
}

void __wrap_halay_context_wake(void)
{
}

int __wrap_halay_context_progress(halay_context_t *context, uint64_t timeout_ns)
{
    (void)context;
    now_ns += timeout_ns;
    return HALAY_OK;
}

int __wrap_clock_gettime(clockid_t id, struct timespec *ts)
{
    (void)id;
    now_ns += 1000;
    *ts = (struct timespec){(time_t)(now_ns / 1000000000u), (long)(now_ns % 1000000000u)};
    return 0;
}

/* What others say of rows can be more than there is. */
void *__real_aligned_alloc(size_t unit, size_t bytes);
void *__wrap_aligned_alloc(size_t unit, size_t bytes)
{
    return bytes > 1 << 24 ? NULL : __real_aligned_alloc(unit, bytes);
}

/* The trainer's thread would do what this one does. */
int __wrap_pthread_create(void)
{
    return 0;
}

int __wrap_pthread_join(void)
{
    return 0;
}

/* ---------------------------------------------------------------- this rank */

static halay_trainer_t *trainer;
static halay_ticket_t tickets[NAMES + 1];

static void submit(uint8_t what)
{
    static const char *const plain[NAMES] = {"a", "b", "c", "d", "e", "f"};
    static uint64_t in[NAMES][COUNT], out[NAMES][COUNT];
    static const size_t rows[RANKS] = {1, 2, 0};
    const halay_dims_t shape = {2, {3, 4}};
    const uint8_t n = (what >> 3) % NAMES;
    const size_t count = 4 + (what >> 6);
    const void *from = what & 0x40 ? out[n] : in[n];
    halay_ticket_t *ticket = &tickets[n];
    int rc = 0;
    if (*ticket)
        return;
    switch (what & 7) {
    case 0:
    case 1:
    case 2:
        rc = halay_trainer_allreduce(trainer, n == 5 ? "noname.7" : plain[n], from, out[n], count,
                                     HALAY_INT32, HALAY_SUM, 1, 1, ticket);
        break;
    case 3:
        rc = halay_trainer_broadcast(trainer, plain[n], out[n], count, HALAY_INT64, n % RANKS,
                                     ticket);
        break;
    case 4:
        rc = halay_trainer_allgather(trainer, plain[n], in[n], 1 + (what >> 7), 4, HALAY_INT32,
                                     ticket);
        break;
    case 5:
        rc = halay_trainer_alltoall(trainer, plain[n], in[n], rows, &shape, HALAY_INT32, ticket);
        break;
    case 6:
        rc = halay_trainer_reduce_scatter(trainer, plain[n], in[n], out[n], &shape, HALAY_FLOAT32,
                                          HALAY_SUM, 0.5, 2, ticket);
        break;
    default:
        rc = halay_trainer_barrier(trainer, plain[n], ticket);
    }
    *ticket = rc ? 0 : *ticket;
}

/* What is done is released. */
static void look(void)
{
    for (int i = 0; i <= NAMES; i++) {
        if (!tickets[i] || !halay_trainer_poll(trainer, tickets[i]))
            continue;
        halay_trainer_release(trainer, tickets[i]);
        tickets[i] = 0;
    }
}

static void act(uint8_t what)
{
    if (what < 0xe0)
        submit(what);
    else if (what == 0xe0 && !tickets[NAMES])
        halay_trainer_join(trainer, &tickets[NAMES]);
    else if (what < 0xe8)
        called = what & 3;
    else if (what < 0xf0)
        now_ns += UINT64_C(1000000) << (what & 7) * 2;
    else
        for (int i = 0; i < (what & 7); i++) /* the same again, as in training */
            submit((uint8_t)(i << 3));
    look();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct fuzz f = {data, bytes};
    input = &f;
    now_ns = 1000000000;
    nknown = called = ncomms = 0;
    memset(requests, 0, sizeof(requests));
    memset(tickets, 0, sizeof(tickets));
    setenv("HALAY_DEBUG", "error", 1);
    FUZZ_WANT(!halay_trainer_create((halay_context_t *)&f, (halay_comm_t *)&f, &trainer));
    for (int i = 0; i < STEPS && f.left; i++)
        act(fuzz_byte(&f));
    f.left = 0;
    for (int i = 0; i < 2; i++) {
        now_ns += UINT64_C(4000000000);
        look();
    }
    halay_trainer_destroy(trainer);
    return 0;
}
