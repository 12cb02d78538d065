/* SPDX-License-Identifier: Apache-2.0 */
/* target - who is asked: a kvasird by its own protocol, or any OpenAI server by HTTP.
 *
 *   NAME=kvasir:RUNTIME_DIR[?reuse=lazy|reencode|prefix|none]
 *   NAME=http://HOST[:PORT]/v1[?model=MODEL]
 *
 * Requests of token ids are raw: documents, then the query.  Over HTTP their ids follow each other
 * in the "prompt" of /completions.  Requests with texts are chats; over HTTP the documents' texts
 * stand before the question in one message of /chat/completions. */
#ifndef BENCH_TARGET_H
#define BENCH_TARGET_H

#include "bench/outcome.h"
#include "bench/workload.h"
#include "common/status.h"

#define TARGET_NAME_MAX 40

enum target_kind {
    TARGET_KVASIR,
    TARGET_HTTP,
};

struct target {
    enum target_kind kind;
    char name[TARGET_NAME_MAX];
    char *place; /* runtime directory; or the path before /completions */
    char *host;  /* HTTP */
    char *port;
    char *model; /* NULL: none was named */
    int reuse;   /* Kvasir__V1__ReuseMode */
};

/* What differs between two runs over the same workload. */
struct target_run {
    const struct workload *workload;
    const char *salt; /* kvasir: documents of other runs are not met; NULL: none */
    uint64_t sampling_seed;
    uint32_t timeout_ms;
};

/* ST_INVALID says what is wrong. */
enum status target_parse(const char *text, struct target *target_out);
void target_deinit(struct target *target);

/* One connection, for one thread and one request at a time. */
struct connection;
enum status connection_open(const struct target *target, const struct target_run *run,
                            struct connection **connection_out);
void connection_close(struct connection **connection);

/* Makes the message of a request, which is borrowed: what is not to be timed. */
enum status connection_prepare(struct connection *connection,
                               const struct workload_request *request);

/* Sends what was prepared and waits for the whole answer; the outcome is begun here. */
void connection_ask(struct connection *connection, uint64_t due_us, struct outcome *outcome);

/* Asks an HTTP server which models it has, and takes the first, where none was named; others are
 * left alone.  ST_UNAVAILABLE, ST_INVALID. */
enum status target_find_model(struct target *target);

/* Drops all documents that nobody reads now, so that the next run begins cold.  HTTP: nothing. */
enum status target_reset(const struct target *target);

/* The two kinds, for target.c. */
struct target_ops {
    enum status (*open)(struct connection *connection);
    void (*close)(struct connection *connection);
    enum status (*prepare)(struct connection *connection, const struct workload_request *request);
    /* NULL, or why it failed, borrowed until the next call. */
    const char *(*ask)(struct connection *connection, struct outcome *outcome);
};

struct connection {
    const struct target_ops *ops;
    const struct target *target;
    struct target_run run;
    const struct workload_request *request; /* prepared */
    void *state;
    char error[OUTCOME_ERROR_MAX];
};

extern const struct target_ops target_kvasir;
extern const struct target_ops target_http;

#endif
