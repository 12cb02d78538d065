/* SPDX-License-Identifier: Apache-2.0 */
/* workload_state - what the kinds of traffic (workload_kinds.c, workload_moving.c) share. */
#ifndef TESTS_SIM_WORKLOAD_STATE_H
#define TESTS_SIM_WORKLOAD_STATE_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/sim/workload.h"

/* xoshiro256**, seeded by splitmix64. */
struct dice {
    uint64_t state[4];
};

void dice_seed(struct dice *dice, uint64_t seed);
double dice_unit(struct dice *dice); /* [0, 1) */
uint32_t dice_below(struct dice *dice, uint32_t n);
double dice_normal(struct dice *dice);

/* Draws ranks 0..n-1 with probability ~ (rank + 1)^-alpha in constant time (Walker's aliases). */
struct zipf_table {
    uint32_t n;
    double *keep;
    uint32_t *alias;
    double *weight; /* sums to 1 */
};

struct zipf_table zipf_table_new(uint32_t n, double alpha);
void zipf_table_free(struct zipf_table *table);
uint32_t zipf_table_draw(const struct zipf_table *table, struct dice *dice);

struct maker {
    const struct workload_spec *spec;
    struct workload *out;
    struct dice dice;
    struct zipf_table zipf;
    uint32_t *by_rank;              /* [docs] document of each rank */
    uint32_t *stamp;                /* [doc_count] request + 1 that has it */
    uint32_t request;               /* in the making */
    uint32_t first_scan, next_scan; /* one-off documents */
    uint32_t first_loop, loop_count, next_loop;
};

/* Memory or abort. */
void *maker_alloc(size_t count, size_t size);

/* Adds a document to the request in the making; false if it has it already. */
bool maker_add(struct maker *m, uint32_t doc);
void maker_end_request(struct maker *m);
/* How many documents the request has so far, and which. */
uint32_t maker_count(const struct maker *m);
const uint32_t *maker_docs(const struct maker *m);
void maker_note(struct maker *m, uint32_t doc, double popularity);

/* Draws documents by popularity until the request has `count` more. */
void maker_draw(struct maker *m, uint32_t count);
void maker_scan(struct maker *m);
void maker_loop(struct maker *m);
void maker_shuffle(struct maker *m, uint32_t *items, uint32_t count);

typedef void (*kind_fn)(struct maker *m);
void make_stat(struct maker *m);
void make_scan_or_loop(struct maker *m);
void make_session(struct maker *m);
void make_topic(struct maker *m);
void make_news(struct maker *m);
void make_churn(struct maker *m);
void make_shift(struct maker *m);
void make_flash(struct maker *m);
void make_diurnal(struct maker *m);
void make_mix(struct maker *m);

#endif
