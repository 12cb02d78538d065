/* SPDX-License-Identifier: Apache-2.0 */
/* load_weights - a checkpoint's weights into a device's memory. */
#ifndef WORKER_LOAD_WEIGHTS_H
#define WORKER_LOAD_WEIGHTS_H

#include "common/status.h"
#include "model/checkpoint.h"
#include "worker/device.h"

/* Fills `memory` (plan->bytes, of the chosen device): from the files, through host memory where the
 * device's cannot be written; a dummy's is made on the device from its seed.  Matrices end up in
 * the order that the device's operations read.  Waits until it is there.  `progress` may be NULL.
 */
enum status load_weights(const struct device_kind *kind, const struct checkpoint *checkpoint,
                         const struct weights_plan *plan, void *memory,
                         weights_progress_fn progress, void *progress_arg);

/* The weights of a dummy: norms are 1, the rest is random with a standard deviation near 0.02,
 * alike on every device; not packed. */
enum status load_dummy_weights(const struct device_kind *kind, const struct model_config *config,
                               const struct weights_plan *plan, uint64_t seed, void *memory);

#endif
