/* SPDX-License-Identifier: Apache-2.0 */
/* zipf_rate - how often will a document be asked for?  Three experts, and what they know.
 *
 * Each expert estimates references per request from one record:
 *
 *   fast   count with a half-life of 64 requests: bursts, flash crowds, sessions
 *   slow   count with a half-life of 20000 requests: the standing popularity
 *   gap    events / (requests they took), both forgotten by a quarter a reference: the pace of the
 *          last four references, whatever its scale (Gamma filter, conjugate to Poisson)
 *
 * A counter's exposure is right from the cold start on: tau (1 - exp(-(t + 1) / tau)).  No single
 * half-life will do: the best one ranges from 256 requests to infinity over our workloads.
 *
 * The mixture of the three is corrected by factors (zipf_calibration) of five coordinates:
 *
 *   0 SEEN     the slow count: one-hit wonders; see zipf_prior
 *   1 BURST    fast over slow: a flash crowd rises, or is over
 *   2 SILENCE  references missed since the last one: the document died; or a loop comes round
 *   3 AGE      requests since the last reference: sessions
 *   4 PACE     gap over mixture: what the counters do not see yet
 *
 * A coordinate is a number of octaves above the first of 16 knots.  Private to the policy. */
#ifndef KVPOOL_ZIPF_RATE_H
#define KVPOOL_ZIPF_RATE_H

#include "kvpool/zipf_memory.h"

enum zipf_expert {
    ZIPF_FAST,
    ZIPF_SLOW,
    ZIPF_GAP,
    ZIPF_EXPERTS,
};

enum zipf_axis {
    ZIPF_SEEN,
    ZIPF_BURST,
    ZIPF_SILENCE,
    ZIPF_AGE,
    ZIPF_PACE,
    ZIPF_AXES,
};

#define ZIPF_KNOTS 16

#define ZIPF_HALF_FAST 64.0    /* requests */
#define ZIPF_HALF_SLOW 20000.0 /* requests */

/* The time, and what follows from it for all records alike. */
struct zipf_clock {
    uint64_t now;               /* requests */
    float per_exposure[2];      /* of the fast and the slow counter */
    float weight[ZIPF_EXPERTS]; /* of the mixture */
};

void zipf_clock_set(struct zipf_clock *clock, uint64_t now);

struct zipf_estimate {
    float rate; /* the mixture: references per request */
    float expert[ZIPF_EXPERTS];
    float at[ZIPF_AXES]; /* in [0, ZIPF_KNOTS - 1) */
};

/* For a record that has been referenced. */
void zipf_estimate(const struct zipf_clock *clock, const struct zipf_record *record,
                   struct zipf_estimate *estimate_out);

/* A reference now: counters decay and count, the filter forgets and learns. */
void zipf_count(const struct zipf_clock *clock, struct zipf_record *record);

/* The Zipf posterior.  Popularities of a Zipf(alpha) corpus have density ~ l^(-1 - 1/alpha); seen n
 * times in exposure T the posterior is Gamma(n - 1/alpha, T) with mean (n - 1/alpha) / T: an
 * absolute discount of 1/alpha, as Kneser and Ney take from rare words.  Returns that over n / T,
 * at least ZIPF_PRIOR_MIN: a document seen once is worth a sixteenth of what it seems to be, so
 * one-hit wonders leave first.  That is our admission control: what is missing has to be brought
 * in anyway, but it can be the first to go. */
double zipf_prior(double alpha, double seen);

#define ZIPF_PRIOR_MIN 0.06

/* The value at a knot of an axis, 2^(first + knot). */
double zipf_knot(enum zipf_axis axis, int knot);

/* log2 to 2e-4 and 2^x to 1e-5 of itself: an order faster than libm's, and the same bits
 * everywhere.  log2 of what is positive and normal; 2^x is 0 below -120. */
float zipf_log2(float x);
float zipf_exp2(float x);

#endif
