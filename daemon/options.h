/* SPDX-License-Identifier: Apache-2.0 */
/* options - what kvasird can be told, on the command line or in a file. */
#ifndef DAEMON_OPTIONS_H
#define DAEMON_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/status.h"

struct options {
    char *model;
    char *load_format;
    char *shape;
    char *runtime_dir;
    char *listen;
    char *curve_secret;
    char *curve_clients, *tenants, *isolation;
    char *kv_memory;      /* options_kv_memory reads it */
    uint64_t host_memory; /* bytes */
    uint64_t block_tokens;
    char *kv_type;
    bool deterministic;
    char *eviction;
    char *reuse;
    bool keep_turns;
    uint64_t reserve_tokens;
    uint64_t max_waiting;
    uint64_t step_tokens;
    uint64_t busy_poll; /* us */
    uint64_t tokenizer_threads;
    char *chat_template;
    uint64_t request_timeout; /* ms */
    uint64_t heartbeat;       /* ms */
    uint64_t worker_liveness; /* ms */
    uint64_t step_timeout;    /* ms */
    uint64_t orphan_timeout;  /* ms */
    uint64_t drain_timeout;   /* ms */
    uint64_t memo_memory;
    uint64_t corpus_memory;
    double pin_share;
    char *kv_events;
    char *kv_events_replay;
    char *kv_events_topic;
    char *kv_events_format;
    char *log_level;
    double verify_reuse;     /* percent */
    uint64_t scrub_interval; /* ms */
    bool check_pool;
};

/* The table over this struct. */
struct conf options_conf(struct options *options);

/* Reads the file, if one is named, and the command line over the defaults. */
enum status options_read(int argc, char **argv, struct options *options);

/* The same with a text in place of the file; errors call it `name`. */
enum status options_read_text(int argc, char **argv, const char *name, const char *text,
                              struct options *options);

/* Checks what the table cannot.  ST_INVALID names option, value and what it may be. */
enum status options_check(const struct options *options);

/* How much KV the first worker of a device makes. */
struct kv_memory {
    uint64_t bytes; /* 0: the percentage counts */
    double percent; /* of what is free after weights and workspace, (0, 100] */
};

/* Reads --kv-memory: bytes as "40GiB", or a share as "0.9" or "90%".  ST_INVALID. */
enum status options_kv_memory(const struct options *options, struct kv_memory *memory_out);

void options_deinit(struct options *options);

#endif
