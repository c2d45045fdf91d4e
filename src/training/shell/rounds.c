/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rounds.c - makes the core's rounds: an allgather of all ranks' blocks on the control
 * communicator.
 */
#include "../core/negotiate.h"
#include "../core/replay.h"
#include "trainer.h"

#define BLOCK_WORDS (sizeof(struct hlt_block) / sizeof(uint64_t))

/*
 * A rank that leaves when all is done breaks the communicator too. Only a rank that waits asks why.
 */
static int round_needed(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    const uint64_t oldest_ns = core->replay.programme ? hlt_calls_oldest_ns(trainer) : 0;
    int called = 0;
    if (!core->replay.programme || oldest_ns)
        core->now_ns = hlt_trainer_now_ns();
    if (core->replay.programme)
        return hlt_replay_alarm(core, oldest_ns) ||
               (!halay_comm_called(trainer->control, &called) && called == 1);
    if (hlt_round_due(core) || hlt_stall_due(trainer))
        return 1;
    return !halay_comm_called(trainer->control, &called) &&
           (called == 1 || (called == 2 && (core->waiting.head || core->joining.head)));
}

static void round_fail(halay_trainer_t *trainer, int code)
{
    char text[HLT_TEXT_BYTES];
    hlt_trainer_verdict(trainer->control, code, text, sizeof(text));
    hlt_round_failed(&trainer->core, code, text);
}

/* All ranks read the same. */
static void round_read(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    core->now_ns = hlt_trainer_now_ns();
    if (hlt_round_read(core)) {
        if (!core->replay.programme)
            hlt_stall_read(trainer);
        hlt_round_withdraw(core);
    }
    if (core->rounds.stand_ins)
        hlt_stand_ins_fill(trainer);
    hlt_tensors_ended(trainer);
}

/* Returns 1 when a round has come to its end. */
static int round_test(halay_trainer_t *trainer)
{
    int rc = halay_request_test(trainer->round);
    if (rc == HALAY_INPROGRESS)
        return 0;
    trainer->round = NULL;
    if (rc) {
        round_fail(trainer, rc);
    } else {
        hlt_timeline_round(trainer);
        round_read(trainer);
    }
    return 1;
}

static void round_start(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    core->now_ns = hlt_trainer_now_ns();
    hlt_round_begin(core);
    if (!core->replay.programme)
        hlt_stall_write(trainer, &core->rounds.blocks[core->rank]);
    hlt_round_fill(core);
    hlt_timeline_cycle(trainer);
    trainer->recording.round_ns = trainer->recording.on ? hlt_trainer_now_ns() : 0;
    core->counters.control_rounds++;
    core->counters.control_bytes += sizeof(*core->rounds.blocks);
    int rc = halay_iallgather(HALAY_IN_PLACE, core->rounds.blocks, BLOCK_WORDS, HALAY_UINT64,
                              trainer->control, &trainer->round);
    if (rc) {
        trainer->round = NULL;
        round_fail(trainer, rc);
    }
}

/* A round that fails on all ranks, with this one's reason. */
static void farewell(halay_trainer_t *trainer)
{
    trainer->core.farewell &= ~HLT_FAREWELL_CONTROL;
    if (halay_local_refuse(trainer->control, trainer->core.broken, trainer->core.broken_text,
                           &trainer->round))
        trainer->round = NULL;
}

void hlt_round_step(halay_trainer_t *trainer)
{
    struct hlt_core *core = &trainer->core;
    do {
        if (!trainer->round &&
            (core->farewell & HLT_FAREWELL_CONTROL || hlt_is_awaited(trainer, trainer->control)))
            farewell(trainer);
        if (!trainer->round && !core->broken && !core->leaving && round_needed(trainer))
            round_start(trainer);
    } while (trainer->round && round_test(trainer));

    if (!trainer->round && (core->broken || core->leaving)) {
        hlt_rounds_end(core);
        hlt_tensors_ended(trainer);
    }
}
