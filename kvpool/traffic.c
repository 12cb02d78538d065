/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/htab.h"
#include "common/mem.h"

#define SMOOTHING 0.002 /* of the averages: a memory of 500 requests */

struct traffic {
    struct traffic_reference *ring; /* [TRAFFIC_REFERENCES] */
    uint64_t written;               /* references since the start */
    uint64_t requests;
    bool is_first; /* the next document is its request's first */
    double in_flight, own_blocks;
};

enum status
traffic_new(struct traffic **traffic_out)
{
    struct traffic *traffic = mem_zalloc(1, sizeof(*traffic));

    if (traffic != NULL) {
        traffic->ring = mem_zalloc(TRAFFIC_REFERENCES, sizeof(traffic->ring[0]));
    }
    if (traffic == NULL || traffic->ring == NULL) {
        traffic_destroy(&traffic);
        return ERR(ST_NO_MEMORY, "memory of the last requests");
    }
    /* It will all be in use after some hours of any traffic: a process that takes it page by page
     * until then looks like one that leaks. */
    memset(traffic->ring, 0, TRAFFIC_REFERENCES * sizeof(traffic->ring[0]));
    *traffic_out = traffic;
    return ST_OK;
}

void
traffic_destroy(struct traffic **traffic)
{
    if (*traffic != NULL) {
        mem_free((*traffic)->ring);
        MEM_FREE(*traffic);
    }
}

void
traffic_request(struct traffic *traffic, uint32_t in_flight, uint32_t own_blocks)
{
    double gain = traffic->requests == 0 ? 1 : SMOOTHING;

    traffic->in_flight += gain * (in_flight - traffic->in_flight);
    traffic->own_blocks += gain * (own_blocks - traffic->own_blocks);
    traffic->is_first = true;
}

void
traffic_document(struct traffic *traffic, const struct kvpool_want *want)
{
    if (want->n_tokens == 0) {
        return;
    }
    traffic->ring[traffic->written++ % TRAFFIC_REFERENCES] = (struct traffic_reference){
        .key = dockey_hash(&want->key),
        .tokens = want->n_tokens,
        .ready = want->tokens_ready & INT32_MAX,
        .is_first = traffic->is_first,
    };
    traffic->requests += traffic->is_first;
    traffic->is_first = false;
}

uint64_t
traffic_requests(const struct traffic *traffic)
{
    return traffic->requests;
}

enum status
traffic_copy(const struct traffic *traffic, struct traffic_window *window_out)
{
    uint32_t count =
        traffic->written < TRAFFIC_REFERENCES ? (uint32_t)traffic->written : TRAFFIC_REFERENCES;
    uint32_t oldest = (uint32_t)(traffic->written - count) % TRAFFIC_REFERENCES;
    uint32_t tail = TRAFFIC_REFERENCES - oldest < count ? TRAFFIC_REFERENCES - oldest : count;
    struct traffic_reference *copy = mem_zalloc(count, sizeof(*copy));

    if (copy == NULL) {
        return ERR(ST_NO_MEMORY, "copy of the last requests");
    }
    memcpy(copy, traffic->ring + oldest, tail * sizeof(*copy));
    memcpy(copy + tail, traffic->ring, (count - tail) * sizeof(*copy));
    *window_out = (struct traffic_window){.references = copy,
                                          .count = count,
                                          .in_flight = traffic->in_flight,
                                          .own_blocks = traffic->own_blocks};
    return ST_OK;
}

void
traffic_window_deinit(struct traffic_window *window)
{
    MEM_FREE(window->references);
}

/* --- numbering -------------------------------------------------------------------------------- */

struct numbered {
    struct htab_node node;
    uint64_t key;
    uint32_t number;
    uint32_t stamp; /* request + 1 that has it */
};

static bool
numbered_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct numbered, node)->key == *(const uint64_t *)key;
}

static enum status
require_number(struct htab *known, struct numbered *storage, const struct traffic_reference *ref,
               struct replay_trace *trace, struct numbered **numbered_out)
{
    struct htab_node *node = htab_find(known, ref->key, &ref->key);

