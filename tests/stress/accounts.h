/* SPDX-License-Identifier: Apache-2.0 */
/* accounts - what kvasird says that it holds, and whether that is as it must be at rest. */
#ifndef TESTS_STRESS_ACCOUNTS_H
#define TESTS_STRESS_ACCOUNTS_H

#include <stdbool.h>
#include <stdint.h>

struct accounts {
    uint64_t wants; /* hits and misses of documents */
    uint64_t preempted, requeued, docs_evicted, handed_over, builds_dropped;
};

/* Waits until no request is left, then checks that every block is free or a document's, that
 * nobody refers to a document, and that the counters add up.  Prints what is wrong.  *accounts_out
 * is written in any case. */
bool accounts_settle(const char *runtime_dir, struct accounts *accounts_out);

/* Asks kvasird to evict some blocks. */
bool accounts_evict(const char *runtime_dir, uint32_t blocks);

#endif
