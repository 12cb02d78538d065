/* SPDX-License-Identifier: Apache-2.0 */
/* zipf_calibration - the policy checks its own predictions and corrects them.
 *
 * A few documents a request become samples: what was predicted for them is written down, and after
 * a horizon (about as long as a document stays in the pool) or at the next reference it is compared
 * with what came.  Every factor of every knot is moved towards observed / predicted hits, every
 * expert's weight by its share of the hits (EM for additive intensities).  So bursts, death and
 * loops are learned, not coded; and that makes the policy safe on traffic that is not Zipf.
 *
 * Hits are counted per request of exposure until the next reference or the horizon: after a hit the
 * document is decided anew.  Private to the policy. */
#ifndef KVPOOL_ZIPF_CALIBRATION_H
#define KVPOOL_ZIPF_CALIBRATION_H

#include "kvpool/zipf_rate.h"

#define ZIPF_SAMPLES_MAX 8192 /* outstanding; 400 KiB */

struct zipf_sample {
    uint32_t slot;  /* 0: resolved */
    uint32_t taken; /* request */
    struct zipf_estimate predicted;
};

/* What is learned; plain data, saved as it is. */
struct zipf_lesson {
    double weight[ZIPF_EXPERTS];
    double weight_hits[ZIPF_EXPERTS];     /* credited to the expert */
    double weight_expected[ZIPF_EXPERTS]; /* by the expert's share of the prediction */
    double factor[ZIPF_AXES][ZIPF_KNOTS];
    double hits[ZIPF_AXES][ZIPF_KNOTS];
    double expected[ZIPF_AXES][ZIPF_KNOTS];
};

struct zipf_calibration {
    struct zipf_lesson lesson;
    float log_factor[ZIPF_AXES][ZIPF_KNOTS]; /* log2 of the lesson's */
    double prior[ZIPF_AXES][ZIPF_KNOTS];
    struct zipf_sample *samples; /* [ZIPF_SAMPLES_MAX], a ring */
    uint32_t first, count;
    uint32_t resolved; /* since the last fit */
    double horizon;    /* requests */
};

enum status zipf_calibration_init(struct zipf_calibration *calibration);
void zipf_calibration_deinit(struct zipf_calibration *calibration);

/* log2 of the correction of an estimate. */
static inline float
zipf_correction(const struct zipf_calibration *calibration, const float at[ZIPF_AXES])
{
    float sum = 0;

    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        int knot = (int)at[axis];
        const float *f = &calibration->log_factor[axis][knot];

        sum += f[0] + (at[axis] - (float)knot) * (f[1] - f[0]);
    }
    return sum;
}

/* Takes a sample of a referenced record, if it has none outstanding and there is room. */
void zipf_sample_take(struct zipf_calibration *calibration, const struct zipf_clock *clock,
                      struct zipf_memory *memory, uint32_t slot);

/* The record is referenced now: a hit for its sample, if it has one. */
void zipf_sample_hit(struct zipf_calibration *calibration, const struct zipf_clock *clock,
                     struct zipf_record *record);

/* The record is about to be forgotten: so is its sample. */
void zipf_sample_drop(struct zipf_calibration *calibration, struct zipf_record *record);

/* Once a request: samples as old as the horizon were no hits.  Fits when enough were resolved, and
 * then brings the clock's weights up to date. */
void zipf_calibrate(struct zipf_calibration *calibration, struct zipf_clock *clock,
                    struct zipf_memory *memory, double horizon);

/* After the lesson was replaced. */
void zipf_lesson_apply(struct zipf_calibration *calibration, struct zipf_clock *clock);

#endif
