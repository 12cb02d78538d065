/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/session.h"

#include <assert.h>

#include "common/mem.h"
#include "daemon/sched.h"

#define NONE SESSION_STATES

static const enum session_state next_state[SESSION_STATES][SESSION_EVENTS] = {
    /* in this order: admit, preempt, close, release, lose */
    [SESSION_WAITING] = {SESSION_RUNNING, NONE, SESSION_ENDED, NONE, NONE},
    [SESSION_RUNNING] = {NONE, SESSION_PREEMPTING, SESSION_CLOSING, NONE, SESSION_WAITING},
    [SESSION_PREEMPTING] = {NONE, NONE, SESSION_CLOSING, SESSION_WAITING, SESSION_WAITING},
    [SESSION_CLOSING] = {NONE, NONE, SESSION_CLOSING, SESSION_ENDED, SESSION_ENDED},
    [SESSION_ENDED] = {NONE, NONE, NONE, NONE, NONE},
};

void
session_move(struct session *session, enum session_event event)
{
    enum session_state next = next_state[session->state][event];

    assert(next != NONE);
    session->state = next;
}

const char *
session_state_name(enum session_state state)
{
    static const char *const names[SESSION_STATES] = {
        "waiting", "running", "preempting", "closing", "ended",
    };

    assert(state < SESSION_STATES);
    return names[state];
}

bool
session_is_warm(const struct session *session)
{
    return session->prompt.query == NULL;
}

uint32_t
session_own_tokens_max(const struct session *session)
{
    if (session_is_warm(session)) {
        return 0;
    }
    return tokens_count(session->prompt.query) + session->prompt.sampling.max_tokens;
}

uint32_t
session_own_offset(const struct session *session)
{
    return session->segment_count == 0 ? 0 : session->doc_tokens;
}

/* With full attention a document's KV has something of all that stand before it. */
static void
name_behind(struct session *session, size_t i)
{
    const struct prompt_document *document = &session->prompt.documents[i];

    if (memcmp(&document->kv_key, &document->key, sizeof(document->key)) != 0) {
        session->wants[i].behind = session->behind;
        session->wants[i].behind_count = 2 * (uint32_t)i;
    }
    session->behind[2 * i] = dockey_hash(&document->key);
    session->behind[2 * i + 1] = dockey_hash(&document->kv_key);
}

/* Names what it reads from the pool, and counts its documents' tokens. */
static enum status
list_wants(struct session *session)
{
    uint64_t tokens = 0;

    for (size_t i = 0; i < session->prompt.document_count; i++) {
        const struct prompt_document *document = &session->prompt.documents[i];
        uint32_t count = tokens_count(document->tokens);

        tokens += count;
        if (i < session->segment_count) {
            session->wants[i].key = document->kv_key;
            session->wants[i].source = dockey_hash(&document->key);
            session->wants[i].n_tokens = count;
            session->wants[i].ids = tokens_ids(document->tokens);
            session->sources[i] = SESSION_SOURCE_NONE;
            if (session->behind != NULL) {
                name_behind(session, i);
            }
        }
    }
    session->want_count = session->segment_count;
    if (tokens > SESSION_TOKENS_MAX) {
        return ERR(ST_INVALID, "prompt of %llu tokens: the limit is %u", (unsigned long long)tokens,
                   SESSION_TOKENS_MAX);
    }
    session->doc_tokens = (uint32_t)tokens;
    return ST_OK;
}

static enum status
allocate(struct session *session)
{
    size_t count = session->prompt.document_count;
    size_t segments = prompt_segment_count(&session->prompt);
    size_t wants = session->prompt.reuse == REUSE_REENCODE ? 2 * segments : segments;

    if (session->prompt.turn_keys != NULL) {
        wants += SESSION_TURNS_MAX;
        session->turn_blocks =
            mem_zalloc(session->prompt.turn_key_count, sizeof(session->turn_blocks[0]));
        if (session->turn_blocks == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for the blocks of earlier turns");
        }
    }
    session->segment_count = (uint32_t)segments;
    session->wants_max = (uint32_t)wants;
    session->wants = mem_zalloc(wants, sizeof(session->wants[0]));
    if (session->prompt.reuse == REUSE_PREFIX) {
        session->behind = mem_zalloc(2 * segments, sizeof(session->behind[0]));
        if (session->behind == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for a request of %zu documents", count);
        }
    }
    session->sources = mem_zalloc(segments, sizeof(session->sources[0]));
    session->segments = mem_zalloc(segments, sizeof(session->segments[0]));
    session->builds = mem_zalloc(wants, sizeof(session->builds[0]));
    session->documents = mem_zalloc(count, sizeof(session->documents[0]));
    session->sent_ids =
        mem_zalloc(session_is_warm(session) ? 0 : session->prompt.sampling.max_tokens,
                   sizeof(session->sent_ids[0]));
    if (session->wants == NULL || session->sources == NULL || session->segments == NULL
        || session->builds == NULL || session->documents == NULL || session->sent_ids == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a request of %zu documents", count);
    }
    return ST_OK;
}

