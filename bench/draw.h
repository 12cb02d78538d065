/* SPDX-License-Identifier: Apache-2.0 */
/* draw - the random numbers of a workload: a seed gives the same ones on every machine.
 *
 * Pure.  A stream is (seed, name): what one part of a workload draws does not move what another
 * draws, so that 200 requests begin with the same 100 that 100 requests were. */
#ifndef BENCH_DRAW_H
#define BENCH_DRAW_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

struct draw {
    uint64_t state;
};

struct draw draw_new(uint64_t seed, uint64_t stream);

uint64_t draw_u64(struct draw *draw);
double draw_uniform(struct draw *draw); /* in (0, 1) */
uint32_t draw_below(struct draw *draw, uint32_t count);
double draw_normal(struct draw *draw);
/* Mean 1; shape 1 is the exponential distribution: the gaps of Poisson arrivals. */
double draw_gamma(struct draw *draw, double shape);

/* items[0 .. count) in random order. */
void draw_shuffle(struct draw *draw, uint32_t *items, size_t count);

/* Truncated Zipf over `count` items: the item of rank r = 1, 2, ... has weight r^-alpha.  Which
 * item has which rank is one random permutation. */
struct zipf {
    uint32_t count;
    double total;
    double *weights;   /* [count], by rank */
    uint32_t *item_of; /* [count] rank - 1 -> item */
};

enum status zipf_init(struct zipf *zipf, uint32_t count, double alpha, struct draw *draw);
void zipf_deinit(struct zipf *zipf);

/* `n` draws, independent of each other: an item may come twice. */
void zipf_draw(const struct zipf *zipf, struct draw *draw, uint32_t n, uint32_t *items_out);

/* `n` <= count distinct items: each draw is among those not drawn yet, by their weights. */
void zipf_draw_distinct(const struct zipf *zipf, struct draw *draw, uint32_t n,
                        uint32_t *items_out);

/* Lengths in tokens: "2048", "50-300" (uniform), "lognormal:MEDIAN,SIGMA,MAX". */
struct lengths {
    enum lengths_kind {
        LENGTHS_UNIFORM,
        LENGTHS_LOGNORMAL,
    } kind;
    uint32_t low, high; /* uniform; lognormal: 1 and the largest */
    double median, sigma;
};

/* ST_INVALID says what the text is not. */
enum status lengths_parse(const char *text, struct lengths *lengths_out);
uint32_t lengths_draw(const struct lengths *lengths, struct draw *draw);

#endif
