/* SPDX-License-Identifier: Apache-2.0 */
/* engine - the requests of a worker and its steps: messages in, one forward pass, one message out.
 *
 * No socket, no clock, no thread: whoever owns the engine feeds it kvasird's messages between
 * steps. A bad message ends the request it is about, never the worker; any other status than ST_OK
 * from here means that the worker is broken (memory, device) and must end.
 *
 * The text of a request depends on its tokens, its sampling and its seed alone: not on what else is
 * in a step, how its prompt was cut into steps, or whether it was preempted and came back. */
#ifndef WORKER_ENGINE_H
#define WORKER_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "kernels/ops.h"
#include "model/config.h"
#include "model/tokenizer.h"
#include "model/weights.h"

#include "kvasir/v1/worker.pb-c.h"

struct engine;
struct mover;

struct engine_config {
    const struct model_config *model; /* all pointers are borrowed until engine_destroy */
    const struct tokenizer *tokenizer;
    const struct weights_plan *plan;
    const void *weights;
    void *kv; /* NULL: engine_place_kv follows, before the first message */
    struct kv_layout layout;
    uint32_t block_count;
    const struct ops *ops;
    uint32_t step_tokens;  /* rows of a step, at most LLAMA_ROWS_MAX */
    uint32_t mixed_tokens; /* rows beside decodes (batch.h); 0: as many as fit */
    uint32_t decodes_max;  /* of a step, others wait for their turn; 0: as ops says */
    uint32_t seqs_max;     /* requests at once, at most step_tokens */
    bool is_poisoning;     /* blocks are NaN before their first write: for tests */
};

#define ENGINE_SEALED_MAX 4096 /* finished builds that a crossing Assign may still name */
#define ENGINE_DONE_MAX   64   /* whole answers that are remembered for a next kvasird */

enum status engine_new(const struct engine_config *config, struct engine **engine_out);
void engine_destroy(struct engine **engine);

/* As llama_settle. */
enum status engine_settle(struct engine *engine);

/* Tells an engine that was made without KV memory where it is. */
void engine_place_kv(struct engine *engine, void *kv, uint32_t block_count);

/* Blocks can go to a host tier and come back from now on; borrowed, and destroyed before the
 * engine.  Before the first message. */
void engine_use_mover(struct engine *engine, struct mover *mover);
/* Who is called, from another thread, when a step would have something to say of the host tier;
 * NULL: nobody. */
void engine_set_wake(struct engine *engine, void (*wake)(void *arg), void *arg);

/* Lets the calling thread run steps; once, before its first. */
enum status engine_bind(const struct engine *engine);

/* Takes in Assign, Grant, Stop, StopBuild, Spill, Check, Erase, Probe or Reset; others do nothing.
 * Copies what it keeps.  Refusals are reported by the next step: an error and `released` for the
 * request, `builds_dropped` for all builds of its Assign.  ST_NO_MEMORY: the worker is broken. */
enum status engine_apply(struct engine *engine, const Kvasir__V1__DaemonMessage *message);

/* Runs one step.  *step_out is what kvasird must hear, without `step` and `step_us`; NULL if there
 * was nothing to do (every request waits for blocks, or there is none): wait for a message.
 * Borrowed until the next call.  Allocates nothing. */
enum status engine_step(struct engine *engine, Kvasir__V1__Step **step_out);

/* Whether there is work left although a step said nothing: a Check, of which it did a piece. */
bool engine_has_upkeep(const struct engine *engine);

/* Requests and builds that are open, those too that are kept for a next kvasird. */
uint32_t engine_open(const struct engine *engine);

#endif
