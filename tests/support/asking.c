/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/asking.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#define QUERY_TOKENS_DEFAULT 8
#define MAX_TOKENS_DEFAULT   16
#define BYTE_TOKENS          256
#define BYTE_TOKENS_FIRST    3 /* of the tiny model: 0..2 are control tokens */

struct asking {
    struct question question;
    struct asking_doc docs[ASKING_DOCS_MAX];
    struct kvasir *client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t tokens; /* guarded by lock */
    bool has_ended;
    struct answer answer; /* the thread's until it has ended */
};

/* Deterministic ids of ordinary byte tokens; xorshift, never 0. */
static uint32_t *
make_ids(uint32_t count, uint32_t seed)
{
    uint32_t *ids = calloc(count == 0 ? 1 : count, sizeof(ids[0]));
    uint32_t state = seed * 2654435761u + 1;

    ck_assert_ptr_nonnull(ids);
    for (uint32_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        ids[i] = BYTE_TOKENS_FIRST + (state >> 8) % BYTE_TOKENS;
    }
    return ids;
}

uint32_t
asking_first_id(struct asking_doc doc)
{
    uint32_t *ids = make_ids(doc.n_tokens, doc.seed);
    uint32_t first = ids[0];

    free(ids);
    return first;
}

static bool
take_chunk(void *opaque, const struct kvasir_chunk *chunk)
{
    struct asking *asking = opaque;
    struct answer *answer = &asking->answer;

    if (answer->id_count + chunk->token_count > ASKING_TOKENS_MAX
        || answer->text_length + chunk->text_bytes > sizeof(answer->text)) {
        return false;
    }
    for (size_t i = 0; i < chunk->token_count; i++) {
        answer->ids[answer->id_count++] = chunk->token_ids[i];
    }
    if (chunk->text_bytes > 0) {
        memcpy(answer->text + answer->text_length, chunk->text, chunk->text_bytes);
        answer->text_length += chunk->text_bytes;
    }
    (void)pthread_mutex_lock(&asking->lock);
    asking->tokens = answer->id_count;
    (void)pthread_cond_broadcast(&asking->changed);
    (void)pthread_mutex_unlock(&asking->lock);
    return true;
}

static void
take_usage(struct answer *answer, const struct kvasir_usage *usage)
{
    answer->finish = usage->finish;
    answer->prompt_tokens = usage->prompt_tokens;
    answer->tokens_reused = usage->tokens_reused;
    answer->tokens_built = usage->tokens_built;
    answer->tokens_copied = usage->tokens_copied;
    answer->reuse = usage->reuse;
    answer->turn_tokens_reused = usage->turn_tokens_reused;
    answer->preemptions = usage->preemptions;
    answer->worker = usage->worker;
    answer->ttft_us = usage->ttft_us;
    for (size_t i = 0; i < usage->document_count; i++) {
        answer->docs_hit += strcmp(usage->documents[i].miss_reason, "hit") == 0;
    }
}

/* The body of the thread. */
static void *
run(void *opaque)
{
    struct asking *asking = opaque;
    const struct question *q = &asking->question;
    struct answer *answer = &asking->answer;
    struct kvasir_document documents[ASKING_DOCS_MAX] = {0};
    uint32_t *ids[ASKING_DOCS_MAX];
    uint32_t query_tokens = q->query_tokens == 0 ? QUERY_TOKENS_DEFAULT : q->query_tokens;
    uint32_t *query = make_ids(query_tokens, ~q->query_seed);
    struct kvasir_usage usage = {0};

    if (q->query_ids != NULL) {
        memcpy(query, q->query_ids, query_tokens * sizeof(query[0]));
    }
    for (size_t i = 0; i < q->doc_count; i++) {
        ids[i] = make_ids(q->docs[i].n_tokens, q->docs[i].seed);
        documents[i].token_ids = ids[i];
        documents[i].token_count = q->docs[i].n_tokens;
    }
    answer->code = kvasir_generate(
        asking->client,
        &(struct kvasir_request){
            .documents = documents,
            .document_count = q->doc_count,
            .query_ids = query,
            .query_id_count = query_tokens,
            .sampling = {.max_tokens = q->max_tokens == 0 ? MAX_TOKENS_DEFAULT : q->max_tokens},
            .salt = q->salt,
            .salt_bytes = q->salt == NULL ? 0 : strlen(q->salt),
            .has_priority = q->priority != 0,
            .priority = q->priority,
            .ignore_end = true,
            .timeout_ms = q->timeout_ms,
            .reuse = q->reuse,
            .has_keep_turn = q->keep_turn,
            .keep_turn = q->keep_turn,
            .on_chunk = take_chunk,
            .opaque = asking,
        },
        &usage);
    take_usage(answer, &usage);
    (void)snprintf(answer->message, sizeof(answer->message), "%s", kvasir_error(asking->client));
    for (size_t i = 0; i < q->doc_count; i++) {
        free(ids[i]);
    }
    free(query);
    (void)pthread_mutex_lock(&asking->lock);
    asking->has_ended = true;
    (void)pthread_cond_broadcast(&asking->changed);
    (void)pthread_mutex_unlock(&asking->lock);
    return NULL;
}

