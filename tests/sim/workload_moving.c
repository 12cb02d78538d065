/* SPDX-License-Identifier: Apache-2.0 */
/* Kinds of traffic whose popularities move. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/workload_state.h"

#define DRAWS_MAX  2000000
#define CROWD_DOCS 5
#define CROWDS_MAX 64

/* Rank i and a random one change places. */
static void
swap_ranks(struct maker *m)
{
    uint32_t n = m->spec->docs, j, doc;
    int drawn = (int)exp(dice_unit(&m->dice) * log((double)n)) - 1;
    uint32_t i = drawn < 0 ? 0 : (uint32_t)drawn;

    i = i >= n ? n - 1 : i;
    j = dice_below(&m->dice, n);
    doc = m->by_rank[i];
    m->by_rank[i] = m->by_rank[j];
    m->by_rank[j] = doc;
    maker_note(m, m->by_rank[i], m->zipf.weight[i]);
    maker_note(m, m->by_rank[j], m->zipf.weight[j]);
}

static void
churn(struct maker *m, double swaps, double *due)
{
    for (*due += swaps; *due >= 1; *due -= 1) {
        swap_ranks(m);
    }
}

void
make_churn(struct maker *m)
{
    double due = 0;

    while (m->request < m->spec->requests) {
        churn(m, m->spec->a, &due);
        maker_draw(m, m->spec->per_request);
        maker_end_request(m);
    }
}

static void
permute_some(struct maker *m, uint32_t *ranks)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < m->spec->docs; i++) {
        if (dice_unit(&m->dice) < m->spec->b) {
            ranks[count++] = i;
        }
    }
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = dice_below(&m->dice, i + 1), doc = m->by_rank[ranks[i]];

        m->by_rank[ranks[i]] = m->by_rank[ranks[j]];
        m->by_rank[ranks[j]] = doc;
    }
    for (uint32_t i = 0; i < count; i++) {
        maker_note(m, m->by_rank[ranks[i]], m->zipf.weight[ranks[i]]);
    }
}

void
make_shift(struct maker *m)
{
    uint32_t *ranks = maker_alloc(m->spec->docs, sizeof(*ranks));

    while (m->request < m->spec->requests) {
        if (m->request > 0 && m->request % (uint32_t)m->spec->a == 0) {
            permute_some(m, ranks);
        }
        maker_draw(m, m->spec->per_request);
        maker_end_request(m);
    }
    free(ranks);
}

/* --- crowds ----------------------------------------------------------------------------------- */

struct crowd {
    uint32_t docs[CROWD_DOCS];
    uint32_t start;
    double peak, decay;
};

struct crowds {
    struct crowd list[CROWDS_MAX];
    uint32_t count;
};

static double
crowd_share(const struct crowd *crowd, uint32_t now)
{
    return crowd->peak * exp(-(double)(now - crowd->start) / crowd->decay);
}

/* Draws until the request is full, from the crowds first. */
static void
draw_with_crowds(struct maker *m, const struct crowds *crowds, uint32_t count)
{
    uint32_t got = 0;

    for (uint32_t tries = 0; got < count && tries < DRAWS_MAX; tries++) {
        double v = dice_unit(&m->dice);
        uint32_t doc = UINT32_MAX;

        for (uint32_t f = 0; f < crowds->count && doc == UINT32_MAX; f++) {
            double share = crowd_share(&crowds->list[f], m->request);

            if (v < share) {
                doc = crowds->list[f].docs[dice_below(&m->dice, CROWD_DOCS)];
            }
            v -= share;
        }
        if (doc == UINT32_MAX) {
            doc = m->by_rank[zipf_table_draw(&m->zipf, &m->dice)];
        }
        got += maker_add(m, doc);
    }
}

static void
end_crowds(struct maker *m, struct crowds *crowds, bool is_noted)
{
    for (uint32_t f = 0; f < crowds->count;) {
        const struct crowd *crowd = &crowds->list[f];

        if ((double)(m->request - crowd->start) <= 4 * crowd->decay) {
            f++;
            continue;
        }
        for (uint32_t i = 0; is_noted && i < CROWD_DOCS; i++) {
            maker_note(m, crowd->docs[i], (double)m->out->popularity[crowd->docs[i]]);
        }
        crowds->list[f] = crowds->list[--crowds->count];
    }
}

