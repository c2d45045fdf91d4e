/* SPDX-License-Identifier: Apache-2.0 */
/* tcp_stream.h - the cases of test_transport_tcp_stream.c. */
#ifndef HALAY_TESTS_TCP_STREAM_H
#define HALAY_TESTS_TCP_STREAM_H

void mixed(void);
void both_call(void);
void patient(void);
void refused_wakes(void);
void cut(void);
void too_large(void);
void nonsense(void);

#endif
