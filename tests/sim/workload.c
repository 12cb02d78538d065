/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/sim/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/workload_state.h"

#define DRAWS_MAX 2000000 /* without a new document: the corpus is too small for the request */

void *
maker_alloc(size_t count, size_t size)
{
    void *storage = calloc(count == 0 ? 1 : count, size);

    if (storage == NULL) {
        (void)fprintf(stderr, "workload: no memory\n");
        abort();
    }
    return storage;
}

/* --- dice ------------------------------------------------------------------------------------- */

static uint64_t
splitmix(uint64_t *x)
{
    uint64_t z = (*x += UINT64_C(0x9e3779b97f4a7c15));

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t
rotate(uint64_t x, int by)
{
    return (x << by) | (x >> (64 - by));
}

void
dice_seed(struct dice *dice, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        dice->state[i] = splitmix(&seed);
    }
}

static uint64_t
dice_roll(struct dice *dice)
{
    uint64_t *s = dice->state;
    uint64_t result = rotate(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate(s[3], 45);
    return result;
}

double
dice_unit(struct dice *dice)
{
    return (double)(dice_roll(dice) >> 11) * 0x1.0p-53;
}

uint32_t
dice_below(struct dice *dice, uint32_t n)
{
    return (uint32_t)(((dice_roll(dice) >> 32) * (uint64_t)n) >> 32);
}

double
dice_normal(struct dice *dice)
{
    double u = dice_unit(dice) + 1e-300, v = dice_unit(dice);

    return sqrt(-2 * log(u)) * cos(2 * M_PI * v);
}

/* --- Zipf ------------------------------------------------------------------------------------- */

static void
fill_aliases(struct zipf_table *table)
{
    uint32_t n = table->n, small_count = 0, large_count = 0;
    uint32_t *small = maker_alloc(n, sizeof(*small)), *large = maker_alloc(n, sizeof(*large));
    double *left = maker_alloc(n, sizeof(*left));

    for (uint32_t i = 0; i < n; i++) {
        left[i] = table->weight[i] * n;
        if (left[i] < 1) {
            small[small_count++] = i;
        } else {
            large[large_count++] = i;
        }
        table->keep[i] = 1;
        table->alias[i] = i;
    }
    while (small_count > 0 && large_count > 0) {
        uint32_t a = small[--small_count], b = large[large_count - 1];

        table->keep[a] = left[a];
        table->alias[a] = b;
        left[b] -= 1 - left[a];
        if (left[b] < 1) {
            large_count--;
            small[small_count++] = b;
        }
    }
    free(small);
    free(large);
    free(left);
}

struct zipf_table
zipf_table_new(uint32_t n, double alpha)
{
    struct zipf_table table = {
        .n = n,
        .keep = maker_alloc(n, sizeof(double)),
        .alias = maker_alloc(n, sizeof(uint32_t)),
        .weight = maker_alloc(n, sizeof(double)),
    };
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        table.weight[i] = pow(i + 1.0, -alpha);
        sum += table.weight[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        table.weight[i] /= sum;
    }
    fill_aliases(&table);
    return table;
}

void
zipf_table_free(struct zipf_table *table)
{
    free(table->keep);
    free(table->alias);
    free(table->weight);
}

uint32_t
zipf_table_draw(const struct zipf_table *table, struct dice *dice)
{
    uint32_t i = dice_below(dice, table->n);

    return dice_unit(dice) < table->keep[i] ? i : table->alias[i];
}

/* --- requests --------------------------------------------------------------------------------- */

static void *
grow(void *items, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) {
        return items;
    }
    *capacity = *capacity == 0 ? 65536 : 2 * *capacity;
    items = realloc(items, *capacity * size);
    if (items == NULL) {
        (void)fprintf(stderr, "workload: no memory\n");
        abort();
    }
    return items;
}

bool
maker_add(struct maker *m, uint32_t doc)
{
    struct replay_trace *trace = &m->out->trace;
    uint32_t *end = &trace->starts[m->request + 1];

    if (m->stamp[doc] == m->request + 1) {
        return false;
    }
    m->stamp[doc] = m->request + 1;
    trace->docs = grow(trace->docs, &m->out->reference_capacity, *end, sizeof(trace->docs[0]));
    trace->docs[(*end)++] = doc;
    return true;
}

void
maker_end_request(struct maker *m)
{
    struct replay_trace *trace = &m->out->trace;

    m->request++;
    if (m->request < m->spec->requests) {
        trace->starts[m->request + 1] = trace->starts[m->request];
    }
}

uint32_t
maker_count(const struct maker *m)
{
    return m->out->trace.starts[m->request + 1] - m->out->trace.starts[m->request];
}

const uint32_t *
maker_docs(const struct maker *m)
{
    return m->out->trace.docs + m->out->trace.starts[m->request];
}

void
maker_note(struct maker *m, uint32_t doc, double popularity)
{
    struct workload *w = m->out;

    w->events = grow(w->events, &w->event_capacity, w->event_count, sizeof(w->events[0]));
    w->events[w->event_count++] = (struct workload_event){m->request, doc, (float)popularity};
}

void
maker_draw(struct maker *m, uint32_t count)
{
    uint32_t got = 0;

    for (uint32_t draws = 0; got < count && draws <= DRAWS_MAX; draws++) {
        got += maker_add(m, m->by_rank[zipf_table_draw(&m->zipf, &m->dice)]);
    }
}

void
maker_scan(struct maker *m)
{
    for (uint32_t i = 0; i < m->spec->per_request && m->next_scan < m->out->trace.doc_count; i++) {
        (void)maker_add(m, m->next_scan++);
    }
}

