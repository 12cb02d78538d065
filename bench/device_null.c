/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of device of bench/null_worker: one that computes nothing, at once, and answers every
 * draw with the same token.  Daemon, wire, scheduler, pool and engine are the real ones, so hit
 * ratios are; times are theirs alone.  KV is memory that nobody touches. */
#include "worker/device.h"

#include <string.h>

#define TOKEN 3

static enum status
choose(int ordinal)
{
    return ordinal == 0 ? ST_OK : ERR(ST_UNAVAILABLE, "nothing is one device");
}

static enum status
free_bytes(uint64_t *bytes_out)
{
    *bytes_out = arena_shm_available();
    return ST_OK;
}

static enum status
copy_host(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return ST_OK;
}

#define NOTHING(op)                                                                                \
    static enum status null_##op(const struct ops *ops, struct op##_args args)                     \
    {                                                                                              \
        (void)ops;                                                                                 \
        (void)args;                                                                                \
        return ST_OK;                                                                              \
    }

NOTHING(embed)
NOTHING(rmsnorm)
NOTHING(gemm)
NOTHING(rope_append)
NOTHING(rope_copy)
NOTHING(kv_checksum)
NOTHING(lazy_prefill)
NOTHING(swiglu)

static enum status
null_lazy_decode(const struct ops *ops, struct lazy_decode_args args, void *out)
{
    (void)ops;
    (void)args;
    (void)out;
    return ST_OK;
}

static enum status
null_sample(const struct ops *ops, struct sample_args args)
{
    (void)ops;
    for (uint32_t row = 0; row < args.R; row++) {
        args.results[row] = (struct sample_result){.id = TOKEN};
    }
    return ST_OK;
}

static enum status
ops_new(struct ops_config config, struct ops **ops_out)
{
    TRY(ops_cpu_new(config, ops_out));
    struct ops *ops = *ops_out;

    ops->embed = null_embed;
    ops->rmsnorm = null_rmsnorm;
    ops->gemm = null_gemm;
    ops->rope_append = null_rope_append;
    ops->rope_copy = null_rope_copy;
    ops->kv_checksum = null_kv_checksum;
    ops->lazy_prefill = null_lazy_prefill;
    ops->lazy_decode = null_lazy_decode;
    ops->swiglu = null_swiglu;
    ops->sample = null_sample;
    return ST_OK;
}

static enum status
fill_nothing(struct dummy_fill_args args)
{
    (void)args;
    return ST_OK;
}

static const struct arena_ops *const arenas[] = {&arena_shm, NULL};

const struct device_kind device_cpu = {
    .name = "cpu",
    .kv_type = KV_F32,
    .kv_layout = KV_LAYOUT_PLAIN,
    .weight_type = WEIGHT_F32,
    .arenas = arenas,
    .choose = choose,
    .ops_new = ops_new,
    .free_bytes = free_bytes,
    .write = copy_host,
    .read = copy_host,
    .fill_dummy = fill_nothing,
    .is_host_memory = true,
};
