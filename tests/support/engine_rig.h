/* SPDX-License-Identifier: Apache-2.0 */
/* engine_rig - a worker's engine on a model in memory, driven without daemon, socket or clock.
 *
 * Plays kvasird's part: hands out blocks, sends messages, collects what the steps report. */
#ifndef TESTS_SUPPORT_ENGINE_RIG_H
#define TESTS_SUPPORT_ENGINE_RIG_H

#include <semaphore.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "model/checkpoint.h"
#include "model/tiny_model.h"
#include "worker/device.h"
#include "worker/engine.h"
#include "worker/mover.h"
#include "worker/sequence.h"

#define RIG_REQUESTS_MAX 64
#define RIG_SEGMENTS_MAX 8192 /* of a step */
#define RIG_TEXT_MAX     8192
#define RIG_TOKENS_MAX   2048
#define RIG_SUMS_MAX     1024

struct rig_config {
    const char *model_path;               /* a checkpoint's; NULL: a tiny model, */
    const struct tiny_model_config *tiny; /* this one, or with NULL its defaults */
    const struct device_kind *kind;       /* NULL: the CPU */
    uint32_t block_tokens;
    uint32_t block_count;
    uint32_t step_tokens;
    uint32_t seqs_max;
    uint32_t decodes_max; /* 0: as the device says */
    bool is_deterministic;
};

/* What has been heard of a request, or of a build. */
struct rig_heard {
    char text[RIG_TEXT_MAX];
    size_t n_text;
    uint32_t ids[RIG_TOKENS_MAX];
    float logprobs[RIG_TOKENS_MAX];
    size_t n_logprobs;
    size_t n_ids;
    int finish; /* enum; -1 while it runs */
    uint32_t own_tokens;
    uint32_t tokens_reused;
    uint32_t n_released, n_sealed, n_dropped;
    uint32_t n_loaded, n_spilled; /* messages; by build, by spill: */
    uint32_t blocks_moved;        /* that they told of */
    bool is_unread;               /* of a load: for want of memory */
    uint64_t sums[64];            /* of a spill */
    char error[256];
};

/* What is said of a request that outlived its kvasird. */
struct rig_kept {
    uint64_t number;
    uint32_t answer_tokens, n_own_blocks, n_segments;
    bool is_done;
};

struct rig {
    struct rig_config config;
    struct checkpoint *checkpoint;
    void *model_bytes;
    struct model_config model;
    const struct tokenizer *tokenizer; /* the checkpoint's */
    struct weights_plan plan;
    const struct device_kind *kind;
    void *weights; /* the device's memory, as kv */
    void *kv;
    struct kv_layout layout;
    struct ops *ops;
    struct engine *engine;
    struct mover *mover; /* NULL: no host tier */
    char *host;          /* its memory */
    sem_t moved;
    struct rig_heard spills[RIG_REQUESTS_MAX]; /* by spill id */
    struct rig_heard heard[RIG_REQUESTS_MAX];  /* by request id */
    struct rig_heard builds[RIG_REQUESTS_MAX]; /* by build id */
    uint32_t next_block;
    uint32_t rows, rows_built, steps;
    struct rig_kept kept[RIG_REQUESTS_MAX]; /* [n_kept] of the last Reset */
    uint32_t n_kept, n_kept_released;
    uint64_t sums[RIG_SUMS_MAX]; /* of the last step that sealed something */
    size_t n_sums;
    Kvasir__V1__Checked checked; /* the last one, without its sums: */
    uint64_t checked_sums[RIG_SUMS_MAX];
    uint64_t erased; /* the last one */
};

/* Sensible numbers for the tiny model: blocks of 16, 512 of them, steps of 64 rows, 8 requests. */
struct rig_config rig_defaults(void);

/* Makes everything; fails the test if it cannot. */
struct rig *rig_new(const struct rig_config *config);
void rig_destroy(struct rig **rig);

/* Forgets requests and blocks, keeps the model: a fresh engine over a zeroed arena. */
void rig_restart(struct rig *rig, const struct rig_config *config);

/* Of a build behind others or by copy: worker.proto says what.  A copy stands at `position` for
 * good, so its segment's offset is 0. */
struct rig_place {
    uint32_t context, position;
    const uint32_t *source_blocks;
    uint64_t source_build;
    /* Blocks from the build's start on that the host tier has: */
    const uint32_t *host_places;
    const uint64_t *host_sums;
    uint32_t n_host;
};

/* A request in short.  Documents are given whole; those with `build` != 0 are built by its Assign.
 */
struct rig_doc {
    const uint32_t *ids;
    uint32_t n_ids;
    uint32_t *blocks; /* given by rig_blocks */
    uint64_t build;   /* 0: readable */
    bool is_joined;   /* `build` belongs to an earlier Assign */
    uint32_t start;   /* of the build */
    struct rig_place place;
};

struct rig_request {
    uint64_t id; /* 0: builds only */
    const struct rig_doc *docs;
    size_t n_docs;
    const uint32_t *query;
    size_t n_query;
    const uint32_t *sent;
    size_t n_sent;
    uint32_t sent_text_bytes;
    uint32_t max_tokens;
    uint32_t own_blocks; /* 0: enough for all */
    float temperature;
    uint64_t seed;
    float repetition_penalty; /* 0: off */
    char *stops[4];
    size_t n_stops;
    bool wants_logprobs;
    bool ignores_end;
    uint64_t order;          /* 0: the id */
    const uint32_t *own_ids; /* its own blocks, in place of fresh ones; own_blocks of them */
    uint32_t own_cached, own_document_tokens;
    bool is_background;
    const char *name; /* of the call; then its documents have keys and generations too */
    uint64_t kept;    /* goes on with that one; 0: begins */
};

/* Fresh blocks for n tokens (never handed out twice); the caller frees with mem_free. */
uint32_t *rig_blocks(struct rig *rig, uint32_t n_tokens);

void rig_assign(struct rig *rig, const struct rig_request *request);
void rig_grant(struct rig *rig, uint64_t request, uint32_t n_blocks);
void rig_stop(struct rig *rig, uint64_t request);
void rig_stop_build(struct rig *rig, uint64_t build);
/* A next kvasird is there. */
void rig_reset(struct rig *rig, uint64_t life);
void rig_stop_kept(struct rig *rig, uint64_t kept);

/* One step; false if there was nothing to do. */
bool rig_step(struct rig *rig);
/* Until there is nothing to do. */
void rig_run(struct rig *rig);

/* Gives the engine a host tier of so many places; until rig_restart. */
void rig_add_host(struct rig *rig, uint32_t places);
void rig_spill(struct rig *rig, uint64_t spill, const uint32_t *blocks, const uint32_t *places,
               uint32_t n);
/* Until nothing is open and nothing is being copied; `spills` have been asked for and not told of.
 */
void rig_run_moves(struct rig *rig, uint32_t spills);

/* Any message, malformed ones too: `body` is what `which` names. */
void rig_send(struct rig *rig, Kvasir__V1__DaemonMessage__BodyCase which, void *body);

/* KV bytes of n tokens in these blocks, all layers, as one array: [token][layer][K,V][head][d].
 * The caller frees with mem_free. */
float *rig_kv(const struct rig *rig, const uint32_t *blocks, uint32_t n_tokens);
size_t rig_kv_bytes(const struct rig *rig, uint32_t n_tokens);

#endif
