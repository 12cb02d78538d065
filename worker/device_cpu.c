/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device.h"

#include <string.h>

#include "kernels/panel.h"

static enum status
choose_cpu(int ordinal)
{
    return ordinal == 0 ? ST_OK : ERR(ST_UNAVAILABLE, "the cpu is one device");
}

static enum status
free_bytes(uint64_t *bytes_out)
{
    uint64_t bytes = arena_shm_available();

    if (bytes == UINT64_MAX) {
        return ERR(ST_UNAVAILABLE, "/proc/meminfo does not say what memory is available");
    }
    *bytes_out = bytes;
    return ST_OK;
}

static enum status
copy_host(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
    return ST_OK;
}

static const struct arena_ops *const arenas[] = {&arena_shm, NULL};

const struct device_kind device_cpu = {
    .name = "cpu",
    .kv_type = KV_F32,
    .kv_layout = KV_LAYOUT_PLAIN,
    .weight_type = WEIGHT_F32,
    .keeps_quantised = true,
    .arenas = arenas,
    .choose = choose_cpu,
    .ops_new = ops_cpu_new,
    .free_bytes = free_bytes,
    .write = copy_host,
    .read = copy_host,
    .fill_dummy = dummy_fill_ref,
    .pack_weight = panel_pack,
    .copier = &copier_cpu,
    .is_host_memory = true,
};
