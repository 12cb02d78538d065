/* SPDX-License-Identifier: Apache-2.0 */
/* kv_events - what the pool holds, told to routers of other systems in vLLM's words.
 *
 * llm-d and Dynamo send a request to the engine that holds most of its prompt.  They learn what an
 * engine holds from the events that vLLM publishes, so we publish the same: ZeroMQ PUB, three
 * frames: topic, number of the batch (8 bytes, the highest first, from 0), and a batch in
 * MessagePack, {ts, events, data_parallel_rank} with events BlockStored, BlockRemoved and
 * AllBlocksCleared.  docs/kv-events.md has the fields and what they mean for documents.
 *
 * The scheduler's thread collects a batch a turn and hands it to the publisher (kv_publisher.h);
 * it never waits.  A batch that cannot be had or taken is dropped and counted, and its number is
 * missing: whoever listens sees that. */
#ifndef DAEMON_KV_EVENTS_H
#define DAEMON_KV_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/kv_publisher.h"
#include "kvpool/kvpool.h"

#define KV_EVENTS_TOPIC_MAX 255        /* bytes */
#define KV_EVENTS_IDS_MAX   (1u << 20) /* tokens in a batch, or the first event beyond */

struct kv_events;

struct kv_events_config {
    struct kv_publisher_config publisher;
    uint32_t block_tokens;
    bool is_array; /* structs as arrays without names, as vLLM had them before */
};

/* Begins with AllBlocksCleared.  The config's strings are borrowed.  ST_NO_MEMORY; ST_SYSTEM. */
enum status kv_events_new(const struct kv_events_config *config, struct kv_events **events_out);

/* Publishes from now on; `context` is libzmq's.  ST_SYSTEM: an endpoint cannot be had. */
enum status kv_events_start(struct kv_events *events, void *context);

/* Publishes what was handed over and closes the sockets, before the context ends. */
void kv_events_stop(struct kv_events *events);

/* Stops, too, and after the pool: it may still have things to tell.  NULL is fine, for both. */
void kv_events_destroy(struct kv_events **events);

/* For the pool; NULL of NULL. */
const struct kvpool_watch *kv_events_watch(const struct kv_events *events);

/* All that was stored is gone: the pool is lost. */
void kv_events_clear(struct kv_events *events);

/* Where the blocks lie from now on, and copies of the host tier: "CPU" and "HOST", which is so at
 * first, or "GPU" and "CPU".  Borrowed. */
void kv_events_set_media(struct kv_events *events, const char *medium, const char *tier_medium);

/* Hands over what was collected; a batch that grows large goes by itself.  NULL is fine. */
void kv_events_flush(struct kv_events *events);

struct kv_publisher_stats kv_events_stats(const struct kv_events *events);

/* The name of a document's block in events: of 64 bits, as vLLM's. */
uint64_t kv_events_hash(const struct dockey *key, uint32_t block);

#endif