enum status
session_new(uint64_t id, struct prompt *prompt, struct session **session_out)
{
    struct session *session = mem_zalloc(1, sizeof(*session));
    enum status st;

    if (session == NULL) {
        prompt_deinit(prompt);
        return ERR(ST_NO_MEMORY, "no memory for a request");
    }
    *session = (struct session){
        .id = id,
        .state = SESSION_WAITING,
        .prompt = *prompt,
        .worker = SESSION_WORKER_NONE,
    };
    *prompt = (struct prompt){0};
    list_init(&session->queue_link);
    list_init(&session->age_link);
    list_init(&session->hold_link);
    list_init(&session->owned_builds);
    st = allocate(session);
    if (st == ST_OK) {
        st = list_wants(session);
    }
    if (st == ST_OK && session->prompt.resume_count > 0) {
        memcpy(session->sent_ids, session->prompt.resume_ids,
               session->prompt.resume_count * sizeof(session->sent_ids[0]));
        session->sent_count = session->prompt.resume_count;
        session->sent_text_bytes = session->prompt.resume_text_bytes;
    }
    if (st != ST_OK) {
        session_destroy(&session);
        return st;
    }
    *session_out = session;
    return ST_OK;
}

void
session_destroy(struct session **session)
{
    struct session *s = *session;

    if (s == NULL) {
        return;
    }
    assert(s->claim == NULL && list_is_empty(&s->owned_builds));
    prompt_deinit(&s->prompt);
    mem_free(s->wants);
    mem_free(s->sources);
    mem_free(s->behind);
    mem_free(s->turn_blocks);
    mem_free(s->segments);
    mem_free(s->builds);
    mem_free(s->documents);
    mem_free(s->sent_ids);
    mem_free(s);
    *session = NULL;
}

/* Document tokens computed for it: what it built, or all of them, unless some were reused. */
static uint32_t
tokens_built(const struct session *session)
{
    bool is_recomputed = session->prompt.reuse == REUSE_NONE && session->first_token_us != 0;

    return is_recomputed ? session->doc_tokens : session->tokens_built;
}

struct session_usage
session_usage(const struct session *session, uint32_t block_tokens, uint64_t now_us)
{
    uint32_t query = session_is_warm(session) ? 0 : tokens_count(session->prompt.query);
    uint32_t padded = 0;

    for (uint32_t i = 0; i < session->segment_count; i++) {
        uint32_t tail = session->wants[i].n_tokens % block_tokens;

        padded += tail == 0 ? 0 : block_tokens - tail;
    }
    query -= session->prompt.query_documents;
    return (struct session_usage){
        .prompt_tokens = session->doc_tokens + query,
        .query_tokens = query,
        .completion_tokens = session->sent_count,
        .tokens_reused = session->tokens_read > session->tokens_built
                             ? session->tokens_read - session->tokens_built
                             : 0,
        .tokens_built = tokens_built(session),
        .tokens_padded = padded,
        .tokens_copied = session->tokens_copied,
        .tokens_loaded = session->tokens_loaded,
        .turn_tokens_reused = session->turn_tokens_read,
        .tokens_hidden = session->tokens_hidden,
        .queue_us =
            (session->admitted_us != 0 ? session->admitted_us : now_us) - session->arrival_us,
        .ttft_us = session->first_token_us == 0 ? 0 : session->first_token_us - session->arrival_us,
        .total_us = now_us - session->arrival_us,
        .worker = session->worker,
        .preemptions = session->preemptions,
        .seed = session->prompt.sampling.seed,
    };
}
