/* SPDX-License-Identifier: Apache-2.0 */
/* kv_publisher - a thread that publishes numbered batches and says the last ones again.
 *
 * PUB drops what a slow subscriber does not read, and tells nobody; so batches are numbered, and
 * the last ones are kept for whoever missed some.  It asks the replay socket (ROUTER) with 8 bytes:
 * the first number it wants, the highest byte first; the answers are (number, batch) of all that is
 * kept from there on, then (-1, "").  The protocol is vLLM's.
 *
 * Whoever submits never waits: there is a queue, and what does not fit is dropped and counted. */
#ifndef DAEMON_KV_PUBLISHER_H
#define DAEMON_KV_PUBLISHER_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define KV_PUBLISHER_QUEUE_BYTES (64u << 20)  /* handed over and not yet published */
#define KV_PUBLISHER_KEPT        10000        /* batches that can be asked for again, */
#define KV_PUBLISHER_KEPT_BYTES  (256u << 20) /* and of these the last so many bytes */
#define KV_PUBLISHER_HWM         10000        /* batches that wait for one subscriber */

struct kv_publisher;

struct kv_publisher_config {
    const char *url;        /* bound if it holds a "*" or "::" or is ipc://, else connected to */
    const char *replay_url; /* bound; NULL: none */
    const char *topic;
};

/* The strings are borrowed.  ST_NO_MEMORY; ST_SYSTEM. */
enum status kv_publisher_new(const struct kv_publisher_config *config,
                             struct kv_publisher **publisher_out);

/* Opens the sockets and starts the thread.  ST_SYSTEM names the endpoint. */
enum status kv_publisher_start(struct kv_publisher *publisher, void *context);

/* Publishes what is queued and closes the sockets, before the context ends; may be asked twice. */
void kv_publisher_stop(struct kv_publisher *publisher);

/* Stops, too.  NULL is fine. */
void kv_publisher_destroy(struct kv_publisher **publisher);

/* Takes the bytes over (of mem_*); NULL: the batch was lost before.  From one thread. */
void kv_publisher_submit(struct kv_publisher *publisher, uint64_t number, uint8_t *bytes,
                         size_t length);

struct kv_publisher_stats {
    uint64_t published; /* batches */
    uint64_t dropped;   /* batches that nobody got, */
    uint64_t missed;    /* and that at least one subscriber did not get, being slow */
    uint64_t replayed;
};

/* From any thread. */
struct kv_publisher_stats kv_publisher_stats(const struct kv_publisher *publisher);

#endif
