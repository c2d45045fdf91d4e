/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - the table of nodes, once a node: a file in memory without a name, which the node's
 * first rank writes and seals, and all its ranks map. A head, the processes of the node's ranks,
 * all nodes, the runs, the ports.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../common/file_limit.h"
#include "identity.h"

#define TABLE_MAGIC 0x3142544e59414c48ull /* "HLAYNTB1" on a little-endian machine */

enum { TABLE_VERSION = 3, SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

struct head {
    uint64_t magic, bytes;
    uint32_t version, nranks, nnodes, nruns, nprocesses, unused;
    uint64_t kept;
    uint8_t secret[16], job[16];
};

static size_t table_bytes(const struct head *head)
{
    return sizeof *head + head->nprocesses * sizeof(struct hly_boot_process) +
           head->nnodes * sizeof(struct hly_boot_node) + head->nruns * sizeof(struct hly_boot_run) +
           head->nranks * sizeof(uint16_t);
}

static struct head head_of(const struct hly_pmix_records *r)
{
    struct head head = {.magic = TABLE_MAGIC,
                        .version = TABLE_VERSION,
                        .nranks = (uint32_t)r->places.nranks,
                        .nnodes = (uint32_t)r->places.nnodes,
                        .nruns = (uint32_t)r->places.nruns,
                        .nprocesses = (uint32_t)r->places.nprocesses,
                        .kept = r->kept};
    memcpy(head.secret, r->secret, sizeof head.secret);
    memcpy(head.job, r->job, sizeof head.job);
    head.bytes = table_bytes(&head);
    return head;
}

static char *put(char *to, const void *from, size_t bytes)
{
    if (bytes)
        memcpy(to, from, bytes);
    return to + bytes;
}

static void write_table(char *to, const struct hly_pmix_records *r, const struct head *head)
{
    const struct hly_boot_places *p = &r->places;
    to = put(to, head, sizeof *head);
    to = put(to, p->processes, (size_t)p->nprocesses * sizeof p->processes[0]);
    to = put(to, p->nodes, (size_t)p->nnodes * sizeof p->nodes[0]);
    to = put(to, p->runs, (size_t)p->nruns * sizeof p->runs[0]);
    put(to, p->ports, (size_t)p->nranks * sizeof p->ports[0]);
}

int hly_pmix_table_make(const struct hly_boot_log *log, const struct hly_pmix_records *records,
                        int *fd)
{
    const struct head head = head_of(records);
    const size_t bytes = head.bytes;
    assert(records->places.nothers == 0);
    int made = memfd_create("halay-nodes", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error = made < 0 || !hly_file_fits(bytes) ? errno : posix_fallocate(made, 0, (off_t)bytes);
    void *at = error ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, made, 0);
    if (at != MAP_FAILED) {
        write_table(at, records, &head);
        munmap(at, bytes);
        if (fcntl(made, F_ADD_SEALS, SEALS) == 0) {
            *fd = made;
            return HALAY_OK;
        }
    }
    error = error ? error : errno;
    if (made >= 0)
        close(made);
    return hly_boot_errno(log, error, "cannot make the table of nodes (%zu bytes of shared memory)",
                          bytes);
}

/* Whether it is a table of this version, for a job of so many ranks. */
static bool read_table(struct hly_pmix_table *table, int nranks)
{
    struct head head;
    const char *from = table->at;
    memcpy(&head, from, sizeof head);
    if (head.magic != TABLE_MAGIC || head.version != TABLE_VERSION || head.bytes != table->bytes ||
        head.nranks != (uint32_t)nranks || head.nnodes < 1 || head.nnodes > head.nruns ||
        head.nruns > head.nranks || head.nprocesses > head.nranks ||
        table->bytes != table_bytes(&head))
        return false;
    size_t nodes = sizeof head + head.nprocesses * sizeof(struct hly_boot_process);
    size_t runs = nodes + head.nnodes * sizeof(struct hly_boot_node);
    size_t ports = runs + head.nruns * sizeof(struct hly_boot_run);
    table->places = (struct hly_boot_places){
        .nranks = nranks,
        .nnodes = (int)head.nnodes,
        .nruns = (int)head.nruns,
        .nprocesses = (int)head.nprocesses,
        .processes = (const void *)(from + sizeof head),
        .nodes = (const void *)(from + nodes),
        .runs = (const void *)(from + runs),
        .ports = (const void *)(from + ports),
    };
    _Static_assert(sizeof(struct head) % 8 == 0 && sizeof(struct hly_boot_node) % 4 == 0,
                   "what follows is aligned");
    memcpy(table->secret, head.secret, sizeof table->secret);
    memcpy(table->job, head.job, sizeof table->job);
    table->kept = head.kept;
    return hly_boot_places_valid(&table->places);
}

int hly_pmix_table_keep(const struct hly_boot_log *log, const struct hly_pmix_records *records,
                        struct hly_pmix_table *table)
{
    const struct head head = head_of(records);
    memset(table, 0, sizeof *table);
    table->bytes = head.bytes;
    void *at = mmap(NULL, table->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return hly_boot_error(log, HALAY_ENOMEM, "no memory for the table of nodes (%zu bytes)",
                              table->bytes);
    write_table(at, records, &head);
    table->at = at;
    bool right = read_table(table, records->places.nranks);
    assert(right); /* it has just been written */
    return right ? HALAY_OK : HALAY_EBOOT;
}

/* A private mapping: kernels before 6.7 refuse a shared one of a file that is sealed. The pages are
 * the same, since no one writes. */
int hly_pmix_table_map(const struct hly_boot_log *log, int fd, int nranks,
                       struct hly_pmix_table *table)
{
    struct stat file;
    memset(table, 0, sizeof *table);
    if (fstat(fd, &file) || (size_t)file.st_size < sizeof(struct head) ||
        fcntl(fd, F_GET_SEALS) != SEALS)
        return hly_boot_error(log, HALAY_EBOOT,
                              "the table of nodes is no sealed memory of the right size");
    table->bytes = (size_t)file.st_size;
    void *at = mmap(NULL, table->bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED)
        return hly_boot_errno(log, errno, "cannot map the table of nodes (%zu bytes)",
                              table->bytes);
    table->at = at;
    if (read_table(table, nranks))
        return HALAY_OK;
    hly_pmix_table_unmap(table);
    return hly_boot_error(log, HALAY_EBOOT,
                          "the table of nodes is not consistent, or of another version of Halay");
}

void hly_pmix_table_unmap(struct hly_pmix_table *table)
{
    if (table->at)
        munmap((void *)(uintptr_t)table->at, table->bytes);
    memset(table, 0, sizeof *table);
}
