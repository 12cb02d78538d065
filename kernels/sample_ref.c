/* SPDX-License-Identifier: Apache-2.0 */
/* The candidates come from a heap in falling order of logit (ties: lower id first), popped only as
 * far as top-k, top-p and min-p ask; without any of them the draw walks the vocabulary in id order
 * and nothing is sorted.  Probabilities are summed in float64. */
#include "kernels/sample.h"

#include <math.h>
#include <stdbool.h>

#include "kernels/philox.h"
#include "kernels/rows.h"

/* What one row works on: its adjusted logits and the ids of a heap over them. */
struct row {
    float *logit;   /* [V] */
    uint32_t *heap; /* [V]; [0, n_heap) is the heap, popped ids gather behind it */
    uint32_t n_heap;
    uint32_t V;
};

size_t
sample_workspace_bytes(uint32_t R, uint32_t V)
{
    return (size_t)R * V * (sizeof(float) + sizeof(uint32_t));
}

static enum status
check_params(uint32_t r, const struct sample_params *p, uint32_t V)
{
    if (!(p->temperature >= 0.0f) || isinf(p->temperature)) {
        return ERR(ST_INVALID, "row %u: temperature %g: must be 0 or more", r,
                   (double)p->temperature);
    }
    if (!(p->top_p > 0.0f && p->top_p <= 1.0f)) {
        return ERR(ST_INVALID, "row %u: top_p %g: must be above 0 and at most 1", r,
                   (double)p->top_p);
    }
    if (!(p->min_p >= 0.0f && p->min_p <= 1.0f)) {
        return ERR(ST_INVALID, "row %u: min_p %g: must be 0 to 1", r, (double)p->min_p);
    }
    if (!(p->repetition_penalty > 0.0f) || isinf(p->repetition_penalty)) {
        return ERR(ST_INVALID, "row %u: repetition_penalty %g: must be above 0", r,
                   (double)p->repetition_penalty);
    }
    if (p->n_logprobs > SAMPLE_LOGPROBS_MAX) {
        return ERR(ST_INVALID, "row %u: %u logprobs: at most %d", r, p->n_logprobs,
                   SAMPLE_LOGPROBS_MAX);
    }
    for (uint32_t i = 0; i < p->n_history; i++) {
        if (p->history[i] >= V) {
            return ERR(ST_INVALID, "row %u: history holds id %u, the vocabulary has %u", r,
                       p->history[i], V);
        }
    }
    for (uint32_t i = 0; i < p->n_adjusts; i++) {
        if (p->adjusts[i].id >= V || !(p->adjusts[i].delta < INFINITY)) {
            return ERR(ST_INVALID, "row %u: adjusts id %u by %g, the vocabulary has %u", r,
                       p->adjusts[i].id, (double)p->adjusts[i].delta, V);
        }
    }
    return ST_OK;
}

/* What is added, and who may not come. */
static void
adjust_logits(const struct sample_params *p, struct row *row)
{
    for (uint32_t i = 0; i < p->n_adjusts; i++) {
        row->logit[p->adjusts[i].id] += p->adjusts[i].delta;
    }
    for (uint32_t v = 0; p->allowed != NULL && v < row->V; v++) {
        if ((p->allowed[v / 32] >> (v % 32) & 1) == 0) {
            row->logit[v] = -INFINITY;
        }
    }
}

/* Copies the logits and applies the repetition penalty; each id once, because it starts from
 * `logits`. */
static enum status
load_logits(uint32_t r, const float *logits, const struct sample_params *p, struct row *row)
{
    for (uint32_t v = 0; v < row->V; v++) {
        if (isnan(logits[v]) || logits[v] == INFINITY) {
            return ERR(ST_INVALID, "row %u: the logit of id %u is %g", r, v, (double)logits[v]);
        }
        row->logit[v] = logits[v];
    }
    for (uint32_t i = 0; i < p->n_history; i++) {
        uint32_t id = p->history[i];
        float x = logits[id];

        row->logit[id] = x > 0.0f ? x / p->repetition_penalty : x * p->repetition_penalty;
        if (row->logit[id] == INFINITY) {
            return ERR(ST_INVALID,
                       "row %u: repetition_penalty %g makes the logit of id %u infinite", r,
                       (double)p->repetition_penalty, id);
        }
    }
    return ST_OK;
}

static bool
ranks_before(const struct row *row, uint32_t a, uint32_t b)
{
    return row->logit[a] > row->logit[b] || (row->logit[a] == row->logit[b] && a < b);
}

static void
sift_down(struct row *row, uint32_t i)
{
    for (;;) {
        uint32_t best = i, left = 2 * i + 1, right = left + 1;

        if (left < row->n_heap && ranks_before(row, row->heap[left], row->heap[best])) {
            best = left;
        }
        if (right < row->n_heap && ranks_before(row, row->heap[right], row->heap[best])) {
            best = right;
        }
        if (best == i) {
            return;
        }
        uint32_t id = row->heap[i];

        row->heap[i] = row->heap[best];
        row->heap[best] = id;
        i = best;
    }
}

static void
heap_make(struct row *row)
{
    row->n_heap = row->V;
    for (uint32_t v = 0; v < row->V; v++) {
        row->heap[v] = v;
    }
    for (uint32_t i = row->V / 2; i-- > 0;) {
        sift_down(row, i);
    }
}

