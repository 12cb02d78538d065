/* SPDX-License-Identifier: Apache-2.0 */
/* Time to first token, client to client, through a running kvasird.
 *
 *   bench_ttft --runtime-dir DIR [--docs 5] [--doc-tokens 4096] [--query-tokens 64] [--output 16]
 *              [--vocab 32000] [--rounds 9] [--kinds cold,hot,part] [--as ids] [--token-bytes 0]
 *
 * Kinds, each the median of its rounds: `cold` (fresh documents each round), `hot` (the same
 * documents in another order each round, with another query), `part` (two documents of each round
 * fresh: the paper's ablation, 3 of 5 hot).  Measured at the client from the call to the first
 * chunk; the time between tokens is the rest of the answer over its tokens.
 *
 * Forms, which take turns round by round: documents as `ids`, as the `key` under which they were
 * registered before the clock runs, as `text`; with text, the query is a text that nobody has seen.
 * Without --token-bytes documents are seeded ids, so no text is needed; with it they are seeded
 * words, so many bytes for each of --doc-tokens, and their ids are what kvasird makes of them: all
 * forms name the same documents. */
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

#define ROUNDS_MAX      999
#define TOKEN_BYTES_MAX 64

enum form {
    AS_IDS,
    AS_KEY,
    AS_TEXT,
    FORMS
};

enum kind {
    COLD,
    HOT,
    PART,
    KINDS
};

static const char *const form_names[] = {"ids", "key", "text"};
static const char *const kind_names[] = {"cold", "hot", "part"};

struct options {
    char *runtime_dir;
    uint64_t docs, doc_tokens, query_tokens, output, vocab, rounds, token_bytes;
    char *as, *kinds;
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
    {"as", CONF_STRING, "ids", 0, 0, "FORMS", "ids, key, text, a comma between them",
     offsetof(struct options, as)},
    {"kinds", CONF_STRING, "cold,hot,part", 0, 0, "KINDS", "of rounds, a comma between them",
     offsetof(struct options, kinds)},
    {"token-bytes", CONF_U64, "0", 0, TOKEN_BYTES_MAX, "N",
     "bytes of text for each token; 0: there is no text", offsetof(struct options, token_bytes)},
};

static struct options options;

static struct slot {
    uint32_t *ids; /* [count] */
    size_t count;
    char *text;
    uint8_t key[KVASIR_KEY_BYTES];
} * slots, query;                         /* [docs], and one */
static struct kvasir_document *documents; /* [docs] */

static void
fail(const char *why)
{
    printf("FAIL: %s\n", why);
    exit(EXIT_FAILURE);
}

/* Words that a tokenizer knows, so that its tokens are as long as in real text. */
static void
write_text(char *text, size_t length, uint64_t seed)
{
    static const char *const words[] = {
        "the ",     "of ",   "and ",   "in ",   "was ",      "river ", "king ",   "music ",
        "company ", "film ", "first ", "from ", "century ",  "which ", "north ",  "by ",
        "house ",   "year ", "a ",     "to ",   "american ", "city ",  "school ", "with ",
        "known ",   "his ",  "war ",   "born ", "national ", "team ",  "on ",     "place ",
    };
    size_t at = 0;

    for (uint64_t i = 0; at < length; i++) {
        const char *word = words[htab_mix(seed * 1000003u + i) % 32];

        for (size_t k = 0; word[k] != '\0' && at < length; k++) {
            text[at++] = word[k];
        }
    }
    text[length] = '\0';
}

static void
write_ids(struct kvasir *client, struct slot *slot, uint64_t tokens, uint64_t seed)
{
    const uint32_t *ids;

    if (options.token_bytes == 0) {
        for (slot->count = 0; slot->count < tokens; slot->count++) { /* below 8: control tokens */
            slot->ids[slot->count] =
                (uint32_t)(8 + htab_mix(seed * 1000003u + slot->count) % (options.vocab - 8));
        }
        return;
    }
    if (kvasir_tokenize(client, slot->text, false, &ids, &slot->count) != KVASIR_OK) {
        fail(kvasir_error(client));
    }
    if (slot->count > tokens * options.token_bytes) {
        fail("more tokens than bytes");
    }
    memcpy(slot->ids, ids, slot->count * sizeof(*ids));
}

