/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call takes the message that its step waits for, and no other: every bit of the header,
 * of the sender's id and of the length is flipped in turn, and each must be refused; and so must
 * the right message once its call, its step or its peer is another one.
 */
#include <string.h>

#include "check.h"
#include "wire/expected.h"

struct bed {
    halay_plan_t *made;
    struct hly_plan plan;
    struct hly_peer peer, *peers[8];
    struct hly_span spans[8];
    struct hly_step_run run[8];
    uint8_t state[8];
    halay_request_t request;
    uint32_t step;
    struct hly_header header; /* of the right message, */
    halay_peer_id_t from;     /* and its sender */
};

static void fill(struct bed *b, uint32_t bytes)
{
    halay_plan_params_t params = {HALAY_ALLREDUCE, 2, 1, 0, 0};
    memset(b, 0, sizeof(*b));
    for (uint32_t p = 0; p < halay_planner_count() && !b->made; p++)
        if (halay_planner_get(p)->collective == HALAY_ALLREDUCE &&
            halay_plan_make(p, &params, &b->made))
            b->made = NULL;
    CHECK(b->made && b->made->nsteps <= 8 && b->made->noperands <= 8, "a plan of two ranks");
    while (b->made->steps[b->step].kind != HALAY_STEP_RECV)
        CHECK(++b->step < b->made->nsteps, "no step receives");
    const halay_step_t *s = &b->made->steps[b->step];
    b->peer.id = b->from = (halay_peer_id_t){0x1234567890abcdef, 0xfedcba0987654321};
    for (int i = 0; i < 8; i++)
        b->peers[i] = &b->peer;
    b->plan.plan = b->made;
    b->plan.steps = b->made->steps;
    b->plan.nsteps = b->made->nsteps;
    b->plan.peers = b->peers;
    b->spans[s->operand].extent[0].bytes = bytes;
    b->header = (struct hly_header){.comm = 77,
                                    .signature = 0x5555,
                                    .from = s->peer,
                                    .kind = HLY_EAGER,
                                    .segment = 3,
                                    .call = {.count = 2, .root = 0, .type = 4, .op = 1}};
    b->request.plan = &b->plan;
    b->request.layout.spans = b->spans;
    b->request.run.step = b->run;
    b->request.run.state = b->state;
    b->request.segments.number = 3;
    b->request.header = b->header;
    b->request.header.from = 1 - s->peer; /* its own messages' */
    b->request.sequence = 0xfffffff0;
    hly_header_number(&b->header, 0xfffffff0, s->edge);
    CHECK(b->header.sequence == 0xfffffff0 && b->header.edge == s->edge, "number and edge");
    b->header.cookie = bytes;
}

/* anew: what was kept of the last time holds no more. */
static bool is_taken(struct bed *b, halay_peer_id_t from, size_t bytes, bool anew)
{
    if (anew)
        hly_expected_forget(&b->request);
    hly_expect(&b->request, b->step);
    const halay_event_t event = {.kind = HALAY_EVENT_MESSAGE,
                                 .peer = from,
                                 .data = &b->header,
                                 .bytes = sizeof(b->header) + bytes};
    return hly_expected_came(&b->request.expected, &event);
}

static bool is_right(struct bed *b)
{
    return is_taken(b, b->from, b->spans[b->made->steps[b->step].operand].extent[0].bytes, true);
}

static void flip(unsigned char *at, size_t bit)
{
    at[bit / 8] ^= (unsigned char)(1u << bit % 8);
}

static void flip_all(struct bed *b, void *what, size_t bytes, const char *name)
{
    for (size_t bit = 0; bit < 8 * bytes; bit++) {
        flip(what, bit);
        CHECK(!is_right(b), "bit %zu of the %s was not noticed", bit, name);
        flip(what, bit);
    }
    CHECK(is_right(b), "the right message is refused, after the %s", name);
}

static void sent_by_another(struct bed *b, size_t bytes)
{
    halay_peer_id_t from = b->from;
    for (size_t bit = 0; bit < 8 * sizeof(from); bit++) {
        flip((unsigned char *)&from, bit);
        CHECK(!is_taken(b, from, bytes, false), "bit %zu of the sender was not noticed", bit);
        flip((unsigned char *)&from, bit);
    }
    for (size_t bit = 0; bit < 8 * sizeof(bytes); bit++) {
        flip((unsigned char *)&bytes, bit);
        CHECK(!is_taken(b, from, bytes, false), "bit %zu of the length was not noticed", bit);
        flip((unsigned char *)&bytes, bit);
    }
}

int main(void)
{
    for (uint32_t bytes = 0; bytes <= 8; bytes += 8) {
        static struct bed b;
        fill(&b, bytes);
        CHECK(is_right(&b), "the right message is refused");
        flip_all(&b, &b.header, sizeof(b.header), "header");
        flip_all(&b, &b.request.sequence, sizeof(b.request.sequence), "call's number");
        flip_all(&b, &b.request.header.call, sizeof(b.request.header.call), "call");
        flip_all(&b, &b.request.header.signature, sizeof(uint64_t), "signature");
        flip_all(&b, &b.made->steps[b.step].peer, sizeof(uint32_t), "step's peer");
        flip_all(&b, &b.made->steps[b.step].edge, sizeof(uint32_t), "step's edge");
        flip_all(&b, &b.peer.id, sizeof(b.peer.id), "peer's id");
        sent_by_another(&b, bytes);
        halay_plan_free(b.made);
    }
    return 0;
}