/* The n-th pop lands at heap[V - n]; the heap must not be empty. */
static uint32_t
heap_pop(struct row *row)
{
    uint32_t id = row->heap[0];

    row->n_heap--;
    row->heap[0] = row->heap[row->n_heap];
    row->heap[row->n_heap] = id;
    sift_down(row, 0);
    return id;
}

static uint32_t
popped(const struct row *row, uint32_t n)
{
    return row->heap[row->V - 1 - n];
}

static uint32_t
argmax(const struct row *row)
{
    uint32_t best = 0;

    for (uint32_t v = 1; v < row->V; v++) {
        if (row->logit[v] > row->logit[best]) {
            best = v;
        }
    }
    return best;
}

/* Weight of an id at this temperature, 1 for the best one. */
static double
weight(const struct row *row, uint32_t id, uint32_t best, float temperature)
{
    return exp(((double)row->logit[id] - row->logit[best]) / temperature);
}

static double
weight_all(const struct row *row, uint32_t best, float temperature)
{
    double sum = 0.0;

    for (uint32_t v = 0; v < row->V; v++) {
        sum += weight(row, v, best, temperature);
    }
    return sum;
}

/* The inverse of the distribution over the whole vocabulary, in id order. */
static uint32_t
draw_any(const struct row *row, uint32_t best, const struct sample_params *p, double u)
{
    double left = u * weight_all(row, best, p->temperature);
    uint32_t last = best;

    for (uint32_t v = 0; v < row->V; v++) {
        double w = weight(row, v, best, p->temperature);

        if (w > 0.0) {
            last = v;
            if (left < w) {
                return v;
            }
            left -= w;
        }
    }
    return last; /* rounding ate the tail */
}

/* Draws among the candidates that top_k, top_p and min_p leave; the best one always stays. */
static uint32_t
draw_filtered(struct row *row, uint32_t best, const struct sample_params *p, double u)
{
    uint32_t kept = 0, limit = row->V;
    double mass = 0.0, total;

    heap_make(row);
    if (p->top_k > 0 && p->top_k < row->V) {
        limit = p->top_k;
        total = 0.0;
        for (uint32_t i = 0; i < limit; i++) {
            total += weight(row, heap_pop(row), best, p->temperature);
        }
    } else {
        total = weight_all(row, best, p->temperature);
    }
    while (kept < limit) {
        uint32_t id = row->V - row->n_heap > kept ? popped(row, kept) : heap_pop(row);
        double w = weight(row, id, best, p->temperature);

        if (kept > 0 && (w < p->min_p || w == 0.0)) {
            break;
        }
        mass += w;
        kept++;
        if (p->top_p < 1.0f && mass >= p->top_p * total) {
            break;
        }
    }
    double left = u * mass;

    for (uint32_t i = 0; i < kept; i++) {
        left -= weight(row, popped(row, i), best, p->temperature);
        if (left < 0.0) {
            return popped(row, i);
        }
    }
    return popped(row, kept - 1); /* rounding ate the tail */
}

/* Keeps result->top_* sorted while the vocabulary passes by. */
static void
find_top(const struct row *row, uint32_t n, double log_sum, struct sample_result *result)
{
    result->n_top = 0;
    for (uint32_t v = 0; n > 0 && v < row->V; v++) {
        uint32_t at = result->n_top;

        if (at == n && !ranks_before(row, v, result->top_ids[n - 1])) {
            continue;
        }
        at = at < n ? at : n - 1;
        result->n_top = at + 1;
        for (; at > 0 && ranks_before(row, v, result->top_ids[at - 1]); at--) {
            result->top_ids[at] = result->top_ids[at - 1];
        }
        result->top_ids[at] = v;
    }
    for (uint32_t i = 0; i < result->n_top; i++) {
        result->top_logprobs[i] = (float)(row->logit[result->top_ids[i]] - log_sum);
    }
}

static enum status
sample_row(uint32_t r, const float *logits, const struct sample_params *p, struct row *row,
           struct sample_result *result)
{
    TRY(check_params(r, p, row->V));
    TRY(load_logits(r, logits, p, row));
    adjust_logits(p, row);
    uint32_t best = argmax(row);

    if (row->logit[best] == -INFINITY) {
        return ERR(ST_INVALID, "row %u: every logit is -inf, or no id is allowed", r);
    }
    double log_sum = row->logit[best] + log(weight_all(row, best, 1.0f));

    result->id = best;
    if (p->temperature > 0.0f) {
        double u = philox_uniform(p->seed, p->counter);
        bool is_filtered = p->top_k > 0 || p->top_p < 1.0f || p->min_p > 0.0f;

        result->id = is_filtered ? draw_filtered(row, best, p, u) : draw_any(row, best, p, u);
    }
    result->logprob = (float)(row->logit[result->id] - log_sum);
    find_top(row, p->n_logprobs, log_sum, result);
    return ST_OK;
}

enum status
sample_rows(const struct sample_args *args, uint32_t first, uint32_t end)
{
    if (args->V == 0) {
        return ERR(ST_INVALID, "a vocabulary of 0 ids");
    }
    for (uint32_t r = first; r < end; r++) {
        float *space = args->workspace + (size_t)r * args->V * 2;
        struct row row = {
            .logit = space,
            .heap = (uint32_t *)(void *)(space + args->V),
            .V = args->V,
        };

        TRY(sample_row(r, args->logits + (size_t)r * args->V, &args->params[r], &row,
                       &args->results[r]));
    }
    return ST_OK;
}

enum status
sample_ref(struct sample_args args)
{
    return sample_rows(&args, 0, args.R);
}
