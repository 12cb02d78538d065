/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/replay.h"

#include <assert.h>
#include <string.h>

#include "common/htab.h"
#include "common/mem.h"
#include "kvpool/evict_zipf.h"
#include "kvpool/kvpool.h"

struct replay {
    const struct replay_trace *trace;
    const struct replay_config *config;
    struct kvpool *pool;
    struct kvpool_claim **claims; /* [in_flight], a ring */
    uint32_t oldest, holding;     /* requests that hold claims: [oldest, oldest + holding) */
    struct kvpool_want *wants;    /* [most documents of a request] */
    uint8_t *is_seen;             /* [doc_count] */
    struct replay_result result;
};

void
replay_trace_deinit(struct replay_trace *trace)
{
    MEM_FREE(trace->starts);
    MEM_FREE(trace->docs);
    MEM_FREE(trace->tokens);
}

/* As uniform as a real key, and never the same for two documents. */
static struct dockey
key_of(uint32_t doc)
{
    struct dockey key = {.bytes = {0}};
    uint64_t hash = htab_mix((uint64_t)doc + 1);

    memcpy(key.bytes, &hash, sizeof(hash));
    memcpy(key.bytes + sizeof(hash), &doc, sizeof(doc));
    return key;
}

static size_t
fill_wants(struct replay *r, uint32_t request)
{
    uint32_t start = r->trace->starts[request];
    size_t count = r->trace->starts[request + 1] - start;

    for (size_t i = 0; i < count; i++) {
        uint32_t doc = r->trace->docs[start + i];

        r->wants[i] = (struct kvpool_want){.key = key_of(doc), .n_tokens = r->trace->tokens[doc]};
    }
    return count;
}

static void
let_go_of_oldest(struct replay *r)
{
    uint32_t at = r->oldest++ % r->config->in_flight;

    if (r->claims[at] != NULL) {
        kvpool_claim_release(r->pool, &r->claims[at], 0);
    }
    r->holding--;
}

static void
count(struct replay *r, uint32_t request, size_t want_count, bool is_claimed)
{
    uint32_t uncounted = r->config->uncounted;
    bool is_counted = request >= uncounted;
    bool is_early = request - uncounted < (r->trace->request_count - uncounted) / 2;

    for (size_t i = 0; i < want_count; i++) {
        const struct kvpool_want *want = &r->wants[i];
        uint32_t doc = r->trace->docs[r->trace->starts[request] + i];
        uint32_t ready = is_claimed ? want->tokens_ready : 0;

        if (is_counted) {
            r->result.documents++;
            r->result.documents_hit += ready == want->n_tokens;
            r->result.tokens += want->n_tokens;
            r->result.tokens_hit += ready;
            r->result.tokens_early += is_early ? want->n_tokens : 0;
            r->result.tokens_hit_early += is_early ? ready : 0;
            r->result.tokens_first += r->is_seen[doc] ? 0 : want->n_tokens;
        }
        r->is_seen[doc] = 1;
    }
    r->result.requests += is_counted;
}

/* Waits as a scheduler does: when there is no room, somebody has to end first. */
static enum status
claim(struct replay *r, uint32_t request, size_t want_count)
{
    struct kvpool_claim **claim = &r->claims[request % r->config->in_flight];
    enum status st;

    while (r->holding >= r->config->in_flight) {
        let_go_of_oldest(r);
    }
    while ((st = kvpool_claim(r->pool, r->wants, want_count, 0, 1, claim)) == ST_NO_MEMORY
           && r->holding > 0) {
        let_go_of_oldest(r);
    }
    r->holding++; /* nobody, when it can never fit */
    count(r, request, want_count, st == ST_OK);
    for (size_t i = 0; st == ST_OK && i < want_count; i++) {
        if (r->wants[i].must_build) {
            kvpool_doc_seal(r->pool, r->wants[i].doc, 0);
        }
    }
    return st == ST_INVALID ? ST_OK : st;
}

static enum status
see_ahead(struct replay *r, uint32_t request, bool is_coming)
{
    size_t want_count;

    if (request >= r->trace->request_count) {
        return ST_OK;
    }
    want_count = fill_wants(r, request);
    if (is_coming) {
        return kvpool_await(r->pool, r->wants, want_count);
    }
    kvpool_unawait(r->pool, r->wants, want_count);
    return ST_OK;
}

