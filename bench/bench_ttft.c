/* SPDX-License-Identifier: Apache-2.0 */
/* Time to first token, client to client, through a running kvasird.
 *
 *   bench_ttft --runtime-dir DIR [--docs 5] [--doc-tokens 4096] [--query-tokens 64] [--output 16]
 *              [--vocab 32000] [--rounds 9]
 *
 * Documents and queries are seeded token ids, so no text is needed and nothing is tokenised.  Three
 * lines, each the median of its rounds: `cold` (fresh documents each round), `hot` (the same
 * documents in another order each round, with another query), `part` (two documents of each round
 * fresh: the paper's ablation, 3 of 5 hot).  Measured at the client from the call to the first
 * chunk; the time between tokens is the rest of the answer over its tokens.  With --by-key the
 * documents are registered before the clock runs, and requests name them by their keys. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/kvasir.h"
#include "common/clock.h"
#include "common/conf.h"
#include "common/htab.h"
#include "common/mem.h"

#define ROUNDS_MAX 99

struct options {
    char *runtime_dir;
    uint64_t docs, doc_tokens, query_tokens, output, vocab, rounds;
    bool by_key;
    uint64_t busy_poll; /* us */
};

static const struct conf_option option_table[] = {
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR", "where kvasird's sockets are",
     offsetof(struct options, runtime_dir)},
    {"docs", CONF_U64, "5", 1, 1000, "N", "documents a request", offsetof(struct options, docs)},
    {"doc-tokens", CONF_U64, "4096", 1, 1000000, "N", "tokens a document",
     offsetof(struct options, doc_tokens)},
    {"query-tokens", CONF_U64, "64", 1, 100000, "N", "tokens of a query",
     offsetof(struct options, query_tokens)},
    {"output", CONF_U64, "16", 2, 100000, "N", "tokens of an answer",
     offsetof(struct options, output)},
    {"vocab", CONF_U64, "32000", 16, 1u << 20, "N", "ids are drawn below it",
     offsetof(struct options, vocab)},
    {"rounds", CONF_U64, "9", 1, ROUNDS_MAX, "N", "rounds of each kind",
     offsetof(struct options, rounds)},
    {"busy-poll", CONF_U64, "0", 0, 0, "US", "the client waits without sleeping for so long",
     offsetof(struct options, busy_poll)},
    {"by-key", CONF_BOOL, "false", 0, 0, NULL, "documents are registered, then named by their keys",
     offsetof(struct options, by_key)},
};

static struct options options;
static uint32_t **doc_ids; /* [docs] */
static uint32_t *query_ids;
static uint8_t (*keys)[KVASIR_KEY_BYTES]; /* [docs] */
static struct kvasir_document *documents;

/* The token ids of document or query number `seed`; ids below 8 may be control tokens. */
static void
fill(uint32_t *ids, uint64_t count, uint64_t seed)
{
    for (uint64_t i = 0; i < count; i++) {
        ids[i] = (uint32_t)(8 + htab_mix(seed * 1000003u + i) % (options.vocab - 8));
    }
}

static bool
stamp_first(void *opaque, const struct kvasir_chunk *chunk)
{
    uint64_t *first_us = opaque;

    if (*first_us == 0 && chunk->token_count > 0) {
        *first_us = clock_now_us();
    }
    return true;
}

struct timing {
    double ttft_us, daemon_ttft_us, between_us;
    uint64_t start_us, first_us;
    struct kvasir_trace trace;
    uint32_t reused, built;
};

static void
name_by_key(struct kvasir *client, struct kvasir_document *document, uint8_t key[KVASIR_KEY_BYTES])
{
    if (kvasir_register(client, document, false, NULL, 0, key, NULL) != KVASIR_OK) {
        printf("FAIL: %s\n", kvasir_error(client));
        exit(EXIT_FAILURE);
    }
    *document = (struct kvasir_document){.key = key};
}

/* Asks with document slot i holding document first[i]. */
static struct timing
ask(struct kvasir *client, const uint64_t *first, uint64_t query_seed)
{
    uint64_t first_us = 0;
    struct kvasir_usage usage;
    struct kvasir_request request = {
        .documents = documents,
        .document_count = options.docs,
        .query_ids = query_ids,
        .query_id_count = options.query_tokens,
        .sampling = {.max_tokens = (uint32_t)options.output},
        .ignore_end = true,
        .on_chunk = stamp_first,
        .opaque = &first_us,
    };

    for (uint64_t i = 0; i < options.docs; i++) {
        fill(doc_ids[i], options.doc_tokens, first[i]);
        documents[i] =
            (struct kvasir_document){.token_ids = doc_ids[i], .token_count = options.doc_tokens};
        if (options.by_key) {
            name_by_key(client, &documents[i], keys[i]);
        }
    }
    fill(query_ids, options.query_tokens, query_seed);
    uint64_t start_us = clock_now_us();

    if (kvasir_generate(client, &request, &usage) != KVASIR_OK) {
        printf("FAIL: %s\n", kvasir_error(client));
        exit(EXIT_FAILURE);
    }
    uint64_t end_us = clock_now_us();

    return (struct timing){
        .ttft_us = (double)(first_us - start_us),
        .daemon_ttft_us = (double)usage.ttft_us,
        .between_us = (double)(end_us - first_us) / (double)(options.output - 1),
        .start_us = start_us,
        .first_us = first_us,
        .trace = usage.trace,
        .reused = usage.tokens_reused,
        .built = usage.tokens_built,
    };
}

