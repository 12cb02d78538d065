/* SPDX-License-Identifier: Apache-2.0 */
/* resume - what an answer has brought so far, so that it can go on after a loss; and whether it is
 * worth another attempt. */
#ifndef CLIENT_RESUME_H
#define CLIENT_RESUME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvasir/v1/rag.pb-c.h"
#include "proto/wire.h"

#define RESUME_KEY_BYTES      16
#define RESUME_MS_DEFAULT     30000
#define RESUME_PAUSE_MS_FIRST 20
#define RESUME_PAUSE_MS_MAX   1000

struct resume {
    uint8_t key[RESUME_KEY_BYTES]; /* the call's name in all its attempts */
    uint32_t *ids;                 /* [count], owned */
    size_t count, capacity;
    uint64_t text_bytes;
    uint32_t window_ms;   /* to look for a next kvasird after a loss; 0: none */
    uint64_t until_us;    /* 0: nothing has been lost yet */
    size_t count_at_loss; /* another loss without a token in between does not move until_us */
    uint32_t pause_ms;    /* before the next attempt */
};

/* A zeroed one; `retry_ms` as in kvasir_options, but never 0. */
void resume_init(struct resume *resume, uint32_t retry_ms);
void resume_deinit(struct resume *resume);

/* Notes what came.  Without memory for it there will be no other attempt. */
void resume_take(struct resume *resume, const Kvasir__V1__GenerateReply *reply);

/* After an attempt ended so (was_lost: it was sent, and its connection went): whether to make
 * another, once the pause is over. */
bool resume_may_try(struct resume *resume, bool was_lost, enum rpc_code code, uint64_t now_us);

/* A drawn answer can only go on with the seed that it began with, so it is named from the start. */
void resume_name_seed(const struct resume *resume, Kvasir__V1__Sampling *sampling);

/* What the next attempt says; `wire` is borrowed by the request and borrows from `resume`. */
void resume_fill(const struct resume *resume, Kvasir__V1__Resume *wire,
                 Kvasir__V1__GenerateRequest *request);

#endif
