/* SPDX-License-Identifier: Apache-2.0 */
/* Any OpenAI server: /completions for token ids, /chat/completions for texts, streamed.  One
 * connection a request, as most clients of such servers make; connecting is not timed apart, it is
 * part of the answer's time there. */
#include "bench/target.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <json-c/json.h>

#include "bench/sse.h"
#include "common/clock.h"
#include "common/mem.h"

#define READ_BYTES        65536
#define MODELS_TIMEOUT_US 30000000

struct http {
    struct json_object *body;
    char *message; /* headers and body */
    size_t length;
    struct outcome *outcome;
    bool was_done; /* [DONE] came */
    uint32_t outputs;
    bool has_usage;
    uint32_t cached_tokens;
};

static enum status
open_http(struct connection *connection)
{
    connection->state = mem_zalloc(1, sizeof(struct http));
    return connection->state == NULL ? ERR(ST_NO_MEMORY, "a connection") : ST_OK;
}

static void
forget_message(struct http *http)
{
    json_object_put(http->body);
    http->body = NULL;
    MEM_FREE(http->message);
}

static void
close_http(struct connection *connection)
{
    forget_message(connection->state);
    mem_free(connection->state);
}

static void
add(struct json_object *object, const char *key, struct json_object *value)
{
    (void)json_object_object_add(object, key, value);
}

static enum status
add_ids(struct json_object *array, const struct workload *workload, uint64_t stream, uint32_t count)
{
    uint32_t *ids = mem_zalloc(count, sizeof(*ids));

    if (ids == NULL) {
        return ERR(ST_NO_MEMORY, "%u ids", count);
    }
    workload_ids(workload, stream, count, ids);
    for (uint32_t i = 0; i < count; i++) {
        (void)json_object_array_add(array, json_object_new_int64(ids[i]));
    }
    mem_free(ids);
    return ST_OK;
}

/* "prompt": all ids, one after the other. */
static enum status
add_prompt(struct json_object *body, const struct workload *workload,
           const struct workload_request *request)
{
    struct json_object *ids = json_object_new_array();

    add(body, "prompt", ids);
    for (uint32_t i = 0; i < request->n_documents; i++) {
        const struct workload_document *document = &workload->documents[request->documents[i]];

        if (document->text != NULL) {
            return ERR(ST_INVALID, "a document of text goes with a question of text");
        }
        TRY(add_ids(ids, workload, document->stream, document->tokens));
    }
    return add_ids(ids, workload, request->stream, request->query_tokens);
}

/* "messages": one, with the documents in front of the question. */
static enum status
add_messages(struct json_object *body, const struct workload *workload,
             const struct workload_request *request)
{
    struct json_object *messages = json_object_new_array(), *message = json_object_new_object();
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    add(body, "messages", messages);
    (void)json_object_array_add(messages, message);
    if (out == NULL) {
        return ERR(ST_NO_MEMORY, "a message");
    }
    for (uint32_t i = 0; i < request->n_documents; i++) {
        const struct workload_document *document = &workload->documents[request->documents[i]];

        (void)fprintf(out, "%s%s%s\n\n", document->title == NULL ? "" : document->title,
                      document->title == NULL ? "" : "\n",
                      document->text == NULL ? "" : document->text);
    }
    (void)fprintf(out, "%s", request->question);
    (void)fclose(out);
    add(message, "role", json_object_new_string("user"));
    add(message, "content", json_object_new_string_len(text, (int)length));
    free(text);
    return ST_OK;
}

static enum status
prepare(struct connection *connection, const struct workload_request *request)
{
    const struct target *target = connection->target;
    struct http *http = connection->state;
    struct json_object *options = json_object_new_object();
    bool is_chat = request->question != NULL;

    forget_message(http);
    http->body = json_object_new_object();
    if (target->model != NULL) {
        add(http->body, "model", json_object_new_string(target->model));
    }
    add(http->body, "max_tokens", json_object_new_int64(request->output_tokens));
    add(http->body, "temperature", json_object_new_double(0.0));
    add(http->body, "seed", json_object_new_int64((int64_t)(connection->run.sampling_seed >> 33)));
    add(http->body, "ignore_eos", json_object_new_boolean(true)); /* vLLM's; others pass it over */
    add(http->body, "stream", json_object_new_boolean(true));
    add(options, "include_usage", json_object_new_boolean(true));
    add(http->body, "stream_options", options);
    TRY(is_chat ? add_messages(http->body, connection->run.workload, request)
                : add_prompt(http->body, connection->run.workload, request));
    const char *text = json_object_to_json_string_ext(http->body, JSON_C_TO_STRING_PLAIN);
    FILE *out = open_memstream(&http->message, &http->length);

    if (out == NULL) {
        return ERR(ST_NO_MEMORY, "a request");
    }
    (void)fprintf(out,
                  "POST %s%s HTTP/1.1\r\nHost: %s:%s\r\nContent-Type: application/json\r\n"
                  "Accept: text/event-stream\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s",
                  target->place, is_chat ? "/chat/completions" : "/completions", target->host,
                  target->port, strlen(text), text);
    return fclose(out) == 0 ? ST_OK : ERR(ST_NO_MEMORY, "a request");
}

