/* SPDX-License-Identifier: Apache-2.0 */
/* methods - every method a client may call: its path, messages and kind.  services.proto says the
 * same to people and other languages; tests/unit/test_wire.c compares the two. */
#ifndef PROTO_METHODS_H
#define PROTO_METHODS_H

#include <stdbool.h>

#include <protobuf-c/protobuf-c.h>

/*    constant, path, request, reply, is_stream, is_admin (only on the admin socket) */
#define METHODS(X)                                                                                 \
    X(METHOD_GENERATE, "/kvasir.v1.Rag/Generate", generate_request, generate_reply, true, false)   \
    X(METHOD_TOKENIZE, "/kvasir.v1.Rag/Tokenize", tokenize_request, tokenize_reply, false, false)  \
    X(METHOD_DETOKENIZE, "/kvasir.v1.Rag/Detokenize", detokenize_request, detokenize_reply, false, \
      false)                                                                                       \
    X(METHOD_MODEL, "/kvasir.v1.Rag/Model", empty, model_reply, false, false)                      \
    X(METHOD_PROBE, "/kvasir.v1.Rag/Probe", probe_request, probe_reply, false, false)              \
    X(METHOD_CANCEL, "/kvasir.v1.Rag/Cancel", cancel_request, empty, false, false)                 \
    X(METHOD_REGISTER, "/kvasir.v1.Documents/Register", register_request, register_reply, false,   \
      false)                                                                                       \
    X(METHOD_GET, "/kvasir.v1.Documents/Get", document_ref, document_info, false, false)           \
    X(METHOD_LIST, "/kvasir.v1.Documents/List", list_request, list_reply, false, false)            \
    X(METHOD_PIN, "/kvasir.v1.Documents/Pin", document_ref, empty, false, false)                   \
    X(METHOD_UNPIN, "/kvasir.v1.Documents/Unpin", document_ref, empty, false, false)               \
    X(METHOD_WARM, "/kvasir.v1.Documents/Warm", document_ref, empty, false, false)                 \
    X(METHOD_FORGET, "/kvasir.v1.Documents/Forget", forget_request, forget_reply, false, false)    \
    X(METHOD_CORPUS, "/kvasir.v1.Documents/Corpus", corpus_request, corpus_reply, false, false)    \
    X(METHOD_PRIORITIZE, "/kvasir.v1.Documents/Prioritize", prioritize_request, empty, false,      \
      false)                                                                                       \
    X(METHOD_STATS, "/kvasir.v1.Admin/Stats", empty, stats_reply, false, true)                     \
    X(METHOD_WORKERS, "/kvasir.v1.Admin/Workers", empty, workers_reply, false, true)               \
    X(METHOD_REQUESTS, "/kvasir.v1.Admin/Requests", empty, requests_reply, false, true)            \
    X(METHOD_ADMIN_CANCEL, "/kvasir.v1.Admin/CancelRequest", admin_cancel_request, empty, false,   \
      true)                                                                                        \
    X(METHOD_EVICT, "/kvasir.v1.Admin/Evict", evict_request, evict_reply, false, true)             \
    X(METHOD_DRAIN, "/kvasir.v1.Admin/Drain", drain_request, empty, false, true)                   \
    X(METHOD_CONFIG, "/kvasir.v1.Admin/Config", empty, config_reply, false, true)                  \
    X(METHOD_WHATIF, "/kvasir.v1.Admin/WhatIf", what_if_request, what_if_reply, false, true)       \
    X(METHOD_RELOAD, "/kvasir.v1.Admin/Reload", reload_request, reload_reply, false, true)         \
    X(METHOD_EXPLAIN, "/kvasir.v1.Admin/Explain", explain_request, explain_reply, false, true)     \
    X(METHOD_EVENTS, "/kvasir.v1.Admin/Events", events_request, event, true, true)                 \
    X(METHOD_HEALTH, "/kvasir.v1.Health/Check", empty, health_reply, false, false)                 \
    X(METHOD_METRICS, "/kvasir.v1.Health/Metrics", empty, stats_reply, false, false)

#define METHOD_CONSTANT(constant, path, request, reply, is_stream, is_admin) constant,
enum method_id {
    METHODS(METHOD_CONSTANT) METHOD_COUNT
};
#undef METHOD_CONSTANT

struct method {
    enum method_id id;
    const char *path;
    const ProtobufCMessageDescriptor *request;
    const ProtobufCMessageDescriptor *reply;
    bool is_stream;
    bool is_admin;
};

/* The method's row; for ever. */
const struct method *method_get(enum method_id id);

/* The row of a path, or NULL. */
const struct method *method_find(const char *path);

#endif
