/* SPDX-License-Identifier: Apache-2.0 */
/* golden_check - the forward pass against HF transformers on the same weights
 * (tests/goldens/make_goldens.py says how the goldens came about).
 *
 * Every case runs in one step, documents and query together; greedy answers run through the engine.
 *
 * Tolerance: the goldens are float64; a case's `noise` is how far that implementation in float32 is
 * from them at most.  Ours differs from it in the order of sums.  A running sum of K terms of size
 * s rounds K partial sums of size s sqrt(k): an error of eps s K / sqrt(2); in c chains that are
 * added at the end it is eps s K / sqrt(2 c).  Ours is one chain (kernels/gemm_cpu.h says why); the
 * dot product of a BLAS has up to 64 (4 registers of 16 lanes).  So where products make the noise,
 * ours may be sqrt(64) = 8 times theirs, and less where it comes from what both do alike.  Seen on
 * a Zen 4: 2.7 at most on the tiny models, 3.8 on SmolLM2 (K = 1536).  A wrong angle, mask or
 * weight is off by hundreds of times. */
#ifndef TESTS_SUPPORT_GOLDEN_CHECK_H
#define TESTS_SUPPORT_GOLDEN_CHECK_H

/* Runs all cases of tests/goldens/NAME.txt with the checkpoint at `path`, or with NULL the tiny one
 * that the goldens name.  A difference fails the test. */
void golden_check(const char *name, const char *path);

/* The same for a big model where everything is slow, with sanitizers: only the cases named in
 * `cases` (NULL-terminated), and no more than the first few tokens of an answer. */
void golden_check_some(const char *name, const char *path, const char *const *cases);

#endif
