/* SPDX-License-Identifier: Apache-2.0 */
/*
 * windows.c - one-sided communication against a serial reference. Each rank knows by a common
 * generator of random numbers what all ranks do, and computes what its memory has to hold. Each
 * sort of window, each way to synchronize.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN    512 /* words that one origin puts */
#define COMMON 512 /* words that all ranks accumulate to, and get from */
#define LONG   400000
#define WORD   ((int64_t)sizeof(int64_t))

static int rank, size, failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "rank %d, line %d: %s: ", rank, __LINE__, #condition);                 \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fprintf(stderr, "\n");                                                                 \
            if (++failures > 20)                                                                   \
                MPI_Abort(MPI_COMM_WORLD, 1);                                                      \
        }                                                                                          \
    } while (0)

/* ---------------------------------------------------------------- random numbers */

static uint64_t state;

static uint64_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 33;
}
static int below(int n)
{
    return (int)(draw() % (uint64_t)n);
}

/* ---------------------------------------------------------------- windows */

enum sort { CREATE, ALLOCATE, SHARED, DYNAMIC, SORTS };
static const char *const sorts[] = {"create", "allocate", "allocate_shared", "dynamic"};
enum way { FENCE, PSCW, LOCK, EXCLUSIVE, LOCK_ALL, WAYS };
static const char *const ways[] = {"fence", "post/start", "lock", "exclusive", "lock_all"};

static int64_t words, *memory, *reference; /* of this rank; reference: of all */
static MPI_Win win;
static MPI_Aint addresses[64];
static enum sort sort;

static int unit_of(int r)
{
    static const int units[] = {8, 1, 4, 2};
    return sort == DYNAMIC ? 1 : units[r % 4];
}