/* --- the answer ----------------------------------------------------------------------------- */

static uint32_t
count_in(struct json_object *object, const char *key)
{
    struct json_object *value;

    return json_object_object_get_ex(object, key, &value) ? (uint32_t)json_object_get_int64(value)
                                                          : 0;
}

static void
take_usage(struct http *http, struct json_object *usage)
{
    struct json_object *details;

    http->has_usage = true;
    http->outcome->input_tokens = count_in(usage, "prompt_tokens");
    http->outcome->output_tokens = count_in(usage, "completion_tokens");
    if (json_object_object_get_ex(usage, "prompt_tokens_details", &details)
        && json_object_is_type(details, json_type_object)) {
        http->outcome->has_reuse = true;
        http->cached_tokens = count_in(details, "cached_tokens");
    }
}

/* The output of an event, or NULL.  A completion's may be empty: a token that ends no character.
 * The first event of a chat has a role and perhaps an empty content: no token yet. */
static const char *
text_of_choice(struct json_object *choice)
{
    struct json_object *delta, *text;

    if (json_object_object_get_ex(choice, "text", &text)) {
        return json_object_is_type(text, json_type_string) ? json_object_get_string(text) : NULL;
    }
    if (!json_object_object_get_ex(choice, "delta", &delta)
        || !json_object_object_get_ex(delta, "content", &text)
        || !json_object_is_type(text, json_type_string) || json_object_get_string_len(text) == 0) {
        return NULL;
    }
    return json_object_get_string(text);
}

static void
on_event(void *opaque, const char *data, size_t length)
{
    struct http *http = opaque;
    struct json_object *event, *choices, *usage;
    uint64_t now_us = clock_now_us();

    if (length == 6 && memcmp(data, "[DONE]", 6) == 0) {
        http->was_done = true;
        return;
    }
    event = json_tokener_parse(data);
    if (json_object_object_get_ex(event, "choices", &choices)
        && json_object_is_type(choices, json_type_array) && json_object_array_length(choices) > 0) {
        const char *text = text_of_choice(json_object_array_get_idx(choices, 0));

        if (text != NULL) {
            http->outputs++;
            outcome_output(http->outcome, text, strlen(text), now_us);
        }
    }
    if (json_object_object_get_ex(event, "usage", &usage)
        && json_object_is_type(usage, json_type_object)) {
        take_usage(http, usage);
    }
    json_object_put(event);
}

static int
connect_to(const struct target *target)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int fd = -1;

    if (getaddrinfo(target->host, target->port, &hints, &found) != 0) {
        return -1;
    }
    for (struct addrinfo *at = found; fd < 0 && at != NULL; at = at->ai_next) {
        fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, at->ai_protocol);
        if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) != 0) {
            (void)close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

static enum status
send_all(int fd, const char *bytes, size_t length)
{
    while (length > 0) {
        ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);

        if (n < 0 && errno != EINTR) {
            return ERR(ST_SYSTEM, "send: %s", strerror(errno));
        }
        bytes += n < 0 ? 0 : n;
        length -= n < 0 ? 0 : (size_t)n;
    }
    return ST_OK;
}

