/* SPDX-License-Identifier: Apache-2.0 */
/* golden_check - the forward pass against HF transformers on the same weights
 * (tests/goldens/make_goldens.py says how the goldens came about).
 *
 * Every case runs in one step, documents and query together; greedy answers run through the engine.
 *
 * Tolerance: a case's `noise` is the largest difference between that implementation in float32 and
 * in float64.  Ours is another float32 implementation with sums in another order: its error is of
 * the same size, independent, and differs with the machine, so a few times the noise bounds it; a
 * wrong angle, mask or weight is off by hundreds of times. */
#ifndef TESTS_SUPPORT_GOLDEN_CHECK_H
#define TESTS_SUPPORT_GOLDEN_CHECK_H

/* Runs all cases of tests/goldens/NAME.txt with the checkpoint at `path`, or with NULL the tiny one
 * that the goldens name.  A difference fails the test. */
void golden_check(const char *name, const char *path);

#endif
