/* SPDX-License-Identifier: Apache-2.0 */
/* yardsticks - policies that only the simulator can run, behind the same seam.
 *
 * They find what they know of a document by its number in the trace, which a replay writes into the
 * key.  One run at a time: what the oracle follows is a static. */
#ifndef TESTS_SIM_YARDSTICKS_H
#define TESTS_SIM_YARDSTICKS_H

#include "tests/sim/workload.h"

/* Least frequently used, with counts that survive eviction for ever; the least recent of equals. */
extern const struct evict_policy_ops evict_lfu_history;

/* Knows the true popularity of every document at this moment, not the future. */
extern const struct evict_policy_ops evict_oracle;

/* What the oracle, or the counts, are of; before the policy is made. */
void yardsticks_follow(const struct workload *workload);

#endif
