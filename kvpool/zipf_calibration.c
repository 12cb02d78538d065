/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/zipf_calibration.h"

#include <math.h>
#include <string.h>

#include "common/mem.h"

#define ALPHA_ASSUMED   1.0    /* before there is data */
#define RESOLVED_MIN    512    /* samples a fit waits for */
#define MEMORY_SAMPLES  8000.0 /* half-life of what was counted, in samples */
#define FACTOR_GAIN     0.15   /* damping of one fit: 1 would follow the noise of few samples */
#define FACTOR_PULL     0.003  /* towards the prior, so that knots without data return to it */
#define FACTOR_PSEUDO   20.0   /* hits as predicted that each knot is given for free */
#define FACTOR_MIN      0.02
#define FACTOR_MAX      50.0
#define WEIGHT_GAIN     0.3
#define WEIGHT_PSEUDO   1.0
#define WEIGHT_MIN      1e-4 /* an expert at 0 could never come back */
#define WEIGHT_MAX      4.0
#define HORIZON_INITIAL 200.0

enum status
zipf_calibration_init(struct zipf_calibration *calibration)
{
    struct zipf_lesson *lesson = &calibration->lesson;

    *calibration = (struct zipf_calibration){
        .samples = mem_zalloc(ZIPF_SAMPLES_MAX, sizeof(calibration->samples[0])),
        .horizon = HORIZON_INITIAL,
    };
    if (calibration->samples == NULL) {
        return ERR(ST_NO_MEMORY, "samples of the eviction policy");
    }
    for (int i = 0; i < ZIPF_EXPERTS; i++) {
        lesson->weight[i] = 1.0 / ZIPF_EXPERTS;
    }
    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        for (int knot = 0; knot < ZIPF_KNOTS; knot++) {
            double seen = zipf_knot(ZIPF_SEEN, knot);

            calibration->prior[axis][knot] =
                axis == ZIPF_SEEN ? zipf_prior(ALPHA_ASSUMED, seen < 1 ? 1 : seen) : 1;
            lesson->factor[axis][knot] = calibration->prior[axis][knot];
        }
    }
    return ST_OK;
}

void
zipf_calibration_deinit(struct zipf_calibration *calibration)
{
    MEM_FREE(calibration->samples);
}

void
zipf_lesson_apply(struct zipf_calibration *calibration, struct zipf_clock *clock)
{
    for (int i = 0; i < ZIPF_EXPERTS; i++) {
        clock->weight[i] = (float)calibration->lesson.weight[i];
    }
    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        for (int knot = 0; knot < ZIPF_KNOTS; knot++) {
            calibration->log_factor[axis][knot] =
                (float)log2(calibration->lesson.factor[axis][knot]);
        }
    }
}

/* --- samples ---------------------------------------------------------------------------------- */

void
zipf_sample_take(struct zipf_calibration *calibration, const struct zipf_clock *clock,
                 struct zipf_memory *memory, uint32_t slot)
{
    struct zipf_record *record = &memory->records[slot];
    uint32_t number = (calibration->first + calibration->count) % ZIPF_SAMPLES_MAX;
    struct zipf_sample *sample = &calibration->samples[number];

    if (record->sample != 0 || record->count_slow == 0 || calibration->count == ZIPF_SAMPLES_MAX) {
        return;
    }
    calibration->count++;
    sample->slot = slot;
    sample->taken = (uint32_t)clock->now;
    zipf_estimate(clock, record, &sample->predicted);
    record->sample = number + 1;
}

/* Splits a count between the two knots beside the coordinate. */
static void
credit(double knots[ZIPF_KNOTS], float at, double amount)
{
    int knot = (int)at;
    double upper = (double)at - knot;

    knots[knot] += amount * (1 - upper);
    knots[knot + 1] += amount * upper;
}

