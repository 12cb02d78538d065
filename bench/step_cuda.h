/* SPDX-License-Identifier: Apache-2.0 */
/* step_cuda - what the parts of bench_step_cuda share: one model, and a step under construction. */
#ifndef BENCH_STEP_CUDA_H
#define BENCH_STEP_CUDA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/wall_clock.h"
#include "kernels/kv_layout.h"
#include "worker/llama.h"

#define STEP_ROUNDS   15
#define STEP_SEQS_MAX 128u

extern struct llama *step_llama;
extern struct llama_step step;
extern struct sample_result *step_results; /* [STEP_SEQS_MAX] */
extern uint32_t step_pool_blocks;

void step_begin(void);
/* A sequence over hot documents whose last `rows` own tokens are rows of this step. */
void step_add_seq(uint32_t n_docs, uint32_t doc_tokens, uint32_t own, uint32_t rows,
                  bool wants_logits);
double step_time_ms(void); /* the median of STEP_ROUNDS */
void step_bench_encode(uint32_t tokens);

void bench_tier(void *kv, struct kv_layout layout);

#endif