void
make_flash(struct maker *m)
{
    struct crowds crowds = {.count = 0};
    uint32_t n = m->spec->docs;

    while (m->request < m->spec->requests) {
        if (dice_unit(&m->dice) < 1 / m->spec->a && crowds.count < CROWDS_MAX) {
            struct crowd *crowd = &crowds.list[crowds.count++];

            for (uint32_t i = 0; i < CROWD_DOCS; i++) {
                crowd->docs[i] = m->by_rank[n / 10 + dice_below(&m->dice, n - n / 10)];
            }
            crowd->start = m->request;
            crowd->peak = m->spec->b;
            crowd->decay = m->spec->c;
        }
        end_crowds(m, &crowds, true);
        for (uint32_t f = 0; m->request % 20 == 0 && f < crowds.count; f++) {
            for (uint32_t i = 0; i < CROWD_DOCS; i++) {
                maker_note(m, crowds.list[f].docs[i],
                           crowd_share(&crowds.list[f], m->request) / CROWD_DOCS);
            }
        }
        draw_with_crowds(m, &crowds, m->spec->per_request);
        maker_end_request(m);
    }
}

/* --- day and night ---------------------------------------------------------------------------- */

/* Another order, of which a fifth is the same. */
static uint32_t *
other_order(struct maker *m)
{
    uint32_t n = m->spec->docs, count = 0;
    uint32_t *order = maker_alloc(n, sizeof(*order)), *moved = maker_alloc(n, sizeof(*moved));

    memcpy(order, m->by_rank, n * sizeof(*order));
    for (uint32_t i = 0; i < n; i++) {
        if (dice_unit(&m->dice) < 0.8) {
            moved[count++] = i;
        }
    }
    for (uint32_t i = count; i-- > 1;) {
        uint32_t j = dice_below(&m->dice, i + 1), doc = order[moved[i]];

        order[moved[i]] = order[moved[j]];
        order[moved[j]] = doc;
    }
    free(moved);
    return order;
}

static uint32_t *
ranks_of(const uint32_t *by_rank, uint32_t n)
{
    uint32_t *ranks = maker_alloc(n, sizeof(*ranks));

    for (uint32_t i = 0; i < n; i++) {
        ranks[by_rank[i]] = i;
    }
    return ranks;
}

void
make_diurnal(struct maker *m)
{
    uint32_t n = m->spec->docs, *night = other_order(m);
    uint32_t *day_rank = ranks_of(m->by_rank, n), *night_rank = ranks_of(night, n);

    while (m->request < m->spec->requests) {
        double day = 0.5 + 0.45 * sin(2 * M_PI * m->request / m->spec->a);

        for (uint32_t doc = 0; m->request % 500 == 0 && doc < n; doc++) {
            if (day_rank[doc] < n / 8 || night_rank[doc] < n / 8) {
                maker_note(m, doc,
                           day * m->zipf.weight[day_rank[doc]]
                               + (1 - day) * m->zipf.weight[night_rank[doc]]);
            }
        }
        while (maker_count(m) < m->spec->per_request) {
            uint32_t rank = zipf_table_draw(&m->zipf, &m->dice);

            (void)maker_add(m, dice_unit(&m->dice) < day ? m->by_rank[rank] : night[rank]);
        }
        maker_end_request(m);
    }
    free(night);
    free(day_rank);
    free(night_rank);
}

/* --- all at once ------------------------------------------------------------------------------ */

#define MIX_SESSIONS 16

/* A turn of a session among crowds; half of what it had is asked for again. */
static void
mix_turn(struct maker *m, const struct crowds *crowds, uint32_t *docs, uint32_t *held)
{
    uint32_t k = m->spec->per_request, s = dice_below(&m->dice, MIX_SESSIONS), got = 0;

    if (held[s] > 0 && dice_unit(&m->dice) < 0.5) {
        for (uint32_t i = 0; i < held[s]; i++) {
            got += dice_unit(&m->dice) < 0.5 && maker_add(m, docs[s * k + i]);
        }
    }
    draw_with_crowds(m, crowds, k - got);
    held[s] = maker_count(m) < k ? maker_count(m) : k;
    memcpy(&docs[s * k], maker_docs(m), held[s] * sizeof(*docs));
}

void
make_mix(struct maker *m)
{
    uint32_t *docs = maker_alloc((size_t)MIX_SESSIONS * m->spec->per_request, sizeof(*docs));
    uint32_t held[MIX_SESSIONS] = {0};
    struct crowds crowds = {.count = 0};
    double due = 0;

    while (m->request < m->spec->requests) {
        double u;

        churn(m, 0.2, &due);
        if (dice_unit(&m->dice) < 1.0 / 1500 && crowds.count < 8) {
            struct crowd *crowd = &crowds.list[crowds.count++];

            for (uint32_t i = 0; i < CROWD_DOCS; i++) {
                crowd->docs[i] = dice_below(&m->dice, m->spec->docs);
            }
            crowd->start = m->request;
            crowd->peak = 0.10;
            crowd->decay = 400;
        }
        end_crowds(m, &crowds, false);
        u = dice_unit(&m->dice);
        if (u < 0.1) {
            maker_scan(m);
        } else if (u < 0.2) {
            maker_loop(m);
        } else {
            mix_turn(m, &crowds, docs, held);
        }
        maker_end_request(m);
    }
    free(docs);
}
