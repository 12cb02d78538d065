/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU instance of the table: each operation is cut into units that do not depend on the number
 * of threads, and the threads share them. */
#include "kernels/ops.h"

#include <string.h>

#include "common/mem.h"
#include "kernels/attn_row.h"
#include "kernels/gemm_cpu.h"
#include "kernels/rows.h"
#include "kernels/threads.h"

#define ROWS_A_UNIT 8

struct ops_cpu {
    struct ops ops;
    struct threads *threads;
    struct rope_table *angles;
};

static struct threads *
threads_of(const struct ops *ops)
{
    return ((const struct ops_cpu *)ops->state)->threads;
}

static uint32_t
row_units(uint32_t n_rows)
{
    return n_rows / ROWS_A_UNIT + (n_rows % ROWS_A_UNIT != 0);
}

static uint32_t
unit_end(uint32_t unit, uint32_t n_rows)
{
    uint32_t first = unit * ROWS_A_UNIT;

    return n_rows - first < ROWS_A_UNIT ? n_rows : first + ROWS_A_UNIT;
}

/* An operation over rows: the unit function and the entry of the table. */
#define ROW_OPERATION(op, rows_field)                                                              \
    static enum status op##_unit(const void *job, uint32_t unit)                                   \
    {                                                                                              \
        const struct op##_args *args = job;                                                        \
                                                                                                   \
        return op##_rows(args, unit * ROWS_A_UNIT, unit_end(unit, args->rows_field));              \
    }                                                                                              \
                                                                                                   \
    static enum status cpu_##op(const struct ops *ops, struct op##_args args)                      \
    {                                                                                              \
        return threads_run(threads_of(ops), row_units(args.rows_field), op##_unit, &args);         \
    }

ROW_OPERATION(embed, T)
ROW_OPERATION(rmsnorm, T)
ROW_OPERATION(rope_append, T)
ROW_OPERATION(swiglu, T)
ROW_OPERATION(attn_merge, n_rows)

/* A block is a unit: it takes as long as hundreds of rows. */
static enum status
rope_copy_unit(const void *job, uint32_t unit)
{
    return rope_copy_rows(job, unit, unit + 1);
}

static enum status
cpu_rope_copy(const struct ops *ops, struct rope_copy_args args)
{
    return threads_run(threads_of(ops), args.N, rope_copy_unit, &args);
}

static enum status
kv_checksum_unit(const void *job, uint32_t unit)
{
    return kv_checksum_rows(job, unit, unit + 1);
}

static enum status
cpu_kv_checksum(const struct ops *ops, struct kv_checksum_args args)
{
    return threads_run(threads_of(ops), args.N, kv_checksum_unit, &args);
}

static enum status
kv_compare_unit(const void *job, uint32_t unit)
{
    return kv_compare_rows(job, unit, unit + 1);
}

static enum status
cpu_kv_compare(const struct ops *ops, struct kv_compare_args args)
{
    return threads_run(threads_of(ops), args.N, kv_compare_unit, &args);
}

static enum status
sample_unit(const void *job, uint32_t unit)
{
    return sample_rows(job, unit, unit + 1);
}

static enum status
cpu_sample(const struct ops *ops, struct sample_args args)
{
    return threads_run(threads_of(ops), args.R, sample_unit, &args);
}

static enum status
product_unit(const void *job, uint32_t unit)
{
    gemm_cpu_unit(job, unit);
    return ST_OK;
}

static enum status
cpu_gemm(const struct ops *ops, struct gemm_args args)
{
    TRY(gemm_cpu_check(&args));
    return threads_run(threads_of(ops), gemm_cpu_units(&args), product_unit, &args);
}

/* The table of angles, for the frequencies of a call. */
static const struct rope_table *
angles_for(const struct ops *ops, const struct attn_desc *desc)
{
    const struct ops_cpu *cpu = ops->state;

    rope_table_set(cpu->angles, desc->inv_freq, desc->layout.D, desc->rope_scale);
    return cpu->angles;
}

struct prefill_job {
    const struct lazy_prefill_args *args;
    const struct rope_table *angles;
};

static enum status
prefill_unit(const void *arg, uint32_t unit)
{
    const struct prefill_job *job = arg;

    lazy_prefill_unit(job->args, job->angles, unit);
    return ST_OK;
}

static enum status
cpu_lazy_prefill(const struct ops *ops, struct lazy_prefill_args args)
{
    TRY(lazy_prefill_check(&args));
    struct prefill_job job = {&args, angles_for(ops, &args.desc)};

    return threads_run(threads_of(ops), lazy_prefill_units(&args), prefill_unit, &job);
}

struct decode_job {
    const struct lazy_decode_args *args;
    const struct rope_table *angles;
};

static enum status
decode_unit(const void *arg, uint32_t unit)
{
    const struct decode_job *job = arg;

    lazy_decode_unit(job->args, job->angles, unit);
    return ST_OK;
}

static enum status
cpu_lazy_decode(const struct ops *ops, struct lazy_decode_args args, void *out)
{
    TRY(lazy_decode_check(&args));
    struct decode_job job = {&args, angles_for(ops, &args.desc)};

    TRY(threads_run(threads_of(ops), lazy_decode_units(&args), decode_unit, &job));
    return cpu_attn_merge(ops, (struct attn_merge_args){.o = args.o,
                                                        .ml = args.ml,
                                                        .partial_first = args.partial_first,
                                                        .out = out,
                                                        .n_rows = args.desc.n_seqs,
                                                        .H = args.desc.H,
                                                        .D = args.desc.layout.D});
}

static enum status
cpu_alloc(const struct ops *ops, size_t bytes, void **memory_out)
{
    (void)ops;
    void *memory = mem_zalloc(bytes, 1);

    if (memory == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for %zu bytes of operands", bytes);
    }
    *memory_out = memory;
    return ST_OK;
}

static void
cpu_release(const struct ops *ops, void *memory)
{
    (void)ops;
    mem_free(memory);
}

static enum status
cpu_fill(const struct ops *ops, void *memory, int byte, size_t bytes)
{
    (void)ops;
    memset(memory, byte, bytes);
    return ST_OK;
}

static enum status
cpu_copy(const struct ops *ops, void *to, const void *from, size_t bytes)
{
    (void)ops;
    if (bytes > 0) {
        memcpy(to, from, bytes);
    }
    return ST_OK;
}

/* Everything is done when it returns: nothing to wait for. */
static enum status
cpu_bind(const struct ops *ops)
{
    (void)ops;
    return ST_OK;
}

static enum status
cpu_graph_begin(const struct ops *ops, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                enum ops_graph *found_out)
{
    (void)ops;
    (void)key;
    *found_out = OPS_GRAPH_NONE; /* calls cost nothing here */
    return ST_OK;
}

static enum status
cpu_graph_end(const struct ops *ops)
{
    (void)ops;
    return ST_OK;
}

static enum status
cpu_finish(const struct ops *ops)
{
    (void)ops;
    return ST_OK;
}

static enum status
cpu_begin_step(const struct ops *ops, struct attn_step step)
{
    (void)ops;
    (void)step;
    return ST_OK;
}

static void
cpu_destroy(struct ops *ops)
{
    struct ops_cpu *cpu = ops->state;

    threads_destroy(&cpu->threads);
    mem_free(cpu->angles);
    mem_free(cpu);
}

enum status
ops_cpu_new(struct ops_config config, struct ops **ops_out)
{
    if (config.threads == 0 || config.threads > OPS_THREADS_MAX) {
        return ERR(ST_INVALID, "%u threads: must be 1 to %d", config.threads, OPS_THREADS_MAX);
    }
    struct ops_cpu *cpu = mem_zalloc(1, sizeof(*cpu));

    if (cpu == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the CPU operations");
    }
    cpu->ops = (struct ops){
        .name = "cpu",
        .row_multiple = 1,
        .step_segs_max = UINT64_MAX,
        .step_pairs_max = UINT64_MAX,
        .activation_bytes = sizeof(float),
        .has_packed_weights = true,
        .state = cpu,
        .alloc = cpu_alloc,
        .release = cpu_release,
        .alloc_host = cpu_alloc,
        .release_host = cpu_release,
        .upload = cpu_copy,
        .download = cpu_copy,
        .fill = cpu_fill,
        .bind = cpu_bind,
        .finish = cpu_finish,
        .mark = cpu_finish,
        .wait = cpu_finish,
        .graph_begin = cpu_graph_begin,
        .graph_end = cpu_graph_end,
        .begin_step = cpu_begin_step,
        .embed = cpu_embed,
        .rmsnorm = cpu_rmsnorm,
        .gemm = cpu_gemm,
        .rope_append = cpu_rope_append,
        .rope_copy = cpu_rope_copy,
        .kv_checksum = cpu_kv_checksum,
        .kv_compare = cpu_kv_compare,
        .lazy_prefill = cpu_lazy_prefill,
        .lazy_decode = cpu_lazy_decode,
        .swiglu = cpu_swiglu,
        .sample = cpu_sample,
        .destroy = cpu_destroy,
    };
    cpu->angles = mem_zalloc(1, sizeof(*cpu->angles));
    enum status st = cpu->angles == NULL ? ERR(ST_NO_MEMORY, "no memory for a table of angles")
                                         : threads_new(config.threads, &cpu->threads);

    if (st != ST_OK) {
        cpu_destroy(&cpu->ops);
        return st;
    }
    *ops_out = &cpu->ops;
    return ST_OK;
}

void
ops_destroy(struct ops **ops)
{
    if (*ops != NULL) {
        (*ops)->destroy(*ops);
        *ops = NULL;
    }
}
