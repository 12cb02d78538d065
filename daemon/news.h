/* SPDX-License-Identifier: Apache-2.0 */
/* news - what happens, for operators who listen (Admin/Events): what kvasird logs, and on request
 * what becomes of documents.  Any thread may log; the scheduler's sends, at the end of its turn. */
#ifndef DAEMON_NEWS_H
#define DAEMON_NEWS_H

#include "common/status.h"
#include "kvpool/kvpool.h"

#include "kvasir/v1/admin.pb-c.h"

#define NEWS_LISTENERS_MAX 16
#define NEWS_ITEMS_MAX     1024 /* between two turns; more are counted, not told */

struct call;
struct kvasird;
struct news;

enum status news_new(struct news **news_out);
void news_destroy(struct news **news); /* NULL is fine */

/* A watch for the pool that also tells `next` (NULL: nobody); as long as the news live. */
const struct kvpool_watch *news_watch(struct news *news, const struct kvpool_watch *next);

/* A call that stays open; RESOURCE_EXHAUSTED beyond NEWS_LISTENERS_MAX. */
void news_listen(struct kvasird *d, struct call *call, const Kvasir__V1__EventsRequest *request);

/* Sends what has happened, and ends who has listened long enough. */
void news_flush(struct kvasird *d);

#endif
