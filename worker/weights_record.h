/* SPDX-License-Identifier: Apache-2.0 */
/* weights_record - what lies in a weights arena, said at its end by the worker that filled it.
 *
 * So a later worker need read no tensor to know that it maps what it would have loaded: the same
 * checkpoint, in the same places, of the same types and order.  And it need not measure what the
 * first has measured of the device (ops->tuning), and computes in the same way. */
#ifndef WORKER_WEIGHTS_RECORD_H
#define WORKER_WEIGHTS_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "model/weights.h"
#include "worker/device.h"

struct weights_tuning {
    uint32_t n_bytes; /* 0: nothing was measured */
    uint8_t bytes[OPS_TUNING_MAX];
};

/* Bytes of an arena for these weights, the record included. */
size_t weights_record_arena_bytes(const struct weights_plan *plan);

/* Writes the record of weights that are complete into their arena.  ST_DEVICE. */
enum status weights_record_write(const struct device_kind *kind, const struct weights_plan *plan,
                                 const uint8_t checkpoint[32], const struct weights_tuning *tuning,
                                 void *arena);

/* ST_INVALID says what the arena holds instead. */
enum status weights_record_check(const struct device_kind *kind, const struct weights_plan *plan,
                                 const uint8_t checkpoint[32], const void *arena,
                                 struct weights_tuning *tuning_out);

#endif