/* Document or query number `seed`; for every form alike, so that none finds a busier daemon. */
static void
write_slot(struct kvasir *client, struct slot *slot, uint64_t tokens, uint64_t seed)
{
    write_text(slot->text, tokens * options.token_bytes, seed);
    write_ids(client, slot, tokens, seed);
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
    double ttft_us, outside_us, daemon_ttft_us, between_us;
    uint64_t start_us, first_us;
    struct kvasir_trace trace;
    uint32_t reused, built;
};

static struct kvasir_document
name_document(struct kvasir *client, struct slot *slot, enum form form)
{
    struct kvasir_document by_ids = {.token_ids = slot->ids, .token_count = slot->count};

    switch (form) {
    case AS_TEXT: return (struct kvasir_document){.text = slot->text};
    case AS_KEY:
        if (kvasir_register(client, &by_ids, false, NULL, 0, slot->key, NULL) != KVASIR_OK) {
            fail(kvasir_error(client));
        }
        return (struct kvasir_document){.key = slot->key};
    default: return by_ids;
    }
}

/* Asks with document slot i holding document first[i]. */
static struct timing
ask(struct kvasir *client, enum form form, const uint64_t *first, uint64_t query_seed)
{
    uint64_t first_us = 0;
    struct kvasir_usage usage;
    struct kvasir_request request = {
        .documents = documents,
        .document_count = options.docs,
        .sampling = {.max_tokens = (uint32_t)options.output},
        .ignore_end = true,
        .on_chunk = stamp_first,
        .opaque = &first_us,
    };

    for (uint64_t i = 0; i < options.docs; i++) {
        write_slot(client, &slots[i], options.doc_tokens, first[i]);
        documents[i] = name_document(client, &slots[i], form);
    }
    if (form == AS_TEXT) { /* which nobody has seen */
        write_text(query.text, options.query_tokens * options.token_bytes, query_seed);
        request.query = query.text;
    } else {
        write_slot(client, &query, options.query_tokens, query_seed);
        request.query_ids = query.ids;
        request.query_id_count = query.count;
    }
    uint64_t start_us = clock_now_us();

    if (kvasir_generate(client, &request, &usage) != KVASIR_OK) {
        fail(kvasir_error(client));
    }
    uint64_t end_us = clock_now_us();

    return (struct timing){
        .ttft_us = (double)(first_us - start_us),
        .outside_us = (double)(first_us - start_us - usage.trace.ended_us + usage.trace.begun_us),
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

static int
by_outside(const void *a, const void *b)
{
    const struct timing *x = a, *y = b;

    return x->outside_us < y->outside_us ? -1 : x->outside_us > y->outside_us;
}

/* The median round hop by hop. */
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
    printf(" us; outside the step %.3f ms\n", m->outside_us / 1e3);
}

/* Returns what passed outside the worker's step, in the median. */
static double
report(enum kind kind, enum form form, struct timing *timings)
{
    uint64_t count = options.rounds, last = (count * 99 + 99) / 100 - 1;

    qsort(timings, count, sizeof(timings[0]), by_ttft);
    struct timing m = timings[count / 2];

    printf("%-4s by %-4s %2" PRIu64 " x %-5" PRIu64 " + %-4" PRIu64
           " ttft %9.2f ms (best %.2f, worst %.2f; daemon %.2f)  between tokens %.3f ms  "
           "reused %u built %u\n",
           kind_names[kind], form_names[form], options.docs, options.doc_tokens,
           options.query_tokens, m.ttft_us / 1e3, timings[0].ttft_us / 1e3,
           timings[count - 1].ttft_us / 1e3, m.daemon_ttft_us / 1e3, m.between_us / 1e3, m.reused,
           m.built);
    report_trace(&m);
    double p99_ms = timings[last].ttft_us / 1e3;

    qsort(timings, count, sizeof(timings[0]), by_outside);
    printf("%-4s by %-4s p50 and p99 of %" PRIu64
           ": outside the step %.3f, %.3f ms, first token %.2f, %.2f ms\n",
           kind_names[kind], form_names[form], count, timings[count / 2].outside_us / 1e3,
           timings[last].outside_us / 1e3, m.ttft_us / 1e3, p99_ms);
    return timings[count / 2].outside_us;
}

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
measure(struct kvasir *client, enum kind kind, const enum form *forms, size_t form_count)
{
    static struct timing timings[FORMS][ROUNDS_MAX];
    uint64_t *first = mem_zalloc(options.docs, sizeof(*first)), asked = 0;
    double outside_us[FORMS];

    for (size_t f = 0; kind == HOT && f < form_count; f++) { /* builds the standing documents, and
                                                                makes every form known */
        choose(HOT, 0, first);
        (void)ask(client, forms[f], first, 1 + asked++);
    }
    for (uint64_t r = 0; r < options.rounds; r++) {
        for (size_t k = 0; k < form_count; k++) {
            size_t f = (k + r) % form_count;

            choose(kind, r, first);
            timings[f][r] = ask(client, forms[f], first, 100000 * ((uint64_t)kind + 1) + asked++);
        }
    }
    for (size_t f = 0; f < form_count; f++) {
        outside_us[f] = report(kind, forms[f], timings[f]);
    }
    for (size_t f = 1; f < form_count; f++) {
        printf("%-4s outside the step, %s / %s: %.2f\n", kind_names[kind], form_names[forms[f]],
               form_names[forms[0]], outside_us[f] / outside_us[0]);
    }
    mem_free(first);
}

/* Indices of the names in a list with commas; takes `list` apart.  0: one is not known. */
static size_t
read_names(char *list, const char *const *names, size_t name_count, unsigned *indices)
{
    size_t count = 0;
    char *rest = NULL;

    for (char *word = strtok_r(list, ",", &rest); word != NULL; word = strtok_r(NULL, ",", &rest)) {
        unsigned i = 0;

        while (i < name_count && strcmp(word, names[i]) != 0) {
            i++;
        }
        if (i == name_count || count == name_count) {
            return 0;
        }
        indices[count++] = i;
    }
    return count;
}

static void
slot_init(struct slot *slot, uint64_t tokens)
{
    uint64_t length = tokens * (options.token_bytes == 0 ? 1 : options.token_bytes);

    slot->ids = mem_zalloc(length, sizeof(*slot->ids));
    slot->text = mem_zalloc(length + 1, 1);
    if (slot->ids == NULL || slot->text == NULL) {
        fail("no memory");
    }
}

static void
slot_deinit(struct slot *slot)
{
    mem_free(slot->ids);
    mem_free(slot->text);
}

int
main(int argc, char **argv)
{
    struct conf conf = {option_table, sizeof(option_table) / sizeof(option_table[0]), &options};
    struct kvasir *client;
    unsigned forms[FORMS], kinds[KINDS];
    int operand;

    if (conf_defaults(conf) != ST_OK || conf_parse_args(conf, argc, argv, &operand) != ST_OK) {
        (void)fprintf(stderr, "bench_ttft: %s\n", status_detail());
        return 2;
    }
    size_t form_count = read_names(options.as, form_names, FORMS, forms);
    size_t kind_count = read_names(options.kinds, kind_names, KINDS, kinds);

    if (form_count == 0 || kind_count == 0) {
        (void)fprintf(stderr, "bench_ttft: --as takes ids, key, text, --kinds cold, hot, part\n");
        return 2;
    }
    for (size_t f = 0; f < form_count; f++) {
        if (forms[f] == AS_TEXT && options.token_bytes == 0) {
            (void)fprintf(stderr, "bench_ttft: --as text needs --token-bytes\n");
            return 2;
        }
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
    documents = mem_zalloc(options.docs, sizeof(*documents));
    slots = mem_zalloc(options.docs, sizeof(*slots));
    for (uint64_t i = 0; i < options.docs; i++) {
        slot_init(&slots[i], options.doc_tokens);
    }
    slot_init(&query, options.query_tokens);
    for (size_t k = 0; k < kind_count; k++) {
        measure(client, kinds[k], forms, form_count);
    }
    kvasir_close(&client);
    for (uint64_t i = 0; i < options.docs; i++) {
        slot_deinit(&slots[i]);
    }
    slot_deinit(&query);
    mem_free(slots);
    mem_free(documents);
    conf_deinit(conf);
    return 0;
}