void
maker_loop(struct maker *m)
{
    for (uint32_t i = 0; i < m->spec->per_request; i++) {
        (void)maker_add(m, m->first_loop + m->next_loop);
        m->next_loop = (m->next_loop + 1) % m->loop_count;
    }
}

void
maker_shuffle(struct maker *m, uint32_t *items, uint32_t count)
{
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = dice_below(&m->dice, i + 1), item = items[i];

        items[i] = items[j];
        items[j] = item;
    }
}

/* --- the corpus ------------------------------------------------------------------------------- */

static uint32_t
draw_size(struct maker *m)
{
    double tokens;

    switch (m->spec->sizes) {
    case SIZES_FIXED: return 512;
    case SIZES_BIMODAL:
        if (dice_unit(&m->dice) < 0.7) {
            return 200 + dice_below(&m->dice, 113);
        }
        return 1500 + dice_below(&m->dice, 2597);
    default:
        tokens = exp(log(512.0) + 0.8 * dice_normal(&m->dice));
        return (uint32_t)(tokens < 100 ? 100 : tokens > 4096 ? 4096 : tokens);
    }
}

static int
compare_sizes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return (x > y) - (x < y);
}

/* Sizes follow ranks, with noise of a quarter of the corpus. */
static void
correlate_sizes(struct maker *m)
{
    uint32_t n = m->spec->docs, *tokens = m->out->trace.tokens;
    uint32_t *sorted = maker_alloc(n, sizeof(*sorted));

    memcpy(sorted, tokens, n * sizeof(*sorted));
    qsort(sorted, n, sizeof(*sorted), compare_sizes);
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t middle = m->spec->sizes == SIZES_POPULAR_LONG ? n - 1 - rank : rank;
        double at = middle + 0.25 * n * dice_normal(&m->dice);

        at = at < 0 ? 0 : at > n - 1 ? n - 1 : at;
        tokens[m->by_rank[rank]] = sorted[(uint32_t)at];
    }
    free(sorted);
}

static bool
is_kind(const struct maker *m, const char *kind)
{
    return strcmp(m->spec->kind, kind) == 0;
}

static void
plan_documents(struct maker *m)
{
    const struct workload_spec *spec = m->spec;
    double scan = is_kind(m, "scan") ? spec->a : is_kind(m, "mix") ? 0.1 : 0;
    double loop = is_kind(m, "loop") ? spec->b : is_kind(m, "mix") ? 0.05 : 0;

    m->loop_count = (uint32_t)(loop * spec->docs);
    m->first_loop = spec->docs;
    m->first_scan = m->next_scan = spec->docs + m->loop_count;
    m->out->trace.doc_count = m->first_scan;
    if (scan > 0) {
        m->out->trace.doc_count +=
            (uint32_t)(scan * spec->requests * 1.1 + 100) * spec->per_request;
    }
}

static void
make_corpus(struct maker *m)
{
    struct replay_trace *trace = &m->out->trace;
    uint32_t n = m->spec->docs;

    plan_documents(m);
    trace->request_count = m->spec->requests;
    trace->starts = maker_alloc((size_t)m->spec->requests + 1, sizeof(trace->starts[0]));
    trace->tokens = maker_alloc(trace->doc_count, sizeof(trace->tokens[0]));
    m->stamp = maker_alloc(trace->doc_count, sizeof(m->stamp[0]));
    m->by_rank = maker_alloc(n, sizeof(m->by_rank[0]));
    m->out->popularity = maker_alloc(trace->doc_count, sizeof(m->out->popularity[0]));
    for (uint32_t i = 0; i < trace->doc_count; i++) {
        trace->tokens[i] = draw_size(m);
    }
    for (uint32_t i = 0; i < n; i++) {
        m->by_rank[i] = i;
    }
    maker_shuffle(m, m->by_rank, n);
    if (m->spec->sizes == SIZES_POPULAR_LONG || m->spec->sizes == SIZES_POPULAR_SHORT) {
        correlate_sizes(m);
    }
    m->zipf = zipf_table_new(n, m->spec->alpha);
    for (uint32_t i = 0; i < n; i++) {
        m->out->popularity[m->by_rank[i]] = (float)m->zipf.weight[i];
        m->out->corpus_blocks +=
            (trace->tokens[i] + WORKLOAD_BLOCK_TOKENS - 1) / WORKLOAD_BLOCK_TOKENS;
    }
}

void
workload_make(const struct workload_spec *spec, uint64_t seed, struct workload *workload_out)
{
    static const struct {
        const char *kind;
        kind_fn make;
    } kinds[] = {
        {"stat", make_stat},       {"scan", make_scan_or_loop}, {"loop", make_scan_or_loop},
        {"session", make_session}, {"topic", make_topic},       {"news", make_news},
        {"churn", make_churn},     {"shift", make_shift},       {"flash", make_flash},
        {"diurnal", make_diurnal}, {"mix", make_mix},
    };
    struct maker m = {.spec = spec, .out = workload_out};
    size_t i = 0;

    *workload_out = (struct workload){.event_count = 0};
    dice_seed(&m.dice, seed * 7919 + 17);
    make_corpus(&m);
    while (!is_kind(&m, kinds[i].kind)) {
        i++;
    }
    kinds[i].make(&m);
    zipf_table_free(&m.zipf);
    free(m.by_rank);
    free(m.stamp);
}

void
workload_deinit(struct workload *workload)
{
    free(workload->trace.starts);
    free(workload->trace.docs);
    free(workload->trace.tokens);
    free(workload->popularity);
    free(workload->events);
}
