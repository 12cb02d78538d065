/* SPDX-License-Identifier: Apache-2.0 */
/* ops - the operations of a forward pass as one table with two instances: cpu and cuda.
 *
 * The engine calls operations only through `struct ops`, so a machine without a GPU runs the same
 * engine.  Each operation has a header of its own (kernels/X.h) with arguments, shapes and source;
 * this one adds what they share: rows, sequences, segments.
 *
 * A step processes T rows (tokens) of several sequences.  All pointers in arguments are memory of
 * the instance's device.  Operations enqueue in order and return; on the CPU they are done when
 * they return.  None allocates.  Letters: T rows, C model width, H query heads, Hkv key/value
 * heads, D head dim, L layers, P block tokens, F ffn width, V vocabulary. */
#ifndef KERNELS_OPS_H
#define KERNELS_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/embed.h"
#include "kernels/gemm.h"
#include "kernels/kv_checksum.h"
#include "kernels/kv_compare.h"
#include "kernels/lazy_decode.h"
#include "kernels/lazy_prefill.h"
#include "kernels/rmsnorm.h"
#include "kernels/rope_append.h"
#include "kernels/rope_copy.h"
#include "kernels/sample.h"
#include "kernels/swiglu.h"

struct ops;

struct ops_config {
    uint32_t threads; /* cpu: threads that share an operation, 1.. OPS_THREADS_MAX */
    /* A row's results never depend on the other rows of a call, bit for bit.  The CPU's never do;
     * CUDA then pays for it. */
    bool is_deterministic;
    /* cuda, for measurements and tests: the kernels that every GPU from sm_80 on has, on newer ones
     * too; documents of several requests read once for each of them by lazy_decode; lazy_decode
     * with cuts that depend on a sequence's own length alone, so the same bits in any company
     * (is_deterministic promises more: those of lazy_prefill as well).  ops_cuda_new sets the first
     * two for $KVASIR_CUDA_PORTABLE=1 and $KVASIR_CUDA_UNSHARED=1. */
    bool is_portable;
    bool is_unshared;
    bool has_fixed_cuts;
    /* cuda: lazy_prefill by mma.sync where wgmma would do it (sm_90a); set for
     * $KVASIR_CUDA_MMA_PREFILL=1. */
    bool is_mma_prefill;
    /* cuda: what ops->tuning of an earlier instance said; read by ops_cuda_new alone */
    const void *tuning;
    size_t tuning_bytes;
    /* cuda: the model's attention and the bounds of a step, for what begin_step prepares */
    uint32_t H;
    uint32_t Hkv;
    uint32_t D;
    uint32_t rows_max;
    uint32_t seqs_max;
    uint32_t segs_max;
};

#define OPS_TUNING_MAX    (32u << 10) /* bytes */
#define OPS_THREADS_MAX   64
#define OPS_STEP_SEGS_MIN 4097 /* the documents of a request and its own tokens */

/* What graph_begin found. */
enum ops_graph {
    OPS_GRAPH_NONE,      /* nothing: call the operations */
    OPS_GRAPH_RECORDING, /* call the operations, then graph_end, which runs them */
    OPS_GRAPH_REPLAYED,  /* done: the recorded operations are on their way */
};

#define OPS_GRAPH_KEY_BYTES 512

struct ops {
    const char *name; /* "cpu", "cuda" */
    size_t
        activation_bytes; /* of one element of x, q, out...: 4 (f32) on the CPU, 2 (bf16) on CUDA */
    /* Rows that gemm touches come in multiples of this: x must be readable, y is overwritten up to
     * it, whatever M is.  1: M rows. */
    uint32_t row_multiple;
    /* What a step may hold in all: segments of its sequences, and (row, segment) pairs.  At least
     * OPS_STEP_SEGS_MIN each, so that any one sequence can go on. */
    uint64_t step_segs_max;
    uint64_t step_pairs_max;
    /* Sequences of one row that lazy_decode serves well in one step, and their segments: two steps
     * are faster than one with more.  0: any number; else at least OPS_STEP_SEGS_MIN segments. */
    uint32_t step_singles_max;
    uint64_t step_single_segs_max;
    /* Weights that gemm reads are in panels (panel.h), and so is the embedding. */
    bool has_packed_weights;
    void *state; /* thread pool or stream; owned by the instance */

