/* SPDX-License-Identifier: Apache-2.0 */
/* A start: the contract. */
#include <stdio.h>
#include <stdlib.h>
#include "transport_body.h"
extern const halay_transport_ops_t halay_transport_v1_ucx;
int main(int argc, char **argv)
{
    struct transport_body body = {.ops = &halay_transport_v1_ucx, .n = argc > 2 ? atoi(argv[2]) : 2, .options = "interface=lo", .flags = TRANSPORT_BODY_SECRET};
    return transport_body_run(&body, argc > 1 ? argv[1] : NULL);
}
