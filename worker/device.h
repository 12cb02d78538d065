/* SPDX-License-Identifier: Apache-2.0 */
/* device - what a worker computes on: the one place that knows which kinds this build has, and the
 * only one that chooses a GPU.
 *
 * A kind fixes the form of everything the worker keeps there: type and layout of KV, type of the
 * weights, kind of arena, instance of the operations. */
#ifndef WORKER_DEVICE_H
#define WORKER_DEVICE_H

#include "common/status.h"
#include "kernels/dummy_fill.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "kvpool/arena.h"
#include "model/weights.h"
#include "worker/copier.h"

struct device_kind {
    const char *name; /* "cpu", "cuda" */
    enum kv_type kv_type;
    enum kv_layout_id kv_layout;
    enum weight_type weight_type;
    bool keeps_quantised; /* GGUF's quantised matrices stay as they are (weights_plan_kept) */
    const struct arena_ops *const *arenas; /* best first, NULL-terminated */
    /* Makes the calling thread work on device `ordinal`.  ST_UNAVAILABLE if there is none. */
    enum status (*choose)(int ordinal);
    enum status (*ops_new)(struct ops_config config, struct ops **ops_out);
    /* What may still be allocated on the chosen device; on the CPU, of this machine. */
    enum status (*free_bytes)(uint64_t *bytes_out);
    /* Fills arena memory from host memory, and waits. */
    enum status (*write)(void *memory, const void *host, size_t bytes);
    /* The other way. */
    enum status (*read)(void *host, const void *memory, size_t bytes);
    /* Fills arena memory with the weights of a dummy, and waits. */
    enum status (*fill_dummy)(struct dummy_fill_args args);
    /* Puts a matrix [N, K] that is in arena memory into the order that the operations read, in
     * place; NULL: they read it as it is.  ST_NO_MEMORY. */
    enum status (*pack_weight)(enum panel_form form, void *weight, uint32_t N, uint32_t K);
    const struct copier_ops *copier;
    bool is_host_memory; /* arena memory may be written by the host directly, without write() */
};

/* How the CPU's operations call a type of weights. */
static inline enum panel_form
device_panel_form(enum weight_type type)
{
    switch (type) {
    case WEIGHT_Q8_0: return PANEL_Q8_0;
    case WEIGHT_Q4_0: return PANEL_Q4_0;
    case WEIGHT_Q4_1: return PANEL_Q4_1;
    case WEIGHT_F32:
    case WEIGHT_BF16: break;
    }
    return PANEL_F32;
}

extern const struct device_kind device_cpu;
extern const struct device_kind device_cuda; /* CUDA builds only */

#define DEVICE_NAME_MAX 32

struct device {
    const struct device_kind *kind;
    int ordinal;
    char name[DEVICE_NAME_MAX]; /* "cpu", "cuda:0"; what kvasird is told */
};

/* Parses "cpu", "cuda", "cuda:N" or "N" (as "cuda:N"), and chooses it for the calling thread.
 * ST_INVALID: no such kind in this build (the detail lists them); ST_UNAVAILABLE: no such device.
 */
enum status device_open(const char *name, struct device *device_out);

/* Makes arena memory on the device by the best mechanism that it has.  As arena_ops.create. */
enum status device_create_arena(const struct device *device, const char *label, size_t bytes,
                                struct arena **arena_out);

/* Maps what another worker made by `mechanism`; owns `fd`.  As arena_ops.import, and ST_INVALID for
 * a mechanism that this kind of device does not know. */
enum status device_import_arena(const struct device *device, const char *mechanism, int fd,
                                size_t bytes, bool is_writable, struct arena **arena_out);

#endif