static enum status
receive_all(int fd, struct sse *sse, uint64_t deadline_us)
{
    static _Thread_local char bytes[READ_BYTES];

    while (!sse->is_done) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        uint64_t now_us = clock_now_us();

        if (now_us >= deadline_us
            || poll(&ready, 1, (int)((deadline_us - now_us) / 1000 + 1)) == 0) {
            return ERR(ST_UNAVAILABLE, "no whole answer in time");
        }
        ssize_t n = recv(fd, bytes, sizeof(bytes), 0);

        if (n < 0 && errno != EINTR) {
            return ERR(ST_SYSTEM, "recv: %s", strerror(errno));
        }
        if (n == 0) {
            return sse_close(sse);
        }
        TRY(n < 0 ? ST_OK : sse_feed(sse, bytes, (size_t)n));
    }
    return ST_OK;
}

static void
ignore_event(void *opaque, const char *data, size_t length)
{
    (void)opaque;
    (void)data;
    (void)length;
}

static enum status
first_model(const char *text, char **model_out)
{
    struct json_object *answer = json_tokener_parse(text), *data, *first, *id;
    enum status st = ST_OK;

    if (!json_object_object_get_ex(answer, "data", &data)
        || !json_object_is_type(data, json_type_array)
        || (first = json_object_array_get_idx(data, 0)) == NULL
        || !json_object_object_get_ex(first, "id", &id)
        || !json_object_is_type(id, json_type_string)) {
        st = ERR(ST_INVALID, "it names no model: %.100s", text);
    } else {
        *model_out = mem_strdup(json_object_get_string(id));
        st = *model_out == NULL ? ERR(ST_NO_MEMORY, "a name") : ST_OK;
    }
    json_object_put(answer);
    return st;
}

enum status
target_find_model(struct target *target)
{
    char request[512];
    struct sse sse;
    int fd;

    if (target->kind != TARGET_HTTP || target->model != NULL) {
        return ST_OK;
    }
    int length = snprintf(request, sizeof(request),
                          "GET %s/models HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\n\r\n",
                          target->place, target->host, target->port);

    if (length >= (int)sizeof(request) || (fd = connect_to(target)) < 0) {
        return ERR(ST_UNAVAILABLE, "target %s: cannot connect to %s:%s", target->name, target->host,
                   target->port);
    }
    sse_begin(&sse, ignore_event, NULL);
    enum status st = send_all(fd, request, (size_t)length);

    st = st != ST_OK ? st : receive_all(fd, &sse, clock_now_us() + MODELS_TIMEOUT_US);
    st = st != ST_OK ? st : first_model(sse_body(&sse), &target->model);
    (void)close(fd);
    sse_deinit(&sse);
    return st;
}

/* What a server does not tell is counted from what came. */
static void
settle_usage(const struct connection *connection, struct http *http)
{
    const struct workload_request *request = connection->request;
    struct outcome *outcome = http->outcome;

    if (!http->has_usage) {
        outcome->output_tokens = http->outputs;
    }
    for (uint32_t i = 0; i < request->n_documents; i++) {
        outcome->document_tokens +=
            connection->run.workload->documents[request->documents[i]].tokens;
    }
    outcome->tokens_reused = http->cached_tokens < outcome->document_tokens
                                 ? http->cached_tokens
                                 : outcome->document_tokens;
}

static const char *
ask(struct connection *connection, struct outcome *outcome)
{
    struct http *http = connection->state;
    struct sse sse;
    enum status st = ST_OK;
    uint64_t deadline_us = clock_now_us() + connection->run.timeout_ms * UINT64_C(1000);
    int fd = connect_to(connection->target);

    if (fd < 0) {
        (void)snprintf(connection->error, sizeof(connection->error), "cannot connect to %s:%s",
                       connection->target->host, connection->target->port);
        return connection->error;
    }
    http->outcome = outcome;
    http->has_usage = http->was_done = false;
    http->outputs = http->cached_tokens = 0;
    sse_begin(&sse, on_event, http);
    st = send_all(fd, http->message, http->length);
    st = st != ST_OK ? st : receive_all(fd, &sse, deadline_us);
    (void)close(fd);
    if (st != ST_OK) {
        (void)snprintf(connection->error, sizeof(connection->error), "%s", status_detail());
    } else if (sse.status != 200) {
        (void)snprintf(connection->error, sizeof(connection->error), "HTTP %d: %.100s", sse.status,
                       sse_body(&sse));
        st = ST_INVALID;
    } else {
        settle_usage(connection, http);
    }
    sse_deinit(&sse);
    return st == ST_OK ? NULL : connection->error;
}

const struct target_ops target_http = {
    .open = open_http,
    .close = close_http,
    .prepare = prepare,
    .ask = ask,
};
