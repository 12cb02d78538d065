/* SPDX-License-Identifier: Apache-2.0 */
/* The kinds of device of tests/support/failing_worker: a CPU that breaks in the middle of its work,
 * after as many steps as $KVASIR_TEST_STEPS says, or gets the signal $KVASIR_TEST_SIGNAL then;
 * with $KVASIR_TEST_HOLD not before somebody writes to that FIFO.
 * With $KVASIR_TEST_IPC its arenas are of the kind that ends with the last worker. */
#include "worker/device.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/panel.h"
#include "kvpool/arena_impl.h"
#include "tests/support/failing_ops.h"

static enum status
choose(int ordinal)
{
    (void)ordinal;
    return ST_OK;
}

static enum status
ops_new(struct ops_config config, struct ops **ops_out)
{
    const char *steps = getenv("KVASIR_TEST_STEPS");
    const char *signo = getenv("KVASIR_TEST_SIGNAL");

    TRY(ops_cpu_new(config, ops_out));
    /* One more: the engine waits once when it is made. */
    failing_ops_break(*ops_out, steps == NULL ? 1 : 1 + (uint32_t)strtoul(steps, NULL, 10));
    failing_ops_raise(signo == NULL ? 0 : (int)strtol(signo, NULL, 10));
    failing_ops_hold(getenv("KVASIR_TEST_HOLD"));
    return ST_OK;
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

/* As ipc names itself; here the fd would keep the memory, kvasird must not count on it. */
static enum status
create_as_ipc(const char *label, size_t bytes, struct arena **arena_out)
{
    static struct arena_impl ipc;

    if (getenv("KVASIR_TEST_IPC") == NULL) {
        return ERR(ST_UNAVAILABLE, "not asked for");
    }
    TRY(arena_shm.create(label, bytes, arena_out));
    ipc = *(*arena_out)->impl;
    ipc.name = "ipc";
    (*arena_out)->impl = &ipc;
    return ST_OK;
}

static enum status
import_as_ipc(int fd, size_t bytes, bool is_writable, struct arena **arena_out)
{
    return arena_shm.import(fd, bytes, is_writable, arena_out);
}

static const struct arena_ops as_ipc = {
    .name = "ipc", .create = create_as_ipc, .import = import_as_ipc};
static const struct arena_ops *const arenas[] = {&as_ipc, &arena_shm, NULL};

const struct device_kind device_cpu = {
    .name = "cpu",
    .kv_type = KV_F32,
    .kv_layout = KV_LAYOUT_PLAIN,
    .weight_type = WEIGHT_F32,
    .keeps_quantised = true,
    .arenas = arenas,
    .choose = choose,
    .ops_new = ops_new,
    .free_bytes = free_bytes,
    .write = copy_host,
    .read = copy_host,
    .fill_dummy = dummy_fill_ref,
    .pack_weight = panel_pack,
    .copier = &copier_cpu,
    .is_host_memory = true,
};
