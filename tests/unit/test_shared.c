/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_shared.c - one context for the users of a process, however many, whoever is first and in
 * whatever order they end; in threads at once; and not in a forked child.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include <halay/halay.h>

#include "check.h"

enum { THREADS = 8, FORKS = 100 };

static halay_context_t *shared(void)
{
    halay_context_t *context = NULL;
    int rc = halay_init_shared(NULL, &context);
    CHECK(!rc && context, "%s", halay_strerror(rc));
    return context;
}

static void works(halay_context_t *context)
{
    halay_comm_t *world, *own;
    int one = 1, sum = 0;
    MUST(!halay_comm_world(context, &world) && !halay_comm_dup(world, &own));
    MUST(!halay_allreduce(&one, &sum, 1, HALAY_INT32, HALAY_SUM, own) && sum == 1);
    MUST(!halay_comm_free(own));
}

static void orders(void)
{
    halay_context_t *a = shared(), *b = shared(), *c, *other;
    MUST(a == b);
    MUST(!halay_finalize(a));
    works(b);
    MUST(shared() == b && !halay_leave(b)); /* still one user */
    works(b);
    MUST(!halay_init(NULL, &other) && other != b); /* a job of one may have several */
    MUST(shared() == b && !halay_finalize(b) && !halay_finalize(b));
    works(other);
    c = shared(); /* other is not the process's: it was not the first */
    MUST(c != other && !halay_finalize(c) && !halay_finalize(other));
    MUST(!halay_init(NULL, &a)); /* also one that was not made to be shared is found */
    MUST(shared() == a && !halay_finalize(a));
    works(a);
    MUST(!halay_finalize(a) && !halay_finalize(NULL));
    MUST(halay_init_shared(NULL, NULL) == HALAY_EINVAL);
}

/* A config counts where the context is made, and not later. */
static void configs(void)
{
    char why[256] = "";
    halay_config_t wrong = HALAY_CONFIG_INIT;
    halay_context_t *context, *same;
    wrong.isa = "abacus";
    wrong.error = why;
    wrong.error_bytes = sizeof(why);
    MUST(halay_init_shared(&wrong, &context) < 0 && why[0]);
    context = shared();
    MUST(!halay_init_shared(&wrong, &same) && same == context);
    MUST(!halay_finalize(context) && !halay_finalize(same));
}

static pthread_barrier_t together;

static void *in_thread(void *arg)
{
    for (int i = 0; i < 20; i++) {
        pthread_barrier_wait(&together);
        halay_context_t *context = shared();
        *(halay_context_t **)arg = context;
        works(context);
        pthread_barrier_wait(&together);
        MUST(!halay_finalize(context));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t thread[THREADS];
    halay_context_t *found[THREADS];
    MUST(!pthread_barrier_init(&together, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        MUST(!pthread_create(&thread[i], NULL, in_thread, &found[i]));
    for (int i = 0; i < THREADS; i++)
        MUST(!pthread_join(thread[i], NULL) && found[i] == found[0]);
    pthread_barrier_destroy(&together);
}

static atomic_bool over;

static void *joins_and_leaves(void *arg)
{
    while (!atomic_load(&over))
        MUST(shared() == arg && !halay_finalize(arg));
    return NULL;
}

/* Though a thread that does not exist in the child may hold the lock. */
static void forks(void)
{
    halay_context_t *context = shared(), *none;
    pthread_t thread;
    MUST(!pthread_create(&thread, NULL, joins_and_leaves, context));
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            _exit(halay_init_shared(NULL, &none) != HALAY_EFORKED ||
                  halay_finalize(context) != HALAY_EFORKED);
        }
        MUST(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(status == 0, "child %d ended with %#x", i, (unsigned)status);
    }
    atomic_store(&over, true);
    MUST(!pthread_join(thread, NULL));
    works(context);
    MUST(!halay_finalize(context));
}

int main(void)
{
    orders();
    configs();
    threads();
    forks();
    return 0;
}
