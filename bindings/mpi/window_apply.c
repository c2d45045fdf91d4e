/* SPDX-License-Identifier: Apache-2.0 */
/*
 * window_apply.c - carries out an order in memory: copies between runs and packed data, and
 * reduces. Orders come from other processes: their runs are checked, not trusted.
 */
#include <string.h>

#include "window.h"

/* ---------------------------------------------------------------- copies */

struct cursor { /* a place in runs */
    const struct hly_mpi_run *run;
    int64_t piece, byte;
};

/* Copies the next bytes out of memory, or into it. */
static void move(struct cursor *c, char *base, char *packed, int64_t bytes, bool out)
{
    while (bytes > 0) {
        const struct hly_mpi_run *r = c->run;
        char *at = base + r->offset + c->piece * r->stride + c->byte;
        const int64_t left = r->bytes - c->byte, n = left < bytes ? left : bytes;
        if (out)
            memmove(packed, at, (size_t)n);
        else
            memmove(at, packed, (size_t)n);
        packed += n;
        bytes -= n;
        c->byte += n;
        if (c->byte < r->bytes)
            return;
        c->byte = 0;
        if (++c->piece == r->n) {
            c->piece = 0;
            c->run++;
        }
    }
}

/* ---------------------------------------------------------------- checks */

static bool run_fits(struct hly_mpi_win *win, int64_t disp, const struct hly_mpi_run *r)
{
    const __int128 first = (__int128)disp + r->offset,
                   last = first + (__int128)r->stride * (r->n - 1),
                   low = last < first ? last : first,
                   high = (last < first ? first : last) + r->bytes;
    if (win->flavor == MPI_WIN_FLAVOR_DYNAMIC)
        return low > 0 && high <= INT64_MAX &&
               hly_mpi_win_is_attached(win, (uintptr_t)low, (int64_t)(high - low));
    return low >= 0 && high <= win->size;
}

bool hly_mpi_order_fits(struct hly_mpi_win *win, const struct hly_mpi_order *order,
                        const struct hly_mpi_run runs[])
{
    __int128 bytes = 0;
    for (int64_t i = 0; i < order->nruns; i++) {
        const struct hly_mpi_run *r = &runs[i];
        if (r->n < 1 || r->bytes < 1 || !run_fits(win, order->disp, r))
            return false;
        bytes += (__int128)r->n * r->bytes;
    }
    return bytes == order->bytes;
}

/* ---------------------------------------------------------------- accumulates */

int64_t hly_mpi_basic_bytes(int basic)
{
    const struct hly_mpi_type *type =
        basic < 0 ? NULL : hly_mpi_predefined(HLY_MPI_TYPE, hly_mpi_named[basic].number);
    return type ? type->size : 1;
}

static void reduce_runs(hly_mpi_kernel *kernel, int64_t size, char *at,
                        const struct hly_mpi_order *order, const struct hly_mpi_run runs[],
                        const char *data)
{
    enum { BYTES = 480 * 8 }; /* whole elements of each basic type */
    char part[BYTES];
    struct cursor from = {.run = runs}, to = {.run = runs};
    for (int64_t done = 0; done < order->bytes; done += BYTES) {
        const int64_t left = order->bytes - done, n = left < BYTES ? left : BYTES;
        move(&from, at, part, n, true);
        kernel(part, data + done, part, (size_t)(n / size));
        move(&to, at, part, n, false);
    }
}

static void accumulate(char *at, const struct hly_mpi_order *order, const struct hly_mpi_run runs[],
                       const char *data)
{
    if (order->op == HLY_MPI_NO_OP)
        return;
    if (order->op == HLY_MPI_REPLACE) {
        struct cursor to = {.run = runs};
        move(&to, at, (char *)(uintptr_t)data, order->bytes, false);
        return;
    }
    hly_mpi_kernel *kernel = hly_mpi_op_kernel(order->op, order->basic);
    const int64_t size = hly_mpi_basic_bytes(order->basic);
    if (!kernel || order->bytes % size)
        return; /* the origin has refused it */
    if (order->nruns == 1 && runs[0].n == 1)
        kernel(at + runs[0].offset, data, at + runs[0].offset, (size_t)(order->bytes / size));
    else
        reduce_runs(kernel, size, at, order, runs, data);
}

void hly_mpi_order_apply(struct hly_mpi_win *win, int rank, char *at,
                         const struct hly_mpi_order *order, const struct hly_mpi_run runs[],
                         const char *data, char *old)
{
    struct cursor c = {.run = runs};
    if (order->what == HLY_MPI_PUT) {
        move(&c, at, (char *)(uintptr_t)data, order->bytes, false);
        return;
    }
    if (order->what == HLY_MPI_GET) {
        move(&c, at, old, order->bytes, true);
        return;
    }
    hly_mpi_win_hold(win, rank);
    if (old)
        move(&c, at, old, order->bytes, true);
    if (order->what != HLY_MPI_SWAP)
        accumulate(at, order, runs, data);
    else if (!memcmp(old, data, (size_t)order->bytes))
        memcpy(at + runs[0].offset, data + order->bytes, (size_t)order->bytes);
    hly_mpi_win_let_go(win, rank);
}