    if (node == NULL) {
        struct numbered *fresh = &storage[trace->doc_count];

        *fresh = (struct numbered){.key = ref->key, .number = trace->doc_count};
        TRY(htab_insert(known, ref->key, &fresh->node));
        trace->tokens[trace->doc_count++] = ref->tokens;
        node = &fresh->node;
    }
    *numbered_out = HTAB_ENTRY(node, struct numbered, node);
    return ST_OK;
}

/* The first reference from which on the window names at most TRAFFIC_DOCUMENTS_MAX documents. */
static enum status
find_start(const struct traffic_window *window, struct htab *known, struct numbered *storage,
           uint32_t *start_out)
{
    uint32_t start = window->count, documents = 0;

    while (start > 0) {
        const struct traffic_reference *ref = &window->references[start - 1];

        if (htab_find(known, ref->key, &ref->key) == NULL) {
            if (documents == TRAFFIC_DOCUMENTS_MAX) {
                break;
            }
            storage[documents] = (struct numbered){.key = ref->key};
            TRY(htab_insert(known, ref->key, &storage[documents++].node));
        }
        start--;
    }
    *start_out = start;
    return ST_OK;
}

static enum status
number_all(const struct traffic_window *window, uint32_t start, struct htab *known,
           struct numbered *storage, struct traffic_trace *out)
{
    struct replay_trace *trace = &out->trace;
    uint32_t count = 0, i = start;

    while (i < window->count && window->references[i].is_first == 0) {
        i++; /* the rest of a request whose beginning is not in the window */
    }
    for (; i < window->count; i++) {
        struct numbered *doc = NULL;

        if (window->references[i].is_first) {
            trace->starts[trace->request_count++] = count;
        }
        TRY(require_number(known, storage, &window->references[i], trace, &doc));
        if (doc->stamp != trace->request_count) {
            doc->stamp = trace->request_count;
            trace->docs[count] = doc->number;
            out->ready[count++] = window->references[i].ready;
        }
    }
    trace->starts[trace->request_count] = count;
    return ST_OK;
}

enum status
traffic_number(const struct traffic_window *window, struct traffic_trace *trace_out)
{
    struct traffic_trace out = {
        .trace.starts = mem_zalloc((size_t)window->count + 1, sizeof(out.trace.starts[0])),
        .trace.docs = mem_zalloc(window->count, sizeof(out.trace.docs[0])),
        .trace.tokens = mem_zalloc(window->count, sizeof(out.trace.tokens[0])),
        .ready = mem_zalloc(window->count, sizeof(out.ready[0])),
    };
    struct numbered *storage = mem_zalloc(TRAFFIC_DOCUMENTS_MAX, sizeof(*storage));
    struct htab seen = {0}, known = {0};
    enum status st = ST_NO_MEMORY;
    uint32_t start;

    if (out.trace.starts != NULL && out.trace.docs != NULL && out.trace.tokens != NULL
        && out.ready != NULL && storage != NULL && htab_init(&seen, numbered_equal) == ST_OK) {
        st = find_start(window, &seen, storage, &start);
    }
    htab_deinit(&seen);
    if (st == ST_OK) {
        st = htab_init(&known, numbered_equal);
    }
    if (st == ST_OK) {
        st = number_all(window, start, &known, storage, &out);
    }
    htab_deinit(&known);
    mem_free(storage);
    if (st != ST_OK) {
        traffic_trace_deinit(&out);
        return ERR(ST_NO_MEMORY, "trace of %u references", window->count);
    }
    *trace_out = out;
    return ST_OK;
}

void
traffic_trace_deinit(struct traffic_trace *trace)
{
    replay_trace_deinit(&trace->trace);
    MEM_FREE(trace->ready);
}