static enum status
run(struct replay *r)
{
    const struct replay_config *config = r->config;
    struct kvpool_stats before = {0}, after;

    for (uint32_t i = 0; i < config->ahead; i++) {
        TRY(see_ahead(r, i, true));
    }
    for (uint32_t request = 0; request < r->trace->request_count; request++) {
        if (config->is_stopped != NULL && atomic_load(config->is_stopped)) {
            return ERR(ST_UNAVAILABLE, "replay was stopped");
        }
        if (request == config->uncounted) {
            kvpool_stats(r->pool, &before);
        }
        if (config->ahead > 0) {
            TRY(see_ahead(r, request + config->ahead, true));
            TRY(see_ahead(r, request, false));
        }
        TRY(claim(r, request, fill_wants(r, request)));
    }
    kvpool_stats(r->pool, &after);
    r->result.was_full = after.blocks_evicted > 0;
    r->result.blocks_evicted = after.blocks_evicted - before.blocks_evicted;
    if (config->policy == &evict_zipf) {
        r->result.drift = evict_zipf_view(kvpool_policy(r->pool)).drift;
    }
    return ST_OK;
}

static size_t
wants_max(const struct replay_trace *trace)
{
    size_t most = 0;

    for (uint32_t i = 0; i < trace->request_count; i++) {
        size_t wants = trace->starts[i + 1] - trace->starts[i];

        most = most > wants ? most : wants;
    }
    return most;
}

static enum status
start(struct replay *r)
{
    struct kvpool_config config = {
        .block_count = r->config->block_count,
        .block_tokens = r->config->block_tokens,
        .policy = r->config->policy,
        .seed = r->config->seed,
        .quadratic_tokens = r->config->quadratic_tokens,
        .is_replay = true,
    };

    assert(r->config->in_flight > 0);
    r->claims = mem_zalloc(r->config->in_flight, sizeof(struct kvpool_claim *));
    r->wants = mem_zalloc(wants_max(r->trace), sizeof(r->wants[0]));
    r->is_seen = mem_zalloc(r->trace->doc_count, 1);
    if (r->claims == NULL || r->wants == NULL || r->is_seen == NULL) {
        return ERR(ST_NO_MEMORY, "replay of %u requests", r->trace->request_count);
    }
    return kvpool_new(&config, &r->pool);
}

enum status
replay_run(const struct replay_trace *trace, const struct replay_config *config,
           struct replay_result *result_out)
{
    struct replay r = {.trace = trace, .config = config};
    enum status st = start(&r);

    if (st == ST_OK) {
        st = run(&r);
        *result_out = r.result;
    }
    while (r.holding > 0) {
        let_go_of_oldest(&r);
    }
    kvpool_destroy(&r.pool);
    mem_free(r.claims);
    mem_free(r.wants);
    mem_free(r.is_seen);
    return st;
}

/* --- prefixes --------------------------------------------------------------------------------- */

struct chain {
    struct htab_node node;
    uint64_t hash; /* of its documents in order */
    uint32_t number;
};

static bool
chain_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct chain, node)->hash == *(const uint64_t *)key;
}

static enum status
number_chains(const struct replay_trace *trace, struct replay_trace *out, struct htab *known,
              struct chain *chains)
{
    for (uint32_t r = 0; r < trace->request_count; r++) {
        uint32_t start = trace->starts[r], end = trace->starts[r + 1];
        uint64_t hash = 0;

        for (uint32_t i = start; i < end; i++) {
            struct htab_node *node;

            hash = htab_mix(hash * 31 + trace->docs[i] + 1);
            node = htab_find(known, hash, &hash);
            if (node == NULL) {
                struct chain *chain = &chains[out->doc_count];

                *chain = (struct chain){.hash = hash, .number = out->doc_count};
                out->tokens[out->doc_count++] = trace->tokens[trace->docs[i]];
                TRY(htab_insert(known, hash, &chain->node));
                node = &chain->node;
            }
            out->docs[end - 1 - (i - start)] = HTAB_ENTRY(node, struct chain, node)->number;
        }
    }
    return ST_OK;
}

enum status
replay_prefixes(const struct replay_trace *trace, struct replay_trace *prefixes_out)
{
    uint32_t references = trace->starts[trace->request_count];
    struct replay_trace out = {
        .request_count = trace->request_count,
        .starts =
            mem_dup(trace->starts, ((size_t)trace->request_count + 1) * sizeof(out.starts[0])),
        .docs = mem_zalloc(references, sizeof(out.docs[0])),
        .tokens = mem_zalloc(references, sizeof(out.tokens[0])),
    };
    struct chain *chains = mem_zalloc(references, sizeof(*chains));
    struct htab known = {0};
    enum status st = ST_NO_MEMORY;

    if (out.starts != NULL && out.docs != NULL && out.tokens != NULL && chains != NULL
        && htab_init(&known, chain_equal) == ST_OK) {
        st = number_chains(trace, &out, &known, chains);
    }
    htab_deinit(&known);
    mem_free(chains);
    if (st != ST_OK) {
        replay_trace_deinit(&out);
        return ERR(ST_NO_MEMORY, "prefixes of %u requests", trace->request_count);
    }
    *prefixes_out = out;
    return ST_OK;
}
