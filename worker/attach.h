/* SPDX-License-Identifier: Apache-2.0 */
/* attach - how a worker gets its model and its memory: the talk on kvasird's attach socket.
 *
 * kvasird says which checkpoint, how much KV and which arenas exist; the worker opens the model,
 * proves that it arrives at the same fingerprints, maps the arenas that are there and makes those
 * that are missing.  Blocks while it loads; tells systemd that it is alive. */
#ifndef WORKER_ATTACH_H
#define WORKER_ATTACH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/kv_layout.h"
#include "kvpool/arena.h"
#include "model/checkpoint.h"
#include "proto/endpoints.h"
#include "proto/wire.h"
#include "worker/device.h"
#include "worker/weights_record.h"

struct attachment;

struct attach_options {
    const char *runtime_dir;     /* NULL: endpoint_dir's default */
    const struct device *device; /* opened; borrowed until attach_close */
    uint32_t seqs_max;
    int stop_fd;          /* readable: give up (an eventfd) */
    uint64_t patience_us; /* for a kvasird that is not there yet */
    /* Makes the workspace: called when model, settings and weights are there and KV is not, so that
     * a share of what is free is one of what is left.  May give attachment->tuning another content.
     * NULL: there is none. */
    enum status (*make_workspace)(void *arg, struct attachment *attachment);
    void *arg;
};

/* What the device had free at four moments: what was taken between them, by whoever. */
struct attach_memory {
    uint64_t free_at_start, free_after_weights, free_after_workspace, free_at_end;
};

struct attachment {
    int socket;       /* the attach socket while the talk lasts, else -1 */
    int daemon_pidfd; /* readable when kvasird is gone; -1 where its pid is not to be seen */
    struct wire_arena *replies;

    uint32_t worker;
    uint64_t incarnation;
    char worker_endpoint[ENDPOINT_URL_MAX];
    uint32_t heartbeat_ms;
    uint32_t step_timeout_ms;   /* a step that takes longer hangs; 0: none does */
    uint32_t orphan_timeout_ms; /* to wait for a next kvasird when this one is gone */
    uint8_t pool_id[16];        /* by which the next one knows what is mapped here */
    uint64_t life;              /* of the kvasird that took us back; 0: the first */
    const char *runtime_dir;
    uint32_t seqs_max;
    uint32_t step_tokens;
    bool is_deterministic;

    const struct device *device;
    struct checkpoint *checkpoint;
    struct model_config model;
    const struct tokenizer *tokenizer; /* the checkpoint's */
    struct weights_plan plan;
    struct kv_layout layout;
    uint32_t block_count;
    uint8_t pool_fingerprint[32];
    struct arena *kv;             /* block_count blocks, writable */
    struct arena *weights;        /* plan.bytes */
    struct arena *host;           /* the host tier's memory; NULL: there is none */
    struct weights_tuning tuning; /* lies behind the weights */
    bool has_made_kv;
    bool has_made_weights;
    struct attach_memory memory;
};

/* Into zeroed storage, which the workspace may point into; on failure nothing is left open.
 * ST_INVALID: refused, or kvasird says something that this worker cannot be; ST_UNAVAILABLE: no
 * daemon, it went away, or stop_fd. */
enum status attach_open(const struct attach_options *options, struct attachment *attachment);

/* Comes back to a kvasird of the same pool after its predecessor is gone: number, incarnation and
 * mappings stay, life and endpoints are new.  ST_UNAVAILABLE: nobody is there, or answers
 * before until_us: try again;
 * ST_INVALID: this worker is of no use to it and must start anew. */
enum status attach_again(struct attachment *attachment, int stop_fd, uint64_t until_us);

/* Unmaps and closes all; a zeroed struct is fine. */
void attach_close(struct attachment *attachment);

#endif
