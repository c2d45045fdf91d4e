/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport_toy.c - the contract over the smallest transport. Argument: a case. */
#include "transport_body.h"

extern const halay_transport_ops_t halay_transport_v7_toy;

int main(int argc, char **argv)
{
    const struct transport_body body = {
        .ops = &halay_transport_v7_toy, .n = 4, .flags = TRANSPORT_BODY_SECRET};
    return transport_body_run(&body, argc > 1 ? argv[1] : NULL);
}
