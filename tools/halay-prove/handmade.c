/* SPDX-License-Identifier: Apache-2.0 */
/* handmade.c - plans that are right, and plans that are wrong in one known way each. */
#include "handmade.h"

#define NO HALAY_STEP_NONE
#define IN(b)                                                                                      \
    {                                                                                              \
        HALAY_BUFFER_IN, b, 1, 0                                                                   \
    }
#define OUT(b)                                                                                     \
    {                                                                                              \
        HALAY_BUFFER_OUT, b, 1, 0                                                                  \
    }
#define SCRATCH(b, s)                                                                              \
    {                                                                                              \
        HALAY_BUFFER_SCRATCH, b, 1, s                                                              \
    }
#define RUN(b, n, s)                                                                               \
    {                                                                                              \
        HALAY_BUFFER_SCRATCH, b, n, s                                                              \
    }
#define NOTHING                                                                                    \
    {                                                                                              \
        HALAY_BUFFER_OUT, 0, 0, 0                                                                  \
    }

#define SEND(rank, peer, edge, dep, ...)                                                           \
    {                                                                                              \
        rank, HALAY_STEP_SEND, peer, edge, {dep, NO}, 1,                                           \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define RECV(rank, peer, edge, dep, ...)                                                           \
    {                                                                                              \
        rank, HALAY_STEP_RECV, peer, edge, {dep, NO}, 1,                                           \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define COPY(rank, dep, ...)                                                                       \
    {                                                                                              \
        rank, HALAY_STEP_COPY, NO, 0, {dep, NO}, 2,                                                \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define SUM(rank, d0, d1, ...)                                                                     \
    {                                                                                              \
        rank, HALAY_STEP_REDUCE, NO, 0, {d0, d1}, 3,                                               \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define JOIN(rank, d0, d1)                                                                         \
    {                                                                                              \
        rank, HALAY_STEP_JOIN, NO, 0, {d0, d1}, 0,                                                 \
        {                                                                                          \
            NOTHING                                                                                \
        }                                                                                          \
    }

#define GROUP(rank, group, channel, dep, ...)                                                      \
    {                                                                                              \
        rank, HALAY_STEP_GROUP, group, channel, {dep, NO}, 2,                                      \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define BOTH(buffer)                                                                               \
    {                                                                                              \
        HALAY_BUFFER_##buffer, 0, 2, 0                                                             \
    }

/* Two ranks hear from one another: three steps. */
#define HEAR(rank, peer)                                                                           \
    SEND(rank, peer, 0, NO, NOTHING), RECV(rank, peer, 0, NO, NOTHING), JOIN(rank, 0, 1)
/* The groups of ranks 0 and 1, over two blocks: those of a sum and its gather, of all, of one. */
#define HALVES                                                                                     \
    {{HALAY_GROUP_REDUCE_SCATTER, 0, 2},                                                           \
     {HALAY_GROUP_ALLGATHER, 0, 2},                                                                \
     {HALAY_GROUP_ALLREDUCE, 2, 2}},                                                               \
    {                                                                                              \
        {0, 0, 1}, {1, 1, 1}, {0, 0, 2},                                                           \
        {                                                                                          \
            1, 0, 2                                                                                \
        }                                                                                          \
    }
#define ROOTED                                                                                     \
    {{HALAY_GROUP_REDUCE, 0, 2}, {HALAY_GROUP_BROADCAST, 0, 2}, {HALAY_GROUP_BROADCAST, 2, 2}},    \
    {                                                                                              \
        {0, 0, 0}, {1, 0, 2}, {0, 0, 2},                                                           \
        {                                                                                          \
            1, 0, 0                                                                                \
        }                                                                                          \
    }

#define TURNS                                                                                      \
    {{HALAY_GROUP_ALLTOALL, 0, 2}, {HALAY_GROUP_ALLGATHER, 0, 2}},                                 \
    {                                                                                              \
        {0, 0, 1},                                                                                 \
        {                                                                                          \
            1, 1, 1                                                                                \
        }                                                                                          \
    }

/* Two ranks exchange their input and add it. */
#define EXCHANGE(rank, peer) SEND(rank, peer, 0, NO, IN(0)), RECV(rank, peer, 0, NO, SCRATCH(0, 0))
#define ADD_0                SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 0))
#define ADD_1                SUM(1, 1, NO, OUT(0), SCRATCH(0, 0), IN(0))

/* One round of a barrier by dissemination, of four ranks; first: its first step's index. */
#define ROUND(rank, to, from, edge, dep)                                                           \
    SEND(rank, to, edge, dep, NOTHING), RECV(rank, from, edge, dep, NOTHING)

/* clang-format off */
const hly_handmade_t hly_handmade[] = {
    {"exchange and add", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {EXCHANGE(0, 1), ADD_0, EXCHANGE(1, 0), ADD_1}},
    {"other order on one rank", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), ADD_0, EXCHANGE(1, 0), SUM(1, 1, NO, OUT(0), IN(0), SCRATCH(0, 0))}},
    {"other order on both", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {EXCHANGE(0, 1), SUM(0, 1, NO, OUT(0), SCRATCH(0, 0), IN(0)),
      EXCHANGE(1, 0), SUM(1, 1, NO, OUT(0), IN(0), SCRATCH(0, 0))}},
    {"other order, not commuting", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), SUM(0, 1, NO, OUT(0), SCRATCH(0, 0), IN(0)),
      EXCHANGE(1, 0), SUM(1, 1, NO, OUT(0), IN(0), SCRATCH(0, 0))}, 1},
    {"order of ranks, not commuting", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {EXCHANGE(0, 1), ADD_0, EXCHANGE(1, 0), ADD_1}, 1},
    {"own input twice", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), SUM(0, 1, NO, OUT(0), IN(0), IN(0)), EXCHANGE(1, 0), ADD_1}},
    {"copy for add on both", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), COPY(0, 1, OUT(0), IN(0)),
      EXCHANGE(1, 0), COPY(1, 1, OUT(0), SCRATCH(0, 0))}},
    {"block never computed", HALAY_ALLREDUCE, 2, 0, 0, 2, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), ADD_0, EXCHANGE(1, 0), ADD_1}},
    {"add before it arrived", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(0)), SUM(0, NO, NO, OUT(0), IN(0), SCRATCH(0, 0)),
      RECV(0, 1, 0, NO, SCRATCH(0, 0)), EXCHANGE(1, 0), ADD_1}},
    {"add while it arrives", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), SUM(0, NO, NO, OUT(0), IN(0), SCRATCH(0, 0)), EXCHANGE(1, 0), ADD_1}},

    {"both receive after sending", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_STALL, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, 0, SCRATCH(0, 0)), ADD_0,
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, 0, SCRATCH(0, 0)), ADD_1}},
    {"both send after receiving", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_STALL, HLY_STALL,
     {RECV(0, 1, 0, NO, SCRATCH(0, 0)), SEND(0, 1, 0, 0, IN(0)),
      SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 0)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, 0, IN(0)), ADD_1}},
    {"edges differ", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_STALL, HLY_STALL,
     {SEND(0, 1, 1, NO, IN(0)), RECV(0, 1, 0, NO, SCRATCH(0, 0)), ADD_0, EXCHANGE(1, 0), ADD_1}},
    {"nobody receives", HALAY_BARRIER, 2, 0, 0, 0, 0, HLY_STALL, HLY_STALL,
     {SEND(0, 1, 0, NO, NOTHING), RECV(0, 1, 0, NO, NOTHING), SEND(0, 1, 1, NO, NOTHING),
      SEND(1, 0, 0, NO, NOTHING), RECV(1, 0, 0, NO, NOTHING)}},

    {"in place, waits for its send", HALAY_ALLREDUCE, 2, 0, 1, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, OUT(0)), RECV(0, 1, 0, NO, SCRATCH(0, 0)),
      SUM(0, 0, 1, OUT(0), OUT(0), SCRATCH(0, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(0, 0)), JOIN(1, 0, 1),
      SUM(1, 2, NO, OUT(0), SCRATCH(0, 0), IN(0))}},
    {"in place, overwrites its send", HALAY_ALLREDUCE, 2, 0, 1, 1, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, OUT(0)), RECV(0, 1, 0, NO, SCRATCH(0, 0)),
      SUM(0, 1, NO, OUT(0), OUT(0), SCRATCH(0, 0)),
      SEND(1, 0, 0, NO, OUT(0)), RECV(1, 0, 0, NO, SCRATCH(0, 0)),
      SUM(1, 0, 1, OUT(0), SCRATCH(0, 0), OUT(0))}},
    {"input overwritten", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_FAULT, HLY_FAULT,
     {EXCHANGE(0, 1), ADD_0, SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, 0, IN(0)), ADD_1}},

    {"part, then total, in order", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {EXCHANGE(0, 1), ADD_0, SEND(0, 1, 1, 2, OUT(0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0)), RECV(1, 0, 1, 1, OUT(0))}},
    {"part and total, in any order", HALAY_ALLREDUCE, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), ADD_0, SEND(0, 1, 1, 2, OUT(0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0)), RECV(1, 0, 1, NO, OUT(0))}},
    {"two messages of one name", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(0)), SEND(0, 1, 0, NO, IN(1)),
      RECV(0, 1, 0, NO, SCRATCH(0, 0)), RECV(0, 1, 1, NO, SCRATCH(1, 1)),
      SUM(0, 2, NO, OUT(0), IN(0), SCRATCH(0, 0)), SUM(0, 3, NO, OUT(1), IN(1), SCRATCH(1, 1)),
      SEND(1, 0, 0, NO, IN(0)), SEND(1, 0, 1, NO, IN(1)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), RECV(1, 0, 0, NO, SCRATCH(1, 1)),
      SUM(1, 2, NO, OUT(0), SCRATCH(0, 0), IN(0)), SUM(1, 3, NO, OUT(1), SCRATCH(1, 1), IN(1))}},

    {"scratch read as written", HALAY_REDUCE_SCATTER, 2, 0, 1, 2, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(0, 0)),
      SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(1, 0)),
      SUM(1, 0, 1, OUT(1), SCRATCH(1, 0), IN(1))}},
    {"in place, block 0 not sent yet", HALAY_REDUCE_SCATTER, 2, 0, 1, 2, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(0, 0)),
      SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(1, 0)),
      SUM(1, 1, NO, OUT(1), SCRATCH(1, 0), IN(1))}},
    {"another rank's block", HALAY_REDUCE_SCATTER, 2, 0, 0, 2, 1, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(0, 0)),
      SUM(0, 1, NO, OUT(1), IN(0), SCRATCH(0, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(1, 0)),
      SUM(1, 1, NO, OUT(1), SCRATCH(1, 0), IN(1))}},
    {"scratch overrun", HALAY_REDUCE_SCATTER, 2, 0, 0, 2, 1, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(0, 1)),
      SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 1)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(1, 0)),
      SUM(1, 1, NO, OUT(1), SCRATCH(1, 0), IN(1))}},
    {"part of a packed run read", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, {HALAY_BUFFER_IN, 0, 2, 0}), RECV(0, 1, 0, NO, RUN(0, 2, 0)),
      SUM(0, 1, NO, OUT(0), IN(0), SCRATCH(0, 0)), SUM(0, 1, NO, OUT(1), IN(1), SCRATCH(1, 1)),
      SEND(1, 0, 0, NO, {HALAY_BUFFER_IN, 0, 2, 0}), RECV(1, 0, 0, NO, RUN(0, 2, 0)),
      SUM(1, 1, NO, OUT(0), SCRATCH(0, 0), IN(0)), SUM(1, 1, NO, OUT(1), SCRATCH(1, 1), IN(1))}},
    {"a run that wraps", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, {HALAY_BUFFER_IN, 1, 2, 0}), RECV(0, 1, 0, NO, RUN(1, 2, 0)),
      SUM(0, 1, NO, {HALAY_BUFFER_OUT, 1, 2, 0}, {HALAY_BUFFER_IN, 1, 2, 0}, RUN(1, 2, 0)),
      SEND(1, 0, 0, NO, {HALAY_BUFFER_IN, 1, 2, 0}), RECV(1, 0, 0, NO, RUN(1, 2, 0)),
      SUM(1, 1, NO, {HALAY_BUFFER_OUT, 1, 2, 0}, RUN(1, 2, 0), {HALAY_BUFFER_IN, 1, 2, 0})}},
    {"blocks differ at the ends", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, {HALAY_BUFFER_IN, 0, 2, 0}), RECV(0, 1, 0, NO, RUN(1, 2, 0)),
      SUM(0, 1, NO, {HALAY_BUFFER_OUT, 1, 2, 0}, {HALAY_BUFFER_IN, 1, 2, 0}, RUN(1, 2, 0)),
      SEND(1, 0, 0, NO, {HALAY_BUFFER_IN, 1, 2, 0}), RECV(1, 0, 0, NO, RUN(1, 2, 0)),
      SUM(1, 1, NO, {HALAY_BUFFER_OUT, 1, 2, 0}, RUN(1, 2, 0), {HALAY_BUFFER_IN, 1, 2, 0})}},

    {"gather", HALAY_ALLGATHER, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {COPY(0, NO, OUT(0), IN(0)), SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, OUT(1)),
      COPY(1, NO, OUT(1), IN(1)), SEND(1, 0, 0, 0, OUT(1)), RECV(1, 0, 0, NO, OUT(0))}},
    {"gather in place", HALAY_ALLGATHER, 2, 0, 1, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, OUT(1)),
      SEND(1, 0, 0, NO, OUT(1)), RECV(1, 0, 0, NO, OUT(0))}},
    {"own block missing", HALAY_ALLGATHER, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, OUT(1)),
      COPY(1, NO, OUT(1), IN(1)), SEND(1, 0, 0, 0, OUT(1)), RECV(1, 0, 0, NO, OUT(0))}},

    {"root hears nothing", HALAY_BROADCAST, 2, 1, 0, 1, 0, HLY_WRONG, HLY_WRONG,
     {RECV(0, 1, 0, NO, OUT(0)), SEND(1, 0, 0, NO, OUT(0))}},
    {"the same, in a series", HALAY_BROADCAST, 2, 1, 0, 1, 0, HLY_RIGHT, HLY_RIGHT,
     {RECV(0, 1, 0, NO, OUT(0)), SEND(1, 0, 0, NO, OUT(0))}, 0, 0, 1},
    {"in a series, nothing comes", HALAY_BROADCAST, 3, 1, 0, 1, 0, HLY_WRONG, HLY_WRONG,
     {RECV(0, 1, 0, NO, OUT(0)), RECV(0, 2, 1, NO, NOTHING), SEND(1, 0, 0, NO, OUT(0)),
      SEND(2, 0, 1, NO, NOTHING)}, 0, 0, 1},
    {"root is answered", HALAY_BROADCAST, 2, 1, 0, 1, 0, HLY_RIGHT, HLY_RIGHT,
     {RECV(0, 1, 0, NO, OUT(0)), SEND(0, 1, 0, NO, NOTHING),
      SEND(1, 0, 0, NO, OUT(0)), RECV(1, 0, 0, NO, NOTHING)}},
    {"a send's end taken for arrival", HALAY_BROADCAST, 3, 0, 0, 1, 1, HLY_RIGHT, HLY_WRONG,
     {SEND(0, 1, 0, NO, OUT(0)), SEND(0, 2, 0, 0, OUT(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), RECV(1, 2, 0, NO, NOTHING),
      COPY(1, 1, OUT(0), SCRATCH(0, 0)), SEND(1, 0, 0, 2, NOTHING), SEND(1, 2, 0, 2, NOTHING),
      RECV(2, 0, 0, NO, OUT(0)), SEND(2, 1, 0, 0, NOTHING), RECV(2, 1, 0, NO, NOTHING)}},

    {"barrier in two rounds", HALAY_BARRIER, 4, 0, 0, 0, 0, HLY_RIGHT, HLY_RIGHT,
     {ROUND(0, 1, 3, 0, NO), ROUND(0, 2, 2, 1, 1), ROUND(1, 2, 0, 0, NO), ROUND(1, 3, 3, 1, 1),
      ROUND(2, 3, 1, 0, NO), ROUND(2, 0, 0, 1, 1), ROUND(3, 0, 2, 0, NO), ROUND(3, 1, 1, 1, 1)}},
    {"barrier of one round", HALAY_BARRIER, 4, 0, 0, 0, 0, HLY_WRONG, HLY_WRONG,
     {ROUND(0, 1, 3, 0, NO), ROUND(1, 2, 0, 0, NO), ROUND(2, 3, 1, 0, NO), ROUND(3, 0, 2, 0, NO)}},
    {"round two before round one", HALAY_BARRIER, 4, 0, 0, 0, 0, HLY_WRONG, HLY_WRONG,
     {ROUND(0, 1, 3, 0, NO), ROUND(0, 2, 2, 1, 1), ROUND(1, 2, 0, 0, NO), ROUND(1, 3, 3, 1, 1),
      ROUND(2, 3, 1, 0, NO), ROUND(2, 0, 0, 1, NO), ROUND(3, 0, 2, 0, NO), ROUND(3, 1, 1, 1, 1)}},

    {"reduce", HALAY_REDUCE, 2, 1, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0))}, 1},
    {"reduce, in place at the root", HALAY_REDUCE, 2, 1, 1, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0))}, 1},
    {"reduce, not in order", HALAY_REDUCE, 2, 1, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), IN(0), SCRATCH(0, 0))}, 1},
    {"reduce, root's own input only", HALAY_REDUCE, 2, 1, 0, 1, 0, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, NOTHING), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, NOTHING), SEND(1, 0, 0, NO, NOTHING), COPY(1, NO, OUT(0), IN(0))}},
    {"reduce, nobody tells rank 0", HALAY_REDUCE, 2, 1, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(1, 0, 0, NO, SCRATCH(0, 0)),
      SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0))}},
    {"out where there is none", HALAY_REDUCE, 2, 1, 0, 1, 1, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, OUT(0)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0)),
      SEND(1, 0, 0, 1, OUT(0))}},

    {"gather to a root", HALAY_GATHER, 2, 1, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, OUT(0)), SEND(1, 0, 0, NO, NOTHING), COPY(1, NO, OUT(1), IN(1))}},
    {"gather, in place at the root", HALAY_GATHER, 2, 1, 1, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, OUT(0)), SEND(1, 0, 0, NO, NOTHING)}},
    {"gather, slots read otherwise", HALAY_GATHER, 2, 1, 0, 2, 2, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), COPY(1, 0, SCRATCH(1, 1), IN(1)),
      COPY(1, 1, {HALAY_BUFFER_OUT, 0, 2, 0}, RUN(0, 2, 0)), SEND(1, 0, 0, NO, NOTHING)}},
    {"the same, blocks are equal", HALAY_GATHER, 2, 1, 0, 2, 2, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), COPY(1, 0, SCRATCH(1, 1), IN(1)),
      COPY(1, 1, {HALAY_BUFFER_OUT, 0, 2, 0}, RUN(0, 2, 0)), SEND(1, 0, 0, NO, NOTHING)}, 0, 1},
    {"equal blocks in wrong slots", HALAY_GATHER, 2, 1, 0, 2, 2, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 1)), COPY(1, 0, SCRATCH(1, 0), IN(1)),
      COPY(1, 1, {HALAY_BUFFER_OUT, 0, 2, 0}, RUN(0, 2, 0)), SEND(1, 0, 0, NO, NOTHING)}, 0, 1},

    {"scatter", HALAY_SCATTER, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, NOTHING), COPY(0, NO, OUT(0), IN(0)),
      RECV(1, 0, 0, NO, OUT(1)), SEND(1, 0, 0, NO, NOTHING)}},
    {"scatter, in place at the root", HALAY_SCATTER, 2, 1, 1, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {RECV(0, 1, 0, NO, OUT(0)), SEND(0, 1, 0, NO, NOTHING),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, NOTHING)}},
    {"another block comes back", HALAY_SCATTER, 2, 1, 1, 2, 1, HLY_FAULT, HLY_FAULT,
     {RECV(0, 1, 0, NO, OUT(0)), SEND(0, 1, 0, NO, OUT(0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(1))}},

    {"alltoall", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, OUT(1)), COPY(0, NO, OUT(0), IN(0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0)), COPY(1, NO, OUT(1), IN(1))}},
    {"alltoall in place", HALAY_ALLTOALL, 2, 0, 1, 2, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(1, 0)), JOIN(0, 0, 1),
      COPY(0, 2, OUT(1), SCRATCH(1, 0)), SEND(1, 0, 0, NO, IN(0)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), JOIN(1, 0, 1), COPY(1, 2, OUT(0), SCRATCH(0, 0))}},
    {"in place, arrives before it left", HALAY_ALLTOALL, 2, 0, 1, 2, 0, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, OUT(1)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0))}},
    {"alltoall, blocks stay", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, NOTHING), RECV(0, 1, 0, NO, NOTHING),
      COPY(0, NO, OUT(0), IN(0)), COPY(0, NO, OUT(1), IN(1)),
      SEND(1, 0, 0, NO, NOTHING), RECV(1, 0, 0, NO, NOTHING),
      COPY(1, NO, OUT(0), IN(0)), COPY(1, NO, OUT(1), IN(1))}},
    {"equal blocks stay", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, NOTHING), RECV(0, 1, 0, NO, NOTHING),
      COPY(0, NO, OUT(0), IN(0)), COPY(0, NO, OUT(1), IN(1)),
      SEND(1, 0, 0, NO, NOTHING), RECV(1, 0, 0, NO, NOTHING),
      COPY(1, NO, OUT(0), IN(0)), COPY(1, NO, OUT(1), IN(1))}, 0, 1},
    {"a slot without a size", HALAY_ALLTOALL, 2, 0, 0, 2, 1, HLY_FAULT, HLY_FAULT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(1, 0)), COPY(0, NO, OUT(0), IN(0)),
      COPY(0, 1, OUT(1), SCRATCH(1, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0)), COPY(1, NO, OUT(1), IN(1))}},
    {"a slot of equal blocks", HALAY_ALLTOALL, 2, 0, 0, 2, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(1)), RECV(0, 1, 0, NO, SCRATCH(0, 0)), COPY(0, NO, OUT(0), IN(0)),
      COPY(0, 1, OUT(1), SCRATCH(1, 0)),
      SEND(1, 0, 0, NO, IN(0)), RECV(1, 0, 0, NO, OUT(0)), COPY(1, NO, OUT(1), IN(1))}, 0, 1},

    {"scan", HALAY_SCAN, 2, 0, 0, 1, 1, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING), COPY(0, NO, OUT(0), IN(0)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0))}, 1},
    {"scan, not in order", HALAY_SCAN, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING), COPY(0, NO, OUT(0), IN(0)),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), IN(0), SCRATCH(0, 0))}, 1},
    {"scan, rank 0 has all", HALAY_SCAN, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {EXCHANGE(0, 1), ADD_0, EXCHANGE(1, 0), ADD_1}},
    {"exscan", HALAY_EXSCAN, 2, 0, 0, 1, 0, HLY_RIGHT, HLY_RIGHT,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, OUT(0)), SEND(1, 0, 0, NO, NOTHING)}, 1},
    {"exscan, the own input too", HALAY_EXSCAN, 2, 0, 0, 1, 1, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING),
      RECV(1, 0, 0, NO, SCRATCH(0, 0)), SEND(1, 0, 0, NO, NOTHING),
      SUM(1, 0, NO, OUT(0), SCRATCH(0, 0), IN(0))}, 1},
    {"exscan, rank 0's out written", HALAY_EXSCAN, 2, 0, 0, 1, 0, HLY_WRONG, HLY_WRONG,
     {SEND(0, 1, 0, NO, IN(0)), RECV(0, 1, 0, NO, NOTHING), COPY(0, NO, OUT(0), IN(0)),
      RECV(1, 0, 0, NO, OUT(0)), SEND(1, 0, 0, NO, NOTHING)}, 1},

    {"group allreduce", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 2, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 0, 0, 3, HALVES},
    {"group allreduce, unheard", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), GROUP(0, 2, 0, NO, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 2, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 0, 0, 3, HALVES},
    {"group allreduce, alone", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_STALL, HLY_STALL,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)), HEAR(1, 0)}, 0, 0, 0, 3, HALVES},
    {"group, other channels", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_STALL, HLY_STALL,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 2, 1, 2, BOTH(OUT), BOTH(IN))}, 0, 0, 0, 3, HALVES},
    {"group, out of what is empty", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(OUT)),
      HEAR(1, 0), GROUP(1, 2, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 0, 0, 3, HALVES},
    {"scatter and gather", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, OUT(0), BOTH(IN)), GROUP(0, 1, 1, 3, BOTH(OUT), OUT(0)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, OUT(1), BOTH(IN)), GROUP(1, 1, 1, 3, BOTH(OUT), OUT(1))},
     0, 0, 0, 2, HALVES},
    {"the same in place", HALAY_ALLREDUCE, 2, 0, 1, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, OUT(0), BOTH(IN)), GROUP(0, 1, 0, 3, BOTH(OUT), OUT(0)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, OUT(1), BOTH(IN)), GROUP(1, 1, 0, 3, BOTH(OUT), OUT(1))},
     0, 0, 0, 2, HALVES},
    {"scatter and gather, inputs", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, OUT(0), BOTH(IN)), GROUP(0, 1, 1, 3, BOTH(OUT), IN(0)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, OUT(1), BOTH(IN)), GROUP(1, 1, 1, 3, BOTH(OUT), OUT(1))},
     0, 0, 0, 2, HALVES},
    {"gather before the sum", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), COPY(0, NO, OUT(0), IN(0)), GROUP(0, 0, 0, 3, OUT(0), BOTH(IN)),
      GROUP(0, 1, 1, 3, BOTH(OUT), OUT(0)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, OUT(1), BOTH(IN)), GROUP(1, 1, 1, 3, BOTH(OUT), OUT(1))},
     0, 0, 0, 2, HALVES},
    {"groups in another order", HALAY_ALLREDUCE, 2, 0, 1, 2, 2, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, OUT(0), BOTH(IN)), GROUP(0, 1, 0, 3, BOTH(OUT), OUT(0)),
      HEAR(1, 0), GROUP(1, 1, 0, 2, BOTH(OUT), OUT(1)), GROUP(1, 0, 0, 3, OUT(1), BOTH(IN))},
     0, 0, 0, 2, HALVES},
    {"groups in any order", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)),
      GROUP(0, 0, 0, 3, SCRATCH(0, 0), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 2, 0, 2, BOTH(OUT), BOTH(IN)),
      GROUP(1, 0, 0, 2, SCRATCH(1, 0), BOTH(IN))}, 0, 0, 0, 3, HALVES},
    {"two sums of two devices", HALAY_ALLREDUCE, 2, 0, 0, 2, 2, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)), GROUP(0, 2, 1, 2, BOTH(SCRATCH), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 2, 0, 2, BOTH(SCRATCH), BOTH(IN)), GROUP(1, 2, 1, 2, BOTH(OUT), BOTH(IN))},
     0, 0, 0, 3, HALVES},
    {"reduce and broadcast", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, NOTHING, BOTH(IN)), GROUP(0, 2, 0, 3, BOTH(OUT), BOTH(OUT)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(OUT), BOTH(IN)), GROUP(1, 2, 0, 3, BOTH(OUT), NOTHING)},
     0, 0, 0, 3, ROOTED},
    {"the same, from where it is", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, NOTHING, BOTH(IN)), GROUP(0, 1, 0, 3, BOTH(OUT), NOTHING),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(OUT), BOTH(IN)), GROUP(1, 1, 0, 3, BOTH(OUT), BOTH(OUT))},
     0, 0, 0, 3, ROOTED},
    {"a message behind its group", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_STALL, HLY_STALL,
     {HEAR(0, 1), GROUP(0, 2, 0, 2, BOTH(OUT), BOTH(IN)), SEND(0, 1, 1, 3, NOTHING),
      HEAR(1, 0), RECV(1, 0, 1, 2, NOTHING), GROUP(1, 2, 0, 3, BOTH(OUT), BOTH(IN))},
     0, 0, 0, 3, HALVES},

    {"group alltoall", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 1, 0, 2, TURNS},
    {"group alltoall, unheard", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 0, 0, NO, BOTH(OUT), BOTH(IN))}, 0, 1, 0, 2, TURNS},
    {"group alltoall, in place", HALAY_ALLTOALL, 2, 0, 1, 2, 0, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 1, 0, 2, TURNS},
    {"group alltoall, by the side", HALAY_ALLTOALL, 2, 0, 1, 2, 2, HLY_RIGHT, HLY_RIGHT,
     {HEAR(0, 1), COPY(0, 2, BOTH(SCRATCH), BOTH(IN)), GROUP(0, 0, 0, 3, BOTH(OUT), BOTH(SCRATCH)),
      HEAR(1, 0), COPY(1, 2, BOTH(SCRATCH), BOTH(IN)), GROUP(1, 0, 0, 3, BOTH(OUT), BOTH(SCRATCH))},
     0, 1, 0, 2, TURNS},
    {"group alltoall, twice", HALAY_ALLTOALL, 2, 0, 0, 2, 2, HLY_WRONG, HLY_WRONG,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, BOTH(SCRATCH), BOTH(IN)),
      GROUP(0, 0, 0, 3, BOTH(OUT), BOTH(SCRATCH)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(SCRATCH), BOTH(IN)),
      GROUP(1, 0, 0, 3, BOTH(OUT), BOTH(SCRATCH))}, 0, 1, 0, 2, TURNS},
    {"a gather in an alltoall", HALAY_ALLTOALL, 2, 0, 0, 2, 0, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 1, 0, 2, BOTH(OUT), IN(0)),
      HEAR(1, 0), GROUP(1, 1, 0, 2, BOTH(OUT), IN(1))}, 0, 1, 0, 2, TURNS},
    {"an alltoall in an allreduce", HALAY_ALLREDUCE, 2, 0, 0, 2, 0, HLY_FAULT, HLY_FAULT,
     {HEAR(0, 1), GROUP(0, 0, 0, 2, BOTH(OUT), BOTH(IN)),
      HEAR(1, 0), GROUP(1, 0, 0, 2, BOTH(OUT), BOTH(IN))}, 0, 0, 0, 2, TURNS},
};
/* clang-format on */
const uint32_t hly_handmade_count = sizeof hly_handmade / sizeof hly_handmade[0];
