/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
/*
 * Init and finalize, 1,000 times in one process with collectives between: memory and descriptors
 * stay flat, /dev/shm stays as it was, and a forked child is refused and harmless.
 */
#include <dirent.h>
#include <sched.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ranks.h"

static int entries(const char *path)
{
    DIR *d = opendir(path);
    int n = 0;
    CHECK(d, "%s", path);
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MORE_KIB 4
size_t __sanitizer_get_current_allocated_bytes(void); /* its header is not everywhere */
/* Of the heap: what is resident is the sanitizer's for the most part. */
static long memory_kib(void)
{
    return (long)(__sanitizer_get_current_allocated_bytes() / 1024);
}
#else
#define MORE_KIB 4096
/* What is resident. */
static long memory_kib(void)
{
    long pages = 0, ignored;
    FILE *f = fopen("/proc/self/statm", "r");
    CHECK(f && fscanf(f, "%ld %ld", &ignored, &pages) == 2, "statm");
    fclose(f);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}
#endif

static void work(struct rank *r)
{
    int32_t in[5000], out[5000];
    halay_comm_t *comm;
    for (int i = 0; i < 5000; i++)
        in[i] = i + r->rank;
    CHECK(!halay_comm_dup(r->world, &comm), "dup");
    CHECK(!halay_allreduce(in, out, 5000, HALAY_INT32, HALAY_SUM, comm), "allreduce");
    CHECK(!halay_barrier(r->world), "barrier");
    for (int i = 0; i < 5000; i++)
        CHECK(out[i] == r->nranks * i + r->nranks * (r->nranks - 1) / 2, "element %d", i);
}

static void fork_child(struct rank *r)
{
    work(r);
    if (r->rank == 0) {
        pid_t pid = fork();
        CHECK(pid >= 0, "fork");
        if (pid == 0) { /* whatever it does, the job goes on */
            int32_t x = 1, y;
            int ok =
                halay_allreduce(&x, &y, 1, HALAY_INT32, HALAY_SUM, r->world) == HALAY_EFORKED &&
                halay_barrier(r->world) == HALAY_EFORKED &&
                halay_context_progress(r->context, 0) == HALAY_EFORKED &&
                halay_comm_set_deadline(r->world, 1) == HALAY_EFORKED &&
                halay_comm_deadline(r->world, &(uint64_t){0}) == HALAY_EFORKED &&
                halay_comm_called(r->world, &y) == HALAY_EFORKED &&
                halay_finalize(r->context) == HALAY_EFORKED;
            _exit(ok ? 0 : 1);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0, "the child was not refused");
    }
    work(r);
}

/* A /dev/shm of our own where we may, so that other programs' files are not counted. */
static void own_shm(void)
{
    if (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/dev/shm", "tmpfs", 0, NULL))
        printf("no /dev/shm of our own: other programs' files are counted too\n");
}

int main(int argc, char **argv)
{
    own_shm();
    int cycles = argc > 1 ? atoi(argv[1]) : 1000;
    struct ranks_options inproc = {.nranks = 2}, shm = {.nranks = 2, .shm = true};
    ranks_run(&shm, fork_child, NULL);
    ranks_run(&inproc, fork_child, NULL);
    int shared = entries("/dev/shm"), files = 0;
    long memory = 0;
    for (int i = 0; i < cycles; i++) {
        ranks_run(i % 2 ? &shm : &inproc, work, NULL);
        if (i == cycles / 4) { /* warm */
            files = entries("/proc/self/fd");
            memory = memory_kib();
        }
    }
    CHECK(entries("/proc/self/fd") == files, "%d descriptors, %d before", entries("/proc/self/fd"),
          files);
    CHECK(entries("/dev/shm") == shared, "/dev/shm has changed");
    const long later = memory_kib();
    printf("%d cycles: %ld KiB after a quarter, %ld KiB at the end\n", cycles, memory, later);
    CHECK(later < memory + MORE_KIB, "%ld KiB more than after a quarter of the cycles",
          later - memory);
    return 0;
}
