/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - what every file of the core may use: lists, clock, hash, log. It knows nothing of calls
 * and communicators.
 */
#ifndef HLY_BASE_H
#define HLY_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <halay/halay.h>

enum hly_level { HLY_ERROR = 0, HLY_WARN = 1, HLY_INFO = 2, HLY_TRACE = 3 };

struct hly_link { /* of a circular list; an element in no list points to itself */
    struct hly_link *next, *prev;
};

static inline void hly_link_init(struct hly_link *l)
{
    l->next = l->prev = l;
}
static inline bool hly_link_empty(const struct hly_link *l)
{
    return l->next == l;
}
static inline void hly_link_append(struct hly_link *list, struct hly_link *l)
{
    l->prev = list->prev;
    l->next = list;
    list->prev->next = l;
    list->prev = l;
}
static inline void hly_link_remove(struct hly_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    hly_link_init(l);
}
#define HLY_OF(link_, type_, member_) ((type_ *)((char *)(link_)-offsetof(type_, member_)))

/* No deadline is longer: 73 years, so that no sum with the clock overflows. */
#define HLY_DEADLINE_MAX_NS (UINT64_C(1) << 61)

uint64_t hly_now_ns(void);
uint64_t hly_about_now_ns(void); /* up to a few milliseconds old, but cheap */
/*
 * Structs that the program passes; their first member is their size. The program may have been
 * built with another version of the header, and members are only ever added at the end.
 *
 * _give copies as much of `whole` as fits. False: the program did not set the size.
 * _take copies what the program has; the rest of `whole` keeps its defaults. False: the size is not
 * set, or a member is set that this library does not know.
 */
bool hly_struct_give(void *to, const void *whole, size_t bytes);
bool hly_struct_take(void *whole, size_t bytes, const void *from);
uint64_t hly_hash(uint64_t seed, const void *data, size_t bytes);
void hly_log(halay_context_t *context, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void hly_log_text(void *context, int level, const char *text); /* a halay_log_fn */
/* Wakes all threads that sleep in this context; they return to their callers. */
void hly_wake(halay_context_t *context);
/* Wakes the thread that sleeps on the descriptors, if there is one. */
void hly_wake_leader(halay_context_t *context);

#endif