double
traffic_hit_ratio(const struct traffic_trace *trace, uint32_t from, uint32_t to)
{
    uint64_t tokens = 0, ready = 0;

    for (uint32_t i = trace->trace.starts[from]; i < trace->trace.starts[to]; i++) {
        tokens += trace->trace.tokens[trace->trace.docs[i]];
        ready += trace->ready[i];
    }
    return tokens == 0 ? 0 : (double)ready / (double)tokens;
}

/* --- what it says ----------------------------------------------------------------------------- */

#define ALPHA_COUNT_MIN  6    /* references below which a count is mostly chance */
#define ALPHA_SHARE_MAX  0.25 /* of the requests, above which it is cut short */
#define ALPHA_DOCS_MIN   24
#define ALPHA_DOCS_LEAST 200
#define ALPHA_DOCS_MOST  4000
#define ALPHA_SPAN_MIN   0.3 /* of ln count, to see a slope in */

static int
compare_falling(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x < y) - (x > y);
}

/* The exponent for which counts in [low, high], drawn from a Pareto law cut off at both ends, have
 * this mean of ln(count / low).  The mean grows with it, so bisection finds it. */
static double
solve_alpha(double mean, double span)
{
    double low = 0.2, high = 6;

    for (int i = 0; i < 50; i++) {
        double alpha = (low + high) / 2, q = exp(-span / alpha);

        if (alpha - span * q / (1 - q) < mean) {
            low = alpha;
        } else {
            high = alpha;
        }
    }
    return (low + high) / 2;
}

static double
fit_alpha(uint32_t *counts, uint32_t doc_count, uint32_t request_count)
{
    uint32_t most = doc_count / 8, used = 0;
    double mean = 0, span;

    for (uint32_t i = 0; i < doc_count; i++) {
        if (counts[i] >= ALPHA_COUNT_MIN && counts[i] < ALPHA_SHARE_MAX * request_count) {
            counts[used++] = counts[i];
        }
    }
    if (used < ALPHA_DOCS_MIN) {
        return 0;
    }
    qsort(counts, used, sizeof(counts[0]), compare_falling);
    most = most < ALPHA_DOCS_LEAST ? ALPHA_DOCS_LEAST : most;
    most = most > ALPHA_DOCS_MOST ? ALPHA_DOCS_MOST : most;
    used = used < most ? used : most;
    span = log((double)counts[0] / counts[used - 1]);
    if (span < ALPHA_SPAN_MIN) {
        return 0;
    }
    for (uint32_t i = 0; i < used; i++) {
        mean += log((double)counts[i] / counts[used - 1]) / used;
    }
    return solve_alpha(mean, span);
}

double
traffic_alpha(const struct replay_trace *trace)
{
    uint32_t *counts = mem_zalloc(trace->doc_count, sizeof(*counts));
    double alpha;

    if (counts == NULL) {
        return 0;
    }
    for (uint32_t i = 0; i < trace->starts[trace->request_count]; i++) {
        counts[trace->docs[i]]++;
    }
    alpha = fit_alpha(counts, trace->doc_count, trace->request_count);
    mem_free(counts);
    return alpha;
}

static int
level_of(uint32_t requests)
{
    int level = 0;

    while (requests > 0 && level < TRAFFIC_REUSE_LEVELS - 1) {
        requests /= 2;
        level++;
    }
    return level;
}

void
traffic_reuse(const struct replay_trace *trace, uint64_t counts[TRAFFIC_REUSE_LEVELS])
{
    uint32_t *last = mem_zalloc(trace->doc_count, sizeof(*last)); /* request + 1; 0: none */

    memset(counts, 0, TRAFFIC_REUSE_LEVELS * sizeof(counts[0]));
    for (uint32_t r = 0; last != NULL && r < trace->request_count; r++) {
        for (uint32_t i = trace->starts[r]; i < trace->starts[r + 1]; i++) {
            uint32_t *doc = &last[trace->docs[i]];

            if (*doc != 0) {
                counts[level_of(r + 1 - *doc)]++;
            }
            *doc = r + 1;
        }
    }
    mem_free(last);
}