struct asking *
asking_start(struct host *host, const struct question *question)
{
    struct asking *asking = calloc(1, sizeof(*asking));
    struct kvasir_options options = {.runtime_dir = host_dir(host), .retry_ms = question->retry_ms};

    ck_assert_ptr_nonnull(asking);
    ck_assert_uint_le(question->doc_count, ASKING_DOCS_MAX);
    asking->question = *question;
    if (question->doc_count > 0) {
        memcpy(asking->docs, question->docs, question->doc_count * sizeof(asking->docs[0]));
    }
    asking->question.docs = asking->docs;
    (void)pthread_mutex_init(&asking->lock, NULL);
    (void)pthread_cond_init(&asking->changed, NULL);
    ck_assert_msg(kvasir_open(&options, &asking->client) == KVASIR_OK, "%s", kvasir_open_error());
    ck_assert_int_eq(pthread_create(&asking->thread, NULL, run, asking), 0);
    return asking;
}

void
asking_wait_tokens(struct asking *asking, size_t count)
{
    (void)pthread_mutex_lock(&asking->lock);
    while (asking->tokens < count && !asking->has_ended) {
        (void)pthread_cond_wait(&asking->changed, &asking->lock);
    }
    (void)pthread_mutex_unlock(&asking->lock);
}

void
asking_wait_more(struct asking *asking, size_t count)
{
    (void)pthread_mutex_lock(&asking->lock);
    size_t tokens = asking->tokens;

    (void)pthread_mutex_unlock(&asking->lock);
    asking_wait_tokens(asking, tokens + count);
}

void
asking_cancel(struct asking *asking)
{
    kvasir_cancel(asking->client);
}

void
asking_end(struct asking **asking, struct answer *answer_out)
{
    struct asking *a = *asking;

    ck_assert_int_eq(pthread_join(a->thread, NULL), 0);
    *answer_out = a->answer;
    kvasir_close(&a->client);
    (void)pthread_cond_destroy(&a->changed);
    (void)pthread_mutex_destroy(&a->lock);
    free(a);
    *asking = NULL;
}

void
ask(struct host *host, const struct question *question, struct answer *answer_out)
{
    struct asking *asking = asking_start(host, question);

    asking_end(&asking, answer_out);
}

void
ask_ok(struct host *host, const struct question *question, struct answer *answer_out)
{
    ask(host, question, answer_out);
    ck_assert_msg(answer_out->code == KVASIR_OK, "%s: %s", kvasir_code_name(answer_out->code),
                  answer_out->message);
    ck_assert_uint_eq(answer_out->id_count,
                      question->max_tokens == 0 ? MAX_TOKENS_DEFAULT : question->max_tokens);
}

void
answer_assert_same(const struct answer *a, const struct answer *b)
{
    ck_assert_uint_eq(a->id_count, b->id_count);
    ck_assert_mem_eq(a->ids, b->ids, a->id_count * sizeof(a->ids[0]));
    ck_assert_uint_eq(a->text_length, b->text_length);
    ck_assert_mem_eq(a->text, b->text, a->text_length);
}
