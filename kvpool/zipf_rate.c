/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/zipf_rate.h"

#include <math.h>
#include <string.h>

#define GAP_KEPT   0.75f  /* of the filter's memory at a reference: it spans 1 / (1 - 0.75) */
#define GAP_BEFORE 100.0f /* requests of exposure assumed before the first sighting */
#define SEEN_MIN   1e-6f
#define RATE_MIN   1e-12f
#define SLOW_MIN   1e-9f

/* log2 of the first knot of each axis.  SEEN begins at 0.6 / sqrt(2), so that its knots lie between
 * the whole numbers of sightings; AGE at half a request. */
static const float first_knot[ZIPF_AXES] = {-1.237f, -4.56f, -6.14f, -1.5f, -4.56f};

/* The mantissa's log2 by the polynomial of degree 4 through the Chebyshev nodes of [1, 2). */
float
zipf_log2(float x)
{
    int32_t bits;
    int exponent;

    memcpy(&bits, &x, sizeof(bits));
    exponent = (bits >> 23) - 127;
    bits = (bits & 0x7fffff) | 0x3f800000;
    memcpy(&x, &bits, sizeof(x));
    return (float)exponent
           + (-2.49835f + x * (4.02921f + x * (-2.07834f + x * (0.626032f - x * 0.0784407f))));
}

/* The same for 2^fraction on [0, 1); the whole part goes into the exponent. */
float
zipf_exp2(float x)
{
    float f, power;
    int32_t whole, bits;

    if (x < -120.0f) {
        return 0.0f;
    }
    whole = (int32_t)x - (x < (float)(int32_t)x); /* floorf is a call without SSE4.1 */
    f = x - (float)whole;
    bits = (whole + 127) << 23;
    memcpy(&power, &bits, sizeof(power));
    return power
           * (1.000003f + f * (0.692973f + f * (0.241604f + f * (0.051745f + f * 0.0136703f))));
}

static float
per_exposure(double half_life, uint64_t now)
{
    double tau = half_life / M_LN2;
    double exposure = tau * (1 - exp(-((double)now + 1) / tau));

    return (float)(1 / (exposure < 1 ? 1 : exposure));
}

void
zipf_clock_set(struct zipf_clock *clock, uint64_t now)
{
    clock->now = now;
    clock->per_exposure[ZIPF_FAST] = per_exposure(ZIPF_HALF_FAST, now);
    clock->per_exposure[ZIPF_SLOW] = per_exposure(ZIPF_HALF_SLOW, now);
}

static float
requests_since(const struct zipf_clock *clock, const struct zipf_record *record)
{
    return (float)((uint32_t)clock->now - record->last);
}

static float
coordinate(enum zipf_axis axis, float value)
{
    float octaves = zipf_log2(value) - first_knot[axis];

    if (octaves < 0) {
        return 0;
    }
    return octaves > ZIPF_KNOTS - 1.001f ? ZIPF_KNOTS - 1.001f : octaves;
}

static float
mixture(const struct zipf_clock *clock, float fast, float slow, float gap)
{
    return clock->weight[ZIPF_FAST] * fast + clock->weight[ZIPF_SLOW] * slow
           + clock->weight[ZIPF_GAP] * gap + RATE_MIN;
}

void
zipf_estimate(const struct zipf_clock *clock, const struct zipf_record *record,
              struct zipf_estimate *estimate_out)
{
    float silent = requests_since(clock, record);
    float seen = record->count_slow * zipf_exp2(-silent / (float)ZIPF_HALF_SLOW);
    float fast = record->count_fast * zipf_exp2(-silent / (float)ZIPF_HALF_FAST)
                 * clock->per_exposure[ZIPF_FAST];
    float slow = seen * clock->per_exposure[ZIPF_SLOW];
    float gap = record->gap_events / (record->gap_requests + silent + 1);
    float rate = mixture(clock, fast, slow, gap);
    /* Of the mixture right after the last reference, when none of it had decayed. */
    float rate_then = mixture(clock, record->count_fast * clock->per_exposure[ZIPF_FAST],
                              record->count_slow * clock->per_exposure[ZIPF_SLOW],
                              record->gap_events / (record->gap_requests + 1));

    estimate_out->rate = rate;
    estimate_out->expert[ZIPF_FAST] = fast;
    estimate_out->expert[ZIPF_SLOW] = slow;
    estimate_out->expert[ZIPF_GAP] = gap;
    estimate_out->at[ZIPF_SEEN] = coordinate(ZIPF_SEEN, seen + SEEN_MIN);
    estimate_out->at[ZIPF_BURST] = coordinate(ZIPF_BURST, fast / (slow + SLOW_MIN) + SEEN_MIN);
    estimate_out->at[ZIPF_SILENCE] = coordinate(ZIPF_SILENCE, (silent + 0.5f) * rate_then);
    estimate_out->at[ZIPF_AGE] = coordinate(ZIPF_AGE, silent + 0.5f);
    estimate_out->at[ZIPF_PACE] = coordinate(ZIPF_PACE, gap / rate + SEEN_MIN);
}

void
zipf_count(const struct zipf_clock *clock, struct zipf_record *record)
{
    float silent = requests_since(clock, record);

    if (record->count_slow == 0) {
        record->count_fast = record->count_slow = 1;
        record->gap_events = 1;
        record->gap_requests = GAP_BEFORE;
    } else {
        record->count_fast = record->count_fast * zipf_exp2(-silent / (float)ZIPF_HALF_FAST) + 1;
        record->count_slow = record->count_slow * zipf_exp2(-silent / (float)ZIPF_HALF_SLOW) + 1;
        record->gap_events = GAP_KEPT * record->gap_events + 1;
        record->gap_requests = GAP_KEPT * record->gap_requests + silent;
    }
    record->last = (uint32_t)clock->now;
}

double
zipf_prior(double alpha, double seen)
{
    double kept = (seen - 1 / alpha) / seen;

    return kept < ZIPF_PRIOR_MIN ? ZIPF_PRIOR_MIN : kept;
}

double
zipf_knot(enum zipf_axis axis, int knot)
{
    return exp2((double)first_knot[axis] + knot);
}
