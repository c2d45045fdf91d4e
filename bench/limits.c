/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c - what the memory of one node allows to an allreduce of two ranks with buffers of their
 * own, by two threads on two processors: rows like halay-bench's csv.
 *   limits MIN_BYTES MAX_BYTES FACTOR [ways]
 * 8 bytes: the one-way trip of a cache line, half of a ping-pong. From 16 MiB on: both inputs are
 * read and both outputs written, n bytes each, with stores past the cache, in the fastest of some
 * ways. The ways share the work by halves or by blocks, and look ahead so far or not at all.
 * ways: instead, three ways for two ranks that see each other's memory and go from segment to
 * segment together (docs/decisions/shared-memory.md#0032): get, where each sums all of it into its
 * own output; put, where each sums half and then copies it into the other's output; and a sum of
 * half into both.
 */
#define _GNU_SOURCE
#include <immintrin.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURNS     20000
#define TRIES     5
#define LINE      64
#define LARGE     ((size_t)16 << 20)
#define ALIGNMENT 4096

struct way {
    size_t block; /* bytes that a thread takes at a time; 0: half of all */
    size_t ahead; /* bytes from what is read to what is fetched; 0: nothing is */
};

struct bed {
    _Alignas(LINE) atomic_uint turn; /* of thread turn % 2 */
    _Alignas(LINE) atomic_uint arrived;
    _Alignas(LINE) float *in[2];
    float *out[2];
    size_t bytes;
    const struct way *way;
    double us[2];
};

struct worker {
    struct bed *bed;
    void (*work)(struct bed *bed, int me);
    int me, processor;
};

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

/* Both threads have come this far. Releases what each has written to the other. */
static void meet(struct bed *bed)
{
    unsigned mine = atomic_fetch_add(&bed->arrived, 1) / 2;
    while (atomic_load(&bed->arrived) / 2 == mine)
        ;
}

static void ping_pong(struct bed *bed, int me)
{
    meet(bed);
    double begin = now_us();
    for (unsigned i = (unsigned)me; i < 2 * TURNS; i += 2) {
        while (atomic_load_explicit(&bed->turn, memory_order_acquire) != i)
            ;
        atomic_store_explicit(&bed->turn, i + 1, memory_order_release);
    }
    bed->us[me] = (now_us() - begin) / (2 * TURNS);
}

__attribute__((target("avx2"))) static void sum_avx2(struct bed *bed, size_t first, size_t bytes)
{
    const size_t ahead = bed->way->ahead;
    for (size_t at = first; at < first + bytes; at += LINE) {
        const float *a = bed->in[0] + at / sizeof(float), *b = bed->in[1] + at / sizeof(float);
        float *c = bed->out[0] + at / sizeof(float), *d = bed->out[1] + at / sizeof(float);
        if (ahead && at + ahead < first + bytes) {
            _mm_prefetch((const char *)a + ahead, _MM_HINT_T0);
            _mm_prefetch((const char *)b + ahead, _MM_HINT_T0);
        }
        const __m256 low = _mm256_add_ps(_mm256_load_ps(a), _mm256_load_ps(b));
        const __m256 high = _mm256_add_ps(_mm256_load_ps(a + 8), _mm256_load_ps(b + 8));
        _mm256_stream_ps(c, low);
        _mm256_stream_ps(c + 8, high);
        _mm256_stream_ps(d, low);
        _mm256_stream_ps(d + 8, high);
    }
}

static void sum(struct bed *bed, int me)
{
    const size_t block = bed->way->block ? bed->way->block : bed->bytes / 2;
    meet(bed);
    double begin = now_us();
    for (size_t at = (size_t)me * block; at < bed->bytes; at += 2 * block)
        sum_avx2(bed, at, bed->bytes - at < block ? bed->bytes - at : block);
    _mm_sfence();
    meet(bed);
    bed->us[me] = now_us() - begin;
}

/* ---------------------------------------------------------------- get, put, both */

#define SEGMENT ((size_t)64 << 10) /* of the vector; a message is half of it */

enum { GET, PUT, BOTH, NWAYS };
static int ways_kind;

/* to = in[0] + in[1], cached or past the cache; or, from given, a copy of it past the cache. */
__attribute__((target("avx2"))) static void
half(const struct bed *bed, float *to, const float *from, size_t at, size_t bytes, int cached)
{
    for (size_t i = at / sizeof(float); i < (at + bytes) / sizeof(float); i += 8) {
        const __m256 v =
            from ? _mm256_load_ps(from + i)
                 : _mm256_add_ps(_mm256_load_ps(bed->in[0] + i), _mm256_load_ps(bed->in[1] + i));
        if (cached)
            _mm256_store_ps(to + i, v);
        else
            _mm256_stream_ps(to + i, v);
    }
}

static void one_segment(struct bed *bed, int me, size_t at)
{
    const size_t mine = at + (size_t)me * SEGMENT / 2;
    if (ways_kind == GET) {
        half(bed, bed->out[me], NULL, at, SEGMENT, 0);
    } else if (ways_kind == PUT) {
        half(bed, bed->out[me], NULL, mine, SEGMENT / 2, 1);
        half(bed, bed->out[!me], bed->out[me], mine, SEGMENT / 2, 0);
    } else {
        sum_avx2(bed, mine, SEGMENT / 2);
    }
}

static void by_segments(struct bed *bed, int me)
{
    meet(bed);
    double begin = now_us();
    for (size_t at = 0; at < bed->bytes; at += SEGMENT) {
        one_segment(bed, me, at);
        _mm_sfence();
        meet(bed);
    }
    bed->us[me] = now_us() - begin;
}

static void *run(void *arg)
{
    struct worker *w = arg;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(w->processor, &set);
    if (sched_setaffinity(0, sizeof set, &set))
        perror("limits: sched_setaffinity");
    w->work(w->bed, w->me);
    return NULL;
}

/* The slower thread's time. */
static double both(struct bed *bed, void (*work)(struct bed *bed, int me), const int processor[2])
{
    pthread_t thread[2];
    struct worker w[2] = {{bed, work, 0, processor[0]}, {bed, work, 1, processor[1]}};
    atomic_store(&bed->turn, 0);
    for (int t = 0; t < 2; t++)
        if (pthread_create(&thread[t], NULL, run, &w[t]))
            exit(1);
    for (int t = 0; t < 2; t++)
        pthread_join(thread[t], NULL);
    return bed->us[0] > bed->us[1] ? bed->us[0] : bed->us[1];
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(size_t bytes, double us[TRIES], int valid)
{
    double all = 0;
    for (int i = 0; i < TRIES; i++)
        all += us[i];
    qsort(us, TRIES, sizeof *us, by_size);
    printf("%zu,%zu,%d,%.4f,%.4f,%.4f,0,%d\n", bytes, bytes / sizeof(float), TRIES, all / TRIES,
           us[TRIES / 2], us[0], valid);
}

/* Average, median and minimum are those of the way whose average is least. */
static int measure_sum(struct bed *bed, const int processor[2])
{
    static const struct way ways[] = {{0, 0}, {0, 1024}, {65536, 0}, {65536, 1024}, {4096, 512}};
    double best[TRIES], least = 0;
    int valid = 1;
    for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++) {
        double us[TRIES], all = 0;
        bed->way = &ways[w];
        memset(bed->out[0], 0xa5, bed->bytes);
        memset(bed->out[1], 0xa5, bed->bytes);
        for (int i = 0; i < TRIES; i++)
            all += us[i] = both(bed, sum, processor);
        for (size_t i = 0; i < bed->bytes / sizeof(float); i++)
            valid &= bed->out[0][i] == (float)(3 + i % 7) && bed->out[1][i] == bed->out[0][i];
        if (w == 0 || all < least) {
            least = all;
            memcpy(best, us, sizeof best);
        }
    }
    print(bed->bytes, best, valid);
    return valid;
}

/* The three ways in turn; the median of each. */
static int measure_ways(struct bed *bed, const int processor[2])
{
    static const struct way plain = {0, 0};
    double us[NWAYS][TRIES];
    int valid = 1;
    bed->way = &plain;
    for (int i = 0; i < TRIES * NWAYS; i++) {
        ways_kind = i % NWAYS;
        memset(bed->out[0], 0xa5, bed->bytes);
        memset(bed->out[1], 0xa5, bed->bytes);
        us[ways_kind][i / NWAYS] = both(bed, by_segments, processor);
        for (size_t e = 0; e < bed->bytes / sizeof(float); e++)
            valid &= bed->out[0][e] == (float)(3 + e % 7) && bed->out[1][e] == bed->out[0][e];
    }
    for (int w = 0; w < NWAYS; w++)
        qsort(us[w], TRIES, sizeof us[w][0], by_size);
    printf("%zu: get %.0f us, put %.0f, both %.0f (median of %d)\n", bed->bytes, us[GET][TRIES / 2],
           us[PUT][TRIES / 2], us[BOTH][TRIES / 2], TRIES);
    return valid;
}

static int measure_large(struct bed *bed, size_t least, size_t most, size_t factor,
                         const int processor[2], int ways)
{
    float *memory[4];
    int valid = 1;
    for (int i = 0; i < 4; i++) {
        memory[i] = aligned_alloc(ALIGNMENT, (most + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
        if (!memory[i]) {
            fprintf(stderr, "limits: no memory\n");
            exit(1);
        }
    }
    for (size_t i = 0; i < most / sizeof(float); i++) {
        memory[0][i] = (float)(i % 7);
        memory[1][i] = 3;
    }
    for (int i = 0; i < 2; i++) {
        bed->in[i] = memory[i];
        bed->out[i] = memory[2 + i];
    }
    for (bed->bytes = least; bed->bytes <= most; bed->bytes *= factor)
        if (bed->bytes >= LARGE && bed->bytes % (ways ? SEGMENT : 2 * LINE) == 0)
            valid &= ways ? measure_ways(bed, processor) : measure_sum(bed, processor);
    for (int i = 0; i < 4; i++)
        free(memory[i]);
    return valid;
}

int main(int argc, char **argv)
{
    static struct bed bed;
    cpu_set_t set;
    int processor[2], n = 0, valid = 1;
    size_t number[3] = {0};
    const int ways = argc == 5 && !strcmp(argv[4], "ways");
    for (int i = 1; i < argc && i < 4; i++)
        number[i - 1] = strtoull(argv[i], NULL, 10);
    if ((argc != 4 && !ways) || !number[0] || number[2] < 2) {
        fprintf(stderr, "usage: limits MIN_BYTES MAX_BYTES FACTOR [ways]\n");
        return 2;
    }
    sched_getaffinity(0, sizeof set, &set);
    for (int p = 0; p < CPU_SETSIZE && n < 2; p++)
        if (CPU_ISSET(p, &set))
            processor[n++] = p;
    if (n < 2 || !__builtin_cpu_supports("avx2")) {
        fprintf(stderr, "limits: takes two processors with AVX2\n");
        return 1;
    }
    if (!ways)
        printf("bytes,count,calls,avg_us,median_us,min_us,switches,valid\n");
    if (!ways && number[0] <= 8 && number[1] >= 8) {
        double us[TRIES];
        for (int i = 0; i < TRIES; i++)
            us[i] = both(&bed, ping_pong, processor);
        print(8, us, 1);
    }
    if (number[1] >= LARGE)
        valid = measure_large(&bed, number[0], number[1], number[2], processor, ways);
    return !valid;
}