static int
by_ttft(const void *a, const void *b)
{
    const struct timing *x = a, *y = b;

    return x->ttft_us < y->ttft_us ? -1 : x->ttft_us > y->ttft_us;
}

/* The median round hop by hop, and what is not the worker's step. */
static void
report_trace(const struct timing *m)
{
    const struct kvasir_trace *t = &m->trace;
    const struct {
        const char *name;
        uint64_t us;
    } points[] = {
        {"arrived", t->arrived_us},   {"read", t->read_us},   {"assigned", t->assigned_us},
        {"heard", t->heard_us},       {"begun", t->begun_us}, {"ended", t->ended_us},
        {"returned", t->returned_us}, {"sent", t->sent_us},   {"received", m->first_us},
    };
    uint64_t before_us = m->start_us;

    printf("     ");
    for (size_t i = 0; i < sizeof(points) / sizeof(points[0]); i++) {
        printf(" %s +%" PRId64, points[i].name, (int64_t)(points[i].us - before_us));
        before_us = points[i].us;
    }
    printf(" us; outside the step %.3f ms\n",
           (m->ttft_us - (double)(t->ended_us - t->begun_us)) / 1e3);
}

static void
report(const char *name, struct timing *timings, uint64_t count)
{
    qsort(timings, count, sizeof(timings[0]), by_ttft);
    struct timing m = timings[count / 2];

    printf("%-5s %2" PRIu64 " x %-5" PRIu64 " + %-4" PRIu64
           " ttft %9.2f ms (best %.2f, worst %.2f; daemon %.2f)  between tokens %.3f ms  "
           "reused %u built %u\n",
           name, options.docs, options.doc_tokens, options.query_tokens, m.ttft_us / 1e3,
           timings[0].ttft_us / 1e3, timings[count - 1].ttft_us / 1e3, m.daemon_ttft_us / 1e3,
           m.between_us / 1e3, m.reused, m.built);
    report_trace(&m);
}

enum kind {
    COLD,
    HOT,
    PART
};

/* Which documents a round asks for: fresh ones, the standing ones turned by the round, or those
 * with the last two replaced by fresh ones. */
static void
choose(enum kind kind, uint64_t round, uint64_t *first)
{
    static uint64_t fresh = 1000000;

    for (uint64_t i = 0; i < options.docs; i++) {
        first[i] = kind == COLD ? fresh++ : (i + round) % options.docs;
    }
    for (uint64_t i = 0; kind == PART && i < 2 && i < options.docs; i++) {
        first[options.docs - 1 - i] = fresh++;
    }
}

static void
measure(struct kvasir *client)
{
    static const char *const names[] = {"cold", "hot", "part"};
    static struct timing timings[ROUNDS_MAX];
    uint64_t *first = mem_zalloc(options.docs, sizeof(*first));

    for (enum kind kind = COLD; kind <= PART; kind++) {
        if (kind == HOT) { /* builds the standing documents */
            choose(HOT, 0, first);
            (void)ask(client, first, 1);
        }
        for (uint64_t r = 0; r < options.rounds; r++) {
            choose(kind, r, first);
            timings[r] = ask(client, first, 100 + (uint64_t)kind * 1000 + r);
        }
        report(names[kind], timings, options.rounds);
    }
    mem_free(first);
}

int
main(int argc, char **argv)
{
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), &options};
    struct kvasir *client;
    int operand;

    if (conf_defaults(conf) != ST_OK || conf_parse_args(conf, argc, argv, &operand) != ST_OK) {
        (void)fprintf(stderr, "bench_ttft: %s\n", status_detail());
        return 2;
    }
    documents = mem_zalloc(options.docs, sizeof(*documents));
    doc_ids = mem_zalloc(options.docs, sizeof(*doc_ids));
    query_ids = mem_zalloc(options.query_tokens, sizeof(*query_ids));
    keys = mem_zalloc(options.docs, sizeof(*keys));
    for (uint64_t i = 0; i < options.docs; i++) {
        doc_ids[i] = mem_zalloc(options.doc_tokens, sizeof(**doc_ids));
    }
    if (options.runtime_dir == NULL) {
        printf("SKIP: needs a running kvasird; see --runtime-dir\n");
        return 77;
    }
    if (kvasir_open(&(struct kvasir_options){.runtime_dir = options.runtime_dir,
                                             .busy_us = options.busy_poll},
                    &client)
        != KVASIR_OK) {
        (void)fprintf(stderr, "bench_ttft: %s\n", kvasir_open_error());
        return 3;
    }
    measure(client);
    kvasir_close(&client);
    for (uint64_t i = 0; i < options.docs; i++) {
        mem_free(doc_ids[i]);
    }
    mem_free(doc_ids);
    mem_free(documents);
    mem_free(query_ids);
    mem_free(keys);
    conf_deinit(conf);
    return 0;
}
