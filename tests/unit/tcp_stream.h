/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_stream.h - the cases of test_transport_tcp_stream.c. */
#ifndef HALAY_TESTS_TCP_STREAM_H
#define HALAY_TESTS_TCP_STREAM_H

#include <stddef.h>

void mixed(void);
void both_call(void);
void patient(void);
void refused_wakes(void);
void cut(void);
void too_large(void);
void leaves(void);
void nonsense(void);

/* test_transport_tcp_seal.c */
struct net_case;
extern const struct net_case tcp_seal_cases[];
extern const size_t tcp_seal_ncases;

#endif
