/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-turn: a follow-up whose documents and earlier turns are the same begins with the blocks
 * that those have left.
 *
 * What a request leaves is its own whole blocks, query and answer, under the name of the first of
 * them; a name covers all ids from the documents on (prompt.h).  So a conversation is a chain: each
 * turn continues where the blocks that it found ended.  A follow-up walks the chain: the turn that
 * begins at its next block, as far as ids agree and blocks are resident, and so on.  Ids are
 * compared, not trusted: an answer that is tokenised differently the second time is reused up to
 * there. */
#include "daemon/sched_state.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"

/* Blocks from `ids` on that equal those of a turn from its beginning on, and are resident. */
static uint32_t
equal_blocks(const struct kvpool_doc *turn, const uint32_t *ids, uint32_t blocks_max,
             uint32_t block_tokens)
{
    const uint32_t *its = kvpool_doc_ids(turn);
    uint32_t resident, count = 0;

    (void)kvpool_doc_blocks(turn, &resident);
    while (count < resident && count < blocks_max
           && memcmp(its + (size_t)count * block_tokens, ids + (size_t)count * block_tokens,
                     block_tokens * sizeof(ids[0]))
                  == 0) {
        count++;
    }
    return count;
}

static const struct kvpool_doc *
find_turn(const struct sched *sched, const struct dockey *key)
{
    const struct kvpool_doc *doc = kvpool_find(sched->pool, key);

    return doc == NULL || kvpool_doc_ids(doc) == NULL ? NULL : doc;
}

void
sched_find_turns(const struct sched *sched, struct session *session)
{
    const struct prompt *prompt = &session->prompt;
    uint32_t P = sched->config.block_tokens;
    uint32_t turns = 0, at = 0, end;

    session->turn_block_count = session->turn_tokens = 0;
    if (prompt->turn_keys == NULL) {
        return;
    }
    /* A token at least is left to compute: the answer begins with what it says. */
    end = (tokens_count(prompt->query) + session->sent_count - 1) / P;
    end = end < prompt->turn_key_count ? end : prompt->turn_key_count;
    while (at < end && turns < SESSION_TURNS_MAX) {
        const struct kvpool_doc *turn = find_turn(sched, &prompt->turn_keys[at]);
        uint32_t resident;
        uint32_t count =
            turn == NULL
                ? 0
                : equal_blocks(turn, tokens_ids(prompt->query) + (size_t)at * P, end - at, P);

        if (count == 0) {
            break;
        }
        memcpy(session->turn_blocks + at, kvpool_doc_blocks(turn, &resident),
               count * sizeof(uint32_t));
        session->wants[session->want_count++] = (struct kvpool_want){
            .key = prompt->turn_keys[at],
            .n_tokens = kvpool_doc_tokens(turn),
            .is_optional = true,
            .is_uncounted = true,
        };
        assert(session->want_count <= session->wants_max);
        turns++;
        at += count;
    }
    session->turn_block_count = at;
    session->turn_tokens = at * P;
}

/* The name of own block `at`: those of the query are known, the answer's follow from them. */
static enum status
name_block(const struct prompt *prompt, const uint32_t *ids, uint32_t block_tokens, uint32_t at,
           struct dockey *key_out)
{
    uint32_t known = at < prompt->turn_key_count ? at + 1 : prompt->turn_key_count;

    *key_out = known == 0 ? prompt->turn_seed : prompt->turn_keys[known - 1];
    for (uint32_t i = known; i <= at; i++) {
        TRY(dockey_turn(key_out, ids + (size_t)i * block_tokens, block_tokens, key_out));
    }
    return ST_OK;
}

/* Own ids whose KV is there: the query, then the answer. */
static uint32_t *
join_ids(const struct session *session, uint32_t count)
{
    uint32_t query = tokens_count(session->prompt.query);
    uint32_t *ids = mem_zalloc(count, sizeof(ids[0]));
    uint32_t from_query = count < query ? count : query;

    if (ids != NULL) {
        memcpy(ids, tokens_ids(session->prompt.query), from_query * sizeof(ids[0]));
        memcpy(ids + from_query, session->sent_ids, (count - from_query) * sizeof(ids[0]));
    }
    return ids;
}

/* A turn is forgotten with any document that it was computed over. */
static void
note_cites(struct sched *sched, const struct session *session, const struct dockey *turn)
{
    size_t count = session->prompt.document_count;
    uint64_t *cites = mem_zalloc(count, sizeof(cites[0]));

    for (size_t i = 0; cites != NULL && i < count; i++) {
        cites[i] = dockey_hash(&session->prompt.documents[i].key);
    }
    if (cites != NULL) {
        (void)kvpool_turn_set_cites(sched->pool, turn, cites, (uint32_t)count);
    }
    mem_free(cites);
}

/* What others have left meanwhile under the same names is not kept twice. */
static void
keep_blocks(struct sched *sched, struct session *session, const uint32_t *ids, uint32_t end)
{
    uint32_t P = sched->config.block_tokens, first = session->turn_block_count;
    struct dockey key;

    for (uint32_t at = first; at < end;) {
        const struct kvpool_doc *doc;
        uint32_t equal;

        if (name_block(&session->prompt, ids, P, at, &key) != ST_OK) {
            return;
        }
        doc = kvpool_find(sched->pool, &key);
        if (doc == NULL) {
            if (kvpool_keep_own(sched->pool, session->claim, at - first, end - at, &key,
                                ids + (size_t)at * P, session->worker)
                == ST_OK) {
                note_cites(sched, session, &key);
            }
            return; /* without memory nothing is kept, and that is all */
        }
        equal =
            kvpool_doc_ids(doc) == NULL ? 0 : equal_blocks(doc, ids + (size_t)at * P, end - at, P);
        if (equal == 0) {
            return;
        }
        at += equal;
    }
}

void
sched_keep_turn(struct sched *sched, struct session *session)
{
    uint32_t P = sched->config.block_tokens;
    uint32_t held, end, own_blocks;
    uint32_t *ids;

    if (!session->has_answered || session->prompt.turn_keys == NULL
        || sched_reads_forgotten(sched, session)) {
        return;
    }
    /* A worker may say too much; believed is what can be. */
    held = tokens_count(session->prompt.query) + session->sent_count;
    end = (session->own_tokens < held ? session->own_tokens : held) / P;
    (void)kvpool_claim_blocks(session->claim, &own_blocks);
    if (end > session->turn_block_count + own_blocks) {
        end = session->turn_block_count + own_blocks;
    }
    if (end <= session->turn_block_count) {
        return;
    }
    ids = join_ids(session, end * P);
    if (ids != NULL) {
        keep_blocks(sched, session, ids, end);
        mem_free(ids);
    }
}
