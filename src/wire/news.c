/* SPDX-License-Identifier: Apache-2.0 */
/* news.c - the queue of news (news.h). Its memory is used again. */
#include "wire/news.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Made with the context: a rank that runs out of memory still hears of what one event leaves. More
 * are allocated for the ends of many sends at once (139 in the tests). */
enum { STOCK = 32 };

static int more(struct hly_link *list)
{
    struct hly_news *n = malloc(sizeof(*n));
    if (!n)
        return HALAY_ENOMEM;
    hly_link_init(&n->link);
    hly_link_append(list, &n->link);
    return HALAY_OK;
}

int hly_news_init(halay_context_t *ctx)
{
    hly_link_init(&ctx->news);
    hly_link_init(&ctx->news_unused);
    hly_link_init(&ctx->news_reserved);
    ctx->news_stock = calloc(STOCK, sizeof(*ctx->news_stock));
    if (!ctx->news_stock)
        return HALAY_ENOMEM;
    for (int i = 0; i < STOCK; i++) {
        hly_link_init(&ctx->news_stock[i].link);
        hly_link_append(&ctx->news_unused, &ctx->news_stock[i].link);
    }
    return HALAY_OK;
}

int hly_news_reserve(halay_context_t *ctx)
{
    return more(&ctx->news_reserved);
}

void hly_news_unreserve(halay_context_t *ctx)
{
    struct hly_link *l = ctx->news_reserved.next;
    assert(!hly_link_empty(&ctx->news_reserved));
    hly_link_remove(l);
    hly_link_append(&ctx->news_unused, l);
}

struct hly_news *hly_news_leave(halay_context_t *ctx, enum hly_news_kind kind, halay_request_t *r)
{
    if (kind == HLY_NEWS_COMPLETE && (r->group.member_of || r->message.other)) {
        hly_news_unreserve(ctx);
    } else if (hly_link_empty(&ctx->news_unused) && more(&ctx->news_unused)) {
        hly_log(ctx, HLY_ERROR, "no memory: calls may have to wait for their deadlines");
        return NULL;
    }
    struct hly_news *n = HLY_OF(ctx->news_unused.next, struct hly_news, link);
    hly_link_remove(&n->link);
    n->kind = kind;
    n->request = r;
    n->comm = r ? r->comm : NULL;
    n->sequence = r ? r->sequence : 0;
    n->step = HALAY_STEP_NONE;
    n->value = 0;
    n->other = 0;
    n->peer = NULL;
    n->text[0] = 0;
    hly_link_append(&ctx->news, &n->link);
    return n;
}

struct hly_news *hly_news_take(halay_context_t *ctx)
{
    if (hly_link_empty(&ctx->news))
        return NULL;
    struct hly_news *n = HLY_OF(ctx->news.next, struct hly_news, link);
    hly_link_remove(&n->link);
    return n;
}

void hly_news_done(halay_context_t *ctx, struct hly_news *n)
{
    hly_link_append(&ctx->news_unused, &n->link);
}

void hly_news_free(halay_context_t *ctx)
{
    struct hly_link *const lists[3] = {&ctx->news, &ctx->news_unused, &ctx->news_reserved};
    for (int i = 0; i < 3; i++)
        while (!hly_link_empty(lists[i])) {
            struct hly_news *n = HLY_OF(lists[i]->next, struct hly_news, link);
            hly_link_remove(&n->link);
            if (n < ctx->news_stock || n >= ctx->news_stock + STOCK)
                free(n);
        }
    free(ctx->news_stock);
}

void hly_news_fail(halay_request_t *r, int code, const char *format, ...)
{
    struct hly_news *n = hly_news_leave(r->context, HLY_NEWS_FAILED, r);
    va_list ap;
    if (!n)
        return;
    n->value = code;
    va_start(ap, format);
    vsnprintf(n->text, sizeof(n->text), format, ap);
    va_end(ap);
    if (hly_request_runs(r))
        r->state = HLY_STOPPED;
}
