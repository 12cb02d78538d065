/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of traffic whose popularities stay as they are, or belong to a session; and the news. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/workload_state.h"

void
make_stat(struct maker *m)
{
    while (m->request < m->spec->requests) {
        maker_draw(m, m->spec->per_request);
        maker_end_request(m);
    }
}

void
make_scan_or_loop(struct maker *m)
{
    bool is_scan = strcmp(m->spec->kind, "scan") == 0;
    double share = m->spec->a;

    for (uint32_t i = 0; i < m->loop_count; i++) {
        m->out->popularity[m->first_loop + i] = (float)(share / (1 - share) / m->loop_count);
    }
    while (m->request < m->spec->requests) {
        if (dice_unit(&m->dice) >= share) {
            maker_draw(m, m->spec->per_request);
        } else if (is_scan) {
            maker_scan(m);
        } else {
            maker_loop(m);
        }
        maker_end_request(m);
    }
}

void
make_session(struct maker *m)
{
    uint32_t k = m->spec->per_request, count = (uint32_t)m->spec->a;
    uint32_t *docs = maker_alloc((size_t)count * k, sizeof(*docs));
    uint32_t *held = maker_alloc(count, sizeof(*held));

    while (m->request < m->spec->requests) {
        uint32_t s = dice_below(&m->dice, count), got = 0;

        if (held[s] > 0 && dice_unit(&m->dice) < m->spec->b) {
            for (uint32_t i = 0; i < held[s]; i++) {
                got += dice_unit(&m->dice) < m->spec->c && maker_add(m, docs[s * k + i]);
            }
        }
        maker_draw(m, k - got);
        held[s] = maker_count(m) < k ? maker_count(m) : k;
        memcpy(&docs[s * k], maker_docs(m), held[s] * sizeof(*docs));
        maker_end_request(m);
    }
    free(docs);
    free(held);
}

void
make_topic(struct maker *m)
{
    uint32_t k = m->spec->per_request, n = m->spec->docs;
    uint32_t queries = (uint32_t)m->spec->a, topics = (uint32_t)m->spec->b, size = n / topics;
    struct zipf_table inside = zipf_table_new(size, 0.8);
    struct zipf_table asked = zipf_table_new(queries, m->spec->alpha);
    uint32_t *lists = maker_alloc((size_t)queries * k, sizeof(*lists));
    uint32_t *stamp = maker_alloc(n, sizeof(*stamp));
    double *popularity = maker_alloc(n, sizeof(*popularity));

    for (uint32_t q = 0; q < queries; q++) {
        uint32_t topic = dice_below(&m->dice, topics);

        for (uint32_t got = 0; got < k;) {
            uint32_t doc = m->by_rank[topic * size + zipf_table_draw(&inside, &m->dice)];

            if (stamp[doc] != q + 1) {
                stamp[doc] = q + 1;
                lists[(size_t)q * k + got++] = doc;
                popularity[doc] += asked.weight[q];
            }
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        m->out->popularity[i] = (float)(popularity[i] / k);
    }
    while (m->request < m->spec->requests) {
        uint32_t q = zipf_table_draw(&asked, &m->dice);

        for (uint32_t i = 0; i < k; i++) {
            (void)maker_add(m, lists[(size_t)q * k + i]);
        }
        maker_end_request(m);
    }
    zipf_table_free(&inside);
    zipf_table_free(&asked);
    free(lists);
    free(stamp);
    free(popularity);
}

/* --- news ------------------------------------------------------------------------------------- */

/* A document's weight is exp(log_weight - now / tau): all decay alike, so what is stored never has
 * to be touched, and sums live in a Fenwick tree, scaled by `reference` now and then. */
struct news {
    uint32_t count, alive, top; /* top: largest power of two <= count */
    double tau, reference, total;
    double *log_weight, *born, *sums;
};

static void
news_add(struct news *n, uint32_t doc)
{
    double weight = exp(n->log_weight[doc] - n->reference);

    n->total += weight;
    for (uint32_t i = doc + 1; i <= n->count; i += i & -i) {
        n->sums[i] += weight;
    }
}

static uint32_t
news_draw(const struct news *n, struct dice *dice)
{
    double u = dice_unit(dice) * n->total;
    uint32_t at = 0;

    for (uint32_t step = n->top; step > 0; step /= 2) {
        if (at + step <= n->count && n->sums[at + step] <= u) {
            at += step;
            u -= n->sums[at];
        }
    }
    return at;
}

static void
news_rescale(struct news *n, double reference)
{
    double factor = exp(n->reference - reference);

    for (uint32_t i = 1; i <= n->count; i++) {
        n->sums[i] *= factor;
    }
    n->total *= factor;
    n->reference = reference;
}

static void
news_begin(struct news *n, struct maker *m)
{
    uint32_t at_start = n->count / 4; /* the others are born through the trace */

    for (uint32_t i = 0; i < n->count; i++) {
        double z = -m->spec->alpha * log(dice_unit(&m->dice) + 1e-12);

        n->born[i] = i < at_start
                         ? n->tau * log(dice_unit(&m->dice) + 1e-12)
                         : (double)(i - at_start) * m->spec->requests / (n->count - at_start);
        n->log_weight[i] = z + n->born[i] / n->tau;
        m->out->popularity[i] = 0;
    }
    n->top = 1;
    while (2 * n->top <= n->count) {
        n->top *= 2;
    }
}

static void
news_note(const struct news *n, struct maker *m)
{
    for (uint32_t i = 0; i < n->alive; i++) {
        double popularity = exp(n->log_weight[i] - n->reference) / n->total;

        if (popularity > 1e-7 || m->request - n->born[i] < 300) {
            maker_note(m, i, popularity);
        }
    }
}

void
make_news(struct maker *m)
{
    struct news n = {.count = m->spec->docs, .tau = m->spec->a};

    n.log_weight = maker_alloc(n.count, sizeof(double));
    n.born = maker_alloc(n.count, sizeof(double));
    n.sums = maker_alloc((size_t)n.count + 2, sizeof(double));
    news_begin(&n, m);
    while (m->request < m->spec->requests) {
        double now = m->request / n.tau;

        while (n.alive < n.count && n.born[n.alive] <= m->request) {
            news_add(&n, n.alive++);
        }
        if (now - n.reference > 20) {
            news_rescale(&n, now);
        }
        if (m->request % 250 == 0) {
            news_note(&n, m);
        }
        for (uint32_t tries = 0; maker_count(m) < m->spec->per_request && tries < 200000; tries++) {
            uint32_t doc = news_draw(&n, &m->dice);

            if (doc < n.alive) {
                (void)maker_add(m, doc);
            }
        }
        maker_end_request(m);
    }
    free(n.log_weight);
    free(n.born);
    free(n.sums);
}