static void make_window(void)
{
    const MPI_Aint bytes = words * WORD;
    memory = NULL;
    if (sort == CREATE) {
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
        MPI_Win_create(memory, bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else if (sort == ALLOCATE) {
        MPI_Win_allocate(bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else if (sort == SHARED) {
        MPI_Win_allocate_shared(bytes, unit_of(rank), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    } else {
        MPI_Aint at;
        MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
        MPI_Alloc_mem(bytes, MPI_INFO_NULL, &memory);
        MPI_Win_attach(win, memory, bytes);
        MPI_Get_address(memory, &at);
        MPI_Allgather(&at, 1, MPI_AINT, addresses, 1, MPI_AINT, MPI_COMM_WORLD);
    }
    memset(memory, 0, (size_t)bytes);
    memset(reference, 0, (size_t)(bytes * size));
    MPI_Barrier(MPI_COMM_WORLD);
}

static void free_window(void)
{
    if (sort == DYNAMIC)
        MPI_Win_detach(win, memory);
    MPI_Win_free(&win);
    if (sort == CREATE || sort == DYNAMIC)
        MPI_Free_mem(memory);
}

/* Where word w of a rank is, as a displacement. */
static MPI_Aint place(int r, int64_t w)
{
    return sort == DYNAMIC ? MPI_Aint_add(addresses[r], w * WORD) : w * WORD / unit_of(r);
}
static int64_t own(int origin)
{
    return COMMON + (int64_t)origin * OWN;
}

/* ---------------------------------------------------------------- synchronization */

static MPI_Group everyone;

static void begin(enum way way, int target)
{
    if (way == FENCE)
        MPI_Win_fence(0, win);
    if (way == PSCW) {
        MPI_Win_post(everyone, 0, win);
        MPI_Win_start(everyone, 0, win);
    }
    if (way == LOCK || way == EXCLUSIVE)
        MPI_Win_lock(way == LOCK ? MPI_LOCK_SHARED : MPI_LOCK_EXCLUSIVE, target, 0, win);
    if (way == LOCK_ALL)
        MPI_Win_lock_all(0, win);
}

static void end(enum way way, int target)
{
    int flag = 0;
    if (way == FENCE)
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    if (way == PSCW) {
        MPI_Win_complete(win);
        if (target % 2)
            MPI_Win_wait(win);
        else
            while (!flag)
                MPI_Win_test(win, &flag);
    }
    if (way == LOCK || way == EXCLUSIVE)
        MPI_Win_unlock(target, win);
    if (way == LOCK_ALL) {
        if (target % 2)
            MPI_Win_flush(target, win);
        MPI_Win_unlock_all(win);
    }
}

/* ---------------------------------------------------------------- operations */

/* Datatypes of n words: contiguous, each second word, pairs of words, a list of places. All span at
 * most 3 n words. */
static MPI_Datatype make_type(int kind, int n)
{
    MPI_Datatype type;
    if (kind == 0) {
        MPI_Type_contiguous(n, MPI_INT64_T, &type);
    } else if (kind == 1) {
        MPI_Type_vector(n, 1, 2, MPI_INT64_T, &type);
    } else if (kind == 2) {
        MPI_Type_create_hvector(n, 1, 3 * WORD, MPI_INT64_T, &type);
    } else {
        int *displacements = malloc((size_t)n * sizeof(int));
        for (int i = 0; i < n; i++)
            displacements[i] = 2 * (n - 1 - i) + (i % 3 == 0);
        MPI_Type_create_indexed_block(n, 1, displacements, MPI_INT64_T, &type);
        free(displacements);
    }
    MPI_Type_commit(&type);
    return type;
}
static int64_t word_of(int kind, int n, int i)
{
    return kind == 0 ? i : kind == 1 ? 2 * i : kind == 2 ? 3 * i : 2 * (n - 1 - i) + (i % 3 == 0);
}

struct drawn {
    int what, target, n, from_kind, to_kind;
    int64_t at, seed;
};
enum { PUT, ACCUMULATE, GET, GET_ACCUMULATE, WHATS };

/* In a round all ranks accumulate by the same operation. Puts go to words that only this origin
 * writes; a put's words are a third of the origin's own, so that no two puts of a round meet. */
static struct drawn draw_one(int origin, int target, int turn)
{
    struct drawn d = {.what = below(WHATS), .target = target, .seed = (int64_t)draw()};
    d.n = 1 + below(OWN / 9 - 4);
    d.from_kind = below(4);
    d.to_kind = below(4);
    d.at = d.what == PUT   ? own(origin) + (turn % 3) * (OWN / 3)
           : d.what == GET ? own(below(size)) + below(OWN / 2)
                           : below(COMMON / 2);
    return d;
}

static int64_t value(const struct drawn *d, int i)
{
    return (d->seed + i) * 1000003 % 9973;
}

static int64_t combine(MPI_Op op, int64_t a, int64_t b)
{
    return op == MPI_SUM ? a + b : op == MPI_BXOR ? (a ^ b) : op == MPI_MAX ? (a > b ? a : b) : b;
}

/* Buffers of an operation, until the epoch ends. */
struct seen {
    int64_t *buffer, *result;
    struct drawn d;
};

static void do_one(const struct drawn *d, MPI_Op op, struct seen *seen, int passive)
{
    MPI_Datatype from = make_type(d->from_kind, d->n), to = make_type(d->to_kind, d->n),
                 spread = make_type(1, d->n);
    int64_t *buffer = malloc((size_t)(3 * d->n) * sizeof(*buffer));
    int64_t *result = malloc((size_t)(3 * d->n) * sizeof(*result));
    MPI_Request request = MPI_REQUEST_NULL;
    const MPI_Aint at = place(d->target, d->at);
    const int requests = passive && d->seed % 2;
    memset(result, 0xff, (size_t)(3 * d->n) * sizeof(*result));
    for (int i = 0; i < 3 * d->n; i++)
        buffer[i] = -1;
    for (int i = 0; i < d->n; i++)
        buffer[word_of(d->from_kind, d->n, i)] = value(d, i);
    *seen = (struct seen){buffer, result, *d};
    if (d->what == PUT && requests)
        MPI_Rput(buffer, 1, from, d->target, at, 1, to, win, &request);
    else if (d->what == PUT)
        MPI_Put(buffer, 1, from, d->target, at, 1, to, win);
    else if (d->what == ACCUMULATE && requests)
        MPI_Raccumulate(buffer, 1, from, d->target, at, 1, to, op, win, &request);
    else if (d->what == ACCUMULATE)
        MPI_Accumulate_c(buffer, 1, from, d->target, at, 1, to, op, win);
    else if (d->what == GET && requests)
        MPI_Rget(result, 1, spread, d->target, at, d->n, MPI_INT64_T, win, &request);
    else if (d->what == GET)
        MPI_Get(result, 1, spread, d->target, at, d->n, MPI_INT64_T, win);
    else if (requests)
        MPI_Rget_accumulate(buffer, 1, from, result, d->n, MPI_INT64_T, d->target, at, 1, to, op,
                            win, &request);
    else
        MPI_Get_accumulate(buffer, 1, from, result, d->n, MPI_INT64_T, d->target, at, 1, to, op,
                           win);
    MPI_Type_free(&from);
    MPI_Type_free(&to);
    MPI_Type_free(&spread);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (requests) /* it is free again */
        memset(buffer, 0x77, (size_t)(3 * d->n) * sizeof(*buffer));
}

static void model_one(const struct drawn *d, MPI_Op op)
{
    int64_t *to = reference + d->target * words + d->at;
    for (int i = 0; i < d->n && d->what != GET; i++) {
        int64_t *word = &to[word_of(d->to_kind, d->n, i)];
        *word = d->what == PUT ? value(d, i) : combine(op, *word, value(d, i));
    }
}

static void compare(const char *when)
{
    int wrong = 0;
    const int64_t *mine = reference + rank * words;
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    for (int64_t w = 0; w < COMMON + (int64_t)size * OWN; w++)
        if (memory[w] != mine[w] && wrong++ < 3)
            CHECK(0, "%s, %s: word %lld is %lld, not %lld", sorts[sort], when, (long long)w,
                  (long long)memory[w], (long long)mine[w]);
    MPI_Win_unlock(rank, win);
}

/* A get and a put of the same words by another rank in one round conflict: such a get may see
 * either. */
static int conflicts(const struct drawn *g, const struct drawn *all, int n, int64_t w)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < all[i].n && all[i].what == PUT && all[i].target == g->target; j++)
            if (all[i].at + word_of(all[i].to_kind, all[i].n, j) == w)
                return 1;
    return 0;
}

static void check_gets(const struct seen *seen, int nseen, const struct drawn *all, int n)
{
    for (int s = 0; s < nseen; s++) {
        const struct drawn *d = &seen[s].d;
        for (int i = 0; i < d->n && d->what == GET; i++) {
            const int64_t got = seen[s].result[i * 2];
            if (!conflicts(d, all, n, d->at + i))
                CHECK(got == reference[d->target * words + d->at + i],
                      "%s: got %lld from word %lld of rank %d", sorts[sort], (long long)got,
                      (long long)(d->at + i), d->target);
        }
        free(seen[s].buffer);
        free(seen[s].result);
    }
}

static void random_round(enum way way)
{
    const MPI_Op ops[] = {MPI_SUM, MPI_BXOR, MPI_MAX}, op = ops[below(3)];
    struct drawn all[256];
    struct seen seen[16];
    int n = 0, nseen = 0, targets[16], turns = 3;
    for (int r = 0; r < size; r++)
        targets[r] = below(size);
    for (int r = 0; r < size; r++)
        for (int t = 0; t < turns; t++)
            all[n++] = draw_one(r, targets[r], t);
    begin(way, targets[rank]);
    for (int i = 0; i < n; i++)
        if (i / turns == rank)
            do_one(&all[i], op, &seen[nseen++], way >= LOCK);
    end(way, targets[rank]);
    check_gets(seen, nseen, all, n);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < n; i++)
        model_one(&all[i], op);
    compare(ways[way]);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* ---------------------------------------------------------------- long ones */

static void long_round(enum way way)
{
    const int to = (rank + 1) % size, from = (rank + size - 1) % size;
    const int64_t at = COMMON + (int64_t)size * OWN;
    int64_t *out = malloc(LONG * sizeof(*out)), *in = malloc(LONG * sizeof(*in)), wrong = 0;
    MPI_Datatype spread = make_type(1, LONG / 2);
    for (int i = 0; i < LONG; i++)
        out[i] = rank * 7 + i;
    begin(way, to);
    MPI_Put(out, LONG, MPI_INT64_T, to, place(to, at), LONG, MPI_INT64_T, win);
    end(way, to);
    MPI_Barrier(MPI_COMM_WORLD);
    begin(way, to);
    MPI_Accumulate(out, LONG / 2, MPI_INT64_T, to, place(to, at), 1, spread, MPI_SUM, win);
    end(way, to);
    MPI_Barrier(MPI_COMM_WORLD);
    memset(in, 0, LONG * sizeof(*in));
    begin(way, to);
    MPI_Get(in, LONG, MPI_INT64_T, to, place(to, at), LONG, MPI_INT64_T, win);
    end(way, to);
    for (int i = 0; i < LONG; i++)
        wrong += in[i] != rank * 7 + i + (i % 2 ? 0 : rank * 7 + i / 2);
    CHECK(!wrong, "%s, %s: %lld of %d words are wrong", sorts[sort], ways[way], (long long)wrong,
          LONG);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    wrong = 0;
    for (int i = 0; i < LONG; i++)
        wrong += memory[at + i] != from * 7 + i + (i % 2 ? 0 : from * 7 + i / 2);
    CHECK(!wrong, "%s, %s: %lld words of the memory are wrong", sorts[sort], ways[way],
          (long long)wrong);
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    begin(way, to);
    MPI_Get_accumulate(out, LONG / 2, MPI_INT64_T, in, 1, spread, to, place(to, at), 1, spread,
                       MPI_REPLACE, win);
    end(way, to);
    wrong = 0;
    for (int i = 0; i < LONG; i += 2)
        wrong += in[i] != rank * 7 + i + rank * 7 + i / 2;
    CHECK(!wrong, "%s, %s: %lld fetched words are wrong", sorts[sort], ways[way], (long long)wrong);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Type_free(&spread);
    free(out);
    free(in);
}

/* ---------------------------------------------------------------- one word */

static void counters(void)
{
    /* Mapped memory is so fast that ranks meet only if each goes on for some time. */
    const int mapped = sort == ALLOCATE || sort == SHARED, TIMES = mapped ? 50000 : 200;
    const int64_t one = 1;
    int64_t last = -1, sum = 0, old, none = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    memory[0] = memory[1] = memory[2] = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < TIMES; i++) {
        MPI_Fetch_and_op(&one, &old, MPI_INT64_T, 0, place(0, 0), MPI_SUM, win);
        MPI_Win_flush(0, win);
        CHECK(old > last && old < (int64_t)size * TIMES, "ticket %lld after %lld", (long long)old,
              (long long)last);
        last = old;
        sum += old;
    }
    /* A counter by compare and swap. */
    for (int i = 0; i < TIMES; i++) {
        int64_t seen = 0, wanted;
        do {
            wanted = seen + 1;
            const int64_t compare = seen;
            MPI_Compare_and_swap(&wanted, &compare, &seen, MPI_INT64_T, size - 1,
                                 place(size - 1, 1), win);
            MPI_Win_flush(size - 1, win);
        } while (seen + 1 != wanted);
    }
    MPI_Win_unlock_all(win);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    const int64_t all = (int64_t)size * TIMES;
    CHECK(sum == all * (all - 1) / 2, "%s: the tickets' sum is %lld", sorts[sort], (long long)sum);
    MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, win);
    MPI_Fetch_and_op(NULL, &none, MPI_INT64_T, size - 1, place(size - 1, 1), MPI_NO_OP, win);
    MPI_Win_unlock(size - 1, win);
    CHECK(none == all, "%s: compare and swap has counted to %lld", sorts[sort], (long long)none);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Many orders are on their way when the epoch ends. */
static void burst(enum way way)
{
    enum { TIMES = 2000, EACH = 40 };
    const int to = (rank + 1) % size;
    int64_t ones[EACH];
    MPI_Datatype type = make_type(1, EACH);
    for (int i = 0; i < EACH; i++)
        ones[i] = 1;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    memset(memory, 0, COMMON * sizeof(*memory));
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    begin(way, to);
    for (int i = 0; i < TIMES; i++)
        MPI_Accumulate(ones, EACH, MPI_INT64_T, to, place(to, 0), 1, type, MPI_SUM, win);
    if (way == LOCK_ALL)
        MPI_Win_flush(to, win);
    else
        end(way, to);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < EACH; i++)
        CHECK(((volatile int64_t *)memory)[2 * i] == TIMES, "%s, %s: word %d is %lld", sorts[sort],
              ways[way], i, (long long)memory[2 * i]);
    if (way == LOCK_ALL)
        end(way, to);
    MPI_Type_free(&type);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A counter that is read and written: only an exclusive lock keeps it right. */
static void locked_counter(void)
{
    enum { TIMES = 100 };
    int64_t word = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    memory[2] = 0;
    MPI_Win_unlock(rank, win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < TIMES; i++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, size - 1, 0, win);
        MPI_Get(&word, 1, MPI_INT64_T, size - 1, place(size - 1, 2), 1, MPI_INT64_T, win);
        MPI_Win_flush(size - 1, win);
        word++;
        MPI_Put(&word, 1, MPI_INT64_T, size - 1, place(size - 1, 2), 1, MPI_INT64_T, win);
        MPI_Win_unlock(size - 1, win);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, win);
    MPI_Get(&word, 1, MPI_INT64_T, size - 1, place(size - 1, 2), 1, MPI_INT64_T, win);
    MPI_Win_unlock(size - 1, win);
    CHECK(word == (int64_t)size * TIMES, "%s: the locked counter is %lld", sorts[sort],
          (long long)word);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void pairs(void)
{
    struct {
        double value;
        int rank;
    } mine = {.value = (rank * 5 + 3) % size, .rank = rank}, *there = (void *)memory, got;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, win);
    memory[0] = memory[1] = 0;
    there->value = -1;
    there->rank = 99;
    MPI_Win_unlock(rank, win);
    MPI_Win_fence(0, win);
    MPI_Accumulate(&mine, 1, MPI_DOUBLE_INT, 0, place(0, 0), 1, MPI_DOUBLE_INT, MPI_MAXLOC, win);
    MPI_Win_fence(0, win);
    MPI_Get(&got, 1, MPI_DOUBLE_INT, 0, place(0, 0), 1, MPI_DOUBLE_INT, win);
    MPI_Win_fence(0, win);
    double most = 0;
    int whose = size;
    for (int r = size - 1; r >= 0; r--)
        if ((r * 5 + 3) % size >= most) {
            most = (r * 5 + 3) % size;
            whose = r;
        }
    CHECK(got.value == most && got.rank == whose, "%s: the greatest is %g of rank %d", sorts[sort],
          got.value, got.rank);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

/* ---------------------------------------------------------------- progress */

/* The target computes, and calls no function of MPI. */
static void passive_target(void)
{
    int64_t word = 4711;
    double took = 0;
    if (size < 2)
        return;
    MPI_Barrier(MPI_COMM_WORLD);
    const double begun = MPI_Wtime();
    if (rank == 1)
        while (MPI_Wtime() < begun + 0.8)
            ;
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 1, 0, win);
        MPI_Put(&word, 1, MPI_INT64_T, 1, place(1, 3), 1, MPI_INT64_T, win);
        MPI_Win_unlock(1, win);
        took = MPI_Wtime() - begun;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(took < 0.7, "%s: the target computed for 0.8 s, and a put took %.3f s", sorts[sort],
          took);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win);
    CHECK(rank != 1 || memory[3] == word, "%s: the put is not there", sorts[sort]);
    MPI_Win_unlock(rank, win);
}

/* Shared memory is of one node. */
static int is_possible(enum sort s)
{
    MPI_Comm node;
    int n;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &n);
    MPI_Comm_free(&node);
    MPI_Allreduce(MPI_IN_PLACE, &n, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return s != SHARED || n == size;
}

int main(int argc, char **argv)
{
    const int rounds = argc > 1 ? atoi(argv[1]) : 12;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_group(MPI_COMM_WORLD, &everyone);
    words = COMMON + (int64_t)size * OWN + LONG;
    reference = malloc((size_t)(words * size) * sizeof(*reference));
    for (int s = 0; s < SORTS; s++) {
        sort = (enum sort)s;
        state = 1234 + (uint64_t)s;
        if (!is_possible(sort))
            continue;
        make_window();
        for (int i = 0; i < rounds; i++)
            random_round((enum way)(i % WAYS));
        for (int way = 0; way < WAYS; way++)
            long_round((enum way)way);
        for (int way = 0; way < WAYS; way++)
            burst((enum way)way);
        counters();
        locked_counter();
        pairs();
        passive_target();
        free_window();
    }
    free(reference);
    MPI_Group_free(&everyone);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (!failures && !rank)
        printf("windows: all is well\n");
    return failures != 0;
}