static void
resolve(struct zipf_calibration *calibration, struct zipf_sample *sample, uint32_t requests,
        bool is_hit)
{
    struct zipf_lesson *lesson = &calibration->lesson;
    const struct zipf_estimate *predicted = &sample->predicted;
    bool is_in_time = requests <= calibration->horizon;
    double exposure = is_in_time ? requests : calibration->horizon;
    double correction = (double)zipf_exp2(zipf_correction(calibration, predicted->at));
    double expected = (double)predicted->rate * correction * exposure;

    is_hit = is_hit && is_in_time;
    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        credit(lesson->hits[axis], predicted->at[axis], is_hit);
        credit(lesson->expected[axis], predicted->at[axis], expected);
    }
    for (int i = 0; i < ZIPF_EXPERTS; i++) {
        double share = lesson->weight[i] * (double)predicted->expert[i];

        lesson->weight_hits[i] += is_hit ? share / (double)predicted->rate : 0;
        lesson->weight_expected[i] += share * correction * exposure;
    }
    sample->slot = 0;
    calibration->resolved++;
}

void
zipf_sample_hit(struct zipf_calibration *calibration, const struct zipf_clock *clock,
                struct zipf_record *record)
{
    struct zipf_sample *sample;

    if (record->sample == 0) {
        return;
    }
    sample = &calibration->samples[record->sample - 1];
    record->sample = 0;
    resolve(calibration, sample, (uint32_t)clock->now - sample->taken + 1, true);
}

void
zipf_sample_drop(struct zipf_calibration *calibration, struct zipf_record *record)
{
    if (record->sample != 0) {
        calibration->samples[record->sample - 1].slot = 0;
        record->sample = 0;
    }
}

/* --- the fit ---------------------------------------------------------------------------------- */

static double
clamp(double x, double min, double max)
{
    return x < min ? min : x > max ? max : x;
}

static void
fit_weights(struct zipf_lesson *lesson, double kept)
{
    for (int i = 0; i < ZIPF_EXPERTS; i++) {
        double ratio =
            (lesson->weight_hits[i] + WEIGHT_PSEUDO) / (lesson->weight_expected[i] + WEIGHT_PSEUDO);
        double weight = clamp(lesson->weight[i] * pow(ratio, WEIGHT_GAIN), WEIGHT_MIN, WEIGHT_MAX);
        double scale = weight / lesson->weight[i] * kept;

        /* What was counted with the old weight, as if the new one had predicted it. */
        lesson->weight_hits[i] *= scale;
        lesson->weight_expected[i] *= scale;
        lesson->weight[i] = weight;
    }
}

static void
fit_factor(struct zipf_calibration *calibration, int axis, int knot, double kept)
{
    struct zipf_lesson *lesson = &calibration->lesson;
    double old = lesson->factor[axis][knot];
    double ratio =
        (lesson->hits[axis][knot] + FACTOR_PSEUDO) / (lesson->expected[axis][knot] + FACTOR_PSEUDO);
    double factor =
        old * pow(ratio, FACTOR_GAIN) * pow(calibration->prior[axis][knot] / old, FACTOR_PULL);

    factor = clamp(factor, FACTOR_MIN, FACTOR_MAX);
    lesson->expected[axis][knot] *= factor / old * kept;
    lesson->hits[axis][knot] *= kept;
    lesson->factor[axis][knot] = factor;
}

static void
fit(struct zipf_calibration *calibration, struct zipf_clock *clock)
{
    double kept = exp2(-(double)calibration->resolved / MEMORY_SAMPLES);

    calibration->resolved = 0;
    fit_weights(&calibration->lesson, kept);
    for (int axis = 0; axis < ZIPF_AXES; axis++) {
        for (int knot = 0; knot < ZIPF_KNOTS; knot++) {
            fit_factor(calibration, axis, knot, kept);
        }
    }
    zipf_lesson_apply(calibration, clock);
}

void
zipf_calibrate(struct zipf_calibration *calibration, struct zipf_clock *clock,
               struct zipf_memory *memory, double horizon)
{
    calibration->horizon = horizon;
    while (calibration->count > 0) {
        struct zipf_sample *sample = &calibration->samples[calibration->first];
        uint32_t requests = (uint32_t)clock->now - sample->taken;

        if (sample->slot != 0) {
            if (requests <= horizon) {
                break;
            }
            memory->records[sample->slot].sample = 0;
            resolve(calibration, sample, requests, false);
        }
        calibration->first = (calibration->first + 1) % ZIPF_SAMPLES_MAX;
        calibration->count--;
    }
    if (calibration->resolved >= RESOLVED_MIN) {
        fit(calibration, clock);
    }
}