    /* Lets the calling thread use the instance; once a thread, before anything else. */
    enum status (*bind)(const struct ops *);

    /* Memory that arguments may point to.  Zeroed; made at start, never inside a step. */
    enum status (*alloc)(const struct ops *, size_t bytes, void **memory_out);
    void (*release)(const struct ops *, void *memory); /* NULL is fine */
    /* Memory of the host that upload and download use directly, while the device works; from other
     * memory they may wait for it.  Zeroed. */
    enum status (*alloc_host)(const struct ops *, size_t bytes, void **memory_out);
    void (*release_host)(const struct ops *, void *memory); /* NULL is fine */
    /* In order with the operations: enqueued, the host side may be reused only after finish, or
     * after the wait for a mark behind it. */
    enum status (*upload)(const struct ops *, void *memory, const void *host, size_t bytes);
    enum status (*download)(const struct ops *, void *host, const void *memory, size_t bytes);
    /* Every byte of it becomes `byte`; enqueued. */
    enum status (*fill)(const struct ops *, void *memory, int byte, size_t bytes);
    /* Waits for all that was enqueued. */
    enum status (*finish)(const struct ops *);
    /* mark remembers what was enqueued until now, wait waits for that: the one synchronisation of a
     * step, while what was enqueued after the mark may still be under way. */
    enum status (*mark)(const struct ops *);
    enum status (*wait)(const struct ops *);

    /* Both NULL where gemm measures nothing.  The first use of a shape (gemm_bucket) measures how
     * it is done best, and waits; after settle none does.  tuning is what was measured, for other
     * instances on such a device: they choose the same. */
    void (*settle)(const struct ops *);
    const void *(*tuning)(const struct ops *, size_t *bytes_out);

    /* Once a step, before its first layer: what attention can prepare for all layers (angles,
     * splits). lazy_prefill and lazy_decode of the step then get the same sequences in device
     * memory.  May be called while the step before runs: what is prepared last is what the next
     * operations use.  The CPU prepares nothing. */
    enum status (*begin_step)(const struct ops *, struct attn_step);

    /* Work that is launched over and over with only the contents of memory changed is recorded once
     * and replayed as a whole.  The key says everything else that the launches depend on: counts,
     * addresses.  The first time a key comes nothing is recorded: most never come again. */
    enum status (*graph_begin)(const struct ops *, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                               enum ops_graph *found_out);
    enum status (*graph_end)(const struct ops *);

    enum status (*embed)(const struct ops *, struct embed_args);
    enum status (*rmsnorm)(const struct ops *, struct rmsnorm_args);
    enum status (*gemm)(const struct ops *, struct gemm_args);
    enum status (*rope_append)(const struct ops *, struct rope_append_args);
    enum status (*rope_copy)(const struct ops *, struct rope_copy_args);
    enum status (*kv_checksum)(const struct ops *, struct kv_checksum_args);
    enum status (*kv_compare)(const struct ops *, struct kv_compare_args);
    enum status (*lazy_prefill)(const struct ops *, struct lazy_prefill_args);
    /* The partials of lazy_decode and their merge into row i of `out` (like args.q) for seqs[i],
     * whose row_first is i.  A device may split the keys its own way and leave args.o and ml alone.
     */
    enum status (*lazy_decode)(const struct ops *, struct lazy_decode_args args, void *out);
    enum status (*swiglu)(const struct ops *, struct swiglu_args);
    enum status (*sample)(const struct ops *, struct sample_args);
    void (*destroy)(struct ops *);
};

/* Makes the CPU instance: gemm_cpu for matrix products, the twins elsewhere, one pool of threads.
 * A row's result never depends on the other rows of a call.
 * ST_INVALID for 0 or too many threads; ST_NO_MEMORY.  The caller destroys it. */
enum status ops_cpu_new(struct ops_config config, struct ops **ops_out);

/* NULL is fine; sets *ops to NULL. */
void ops_destroy(struct ops **ops);

#endif
