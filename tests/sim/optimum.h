/* SPDX-License-Identifier: Apache-2.0 */
/* optimum - what no policy can beat: it knows the future.
 *
 * Belady's MIN on references to blocks: whoever is needed latest goes first, the newcomer itself
 * included.  All blocks of a document have the same next use and cost alike, so whole and partial
 * eviction in that order is exactly optimal.  Nothing is pinned, so for our pool it is an upper
 * bound. */
#ifndef TESTS_SIM_OPTIMUM_H
#define TESTS_SIM_OPTIMUM_H

#include "kvpool/replay.h"

/* Share of the document tokens hit, after the first `uncounted` requests.  Aborts without memory.
 */
double optimum_run(const struct replay_trace *trace, uint32_t block_count, uint32_t block_tokens,
                   uint32_t uncounted);

#endif
