/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes, and those that are one question to kvasird. */
#include "gateway/routes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/mem.h"
#include "gateway/keys.h"
#include "gateway/request.h"
#include "gateway/server.h"
#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/health.pb-c.h"

#define ARGUMENT_BYTES_MAX 512

/* ---- health, version, metrics ---------------------------------------------------------------- */

/* llama-server's shape, which load balancers know. */
static void
refuse_health(struct exchange *exchange, const char *message)
{
    struct text body = {0};

    text_add(&body, "{\"error\":{\"code\":503,\"message\":");
    text_json_string(&body, message);
    text_add(&body, ",\"type\":\"unavailable_error\"}}\n");
    exchange->retry_after_s = 1;
    exchange_answer(exchange, 503, "application/json", &body);
}

static void
on_health(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    if (reply->code != RPC_OK) {
        refuse_health(exchange, reply->detail);
    } else if (!server_knows_model(exchange->server)) {
        refuse_health(exchange, "kvasird has not said yet which model it serves");
    } else if (health->status != KVASIR__V1__SERVING_STATUS__SERVING) {
        refuse_health(exchange, health->detail == NULL ? "not serving" : health->detail);
    } else {
        text_add(&body, "{\"status\":\"ok\"}");
        exchange_answer_json(exchange, &body);
    }
}

static void
handle_health(struct exchange *exchange)
{
    if (atomic_load(&exchange->server->is_draining)) {
        refuse_health(exchange, "the gateway is draining");
    } else {
        (void)exchange_call(exchange, METHOD_HEALTH, NULL, 0, on_health);
    }
}

static void
on_version(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__HealthReply *health = (const void *)reply->message;
    struct text body = {0};

    (void)index;
    text_add(&body, "{\"version\":\"" PACKAGE_VERSION "\",\"daemon\":");
    if (reply->code != RPC_OK || health->version == NULL) {
        text_add(&body, "null");
    } else {
        text_json_string(&body, health->version);
    }
    text_format(&body, ",\"protocol\":%d}", WIRE_VERSION);
    exchange_answer_json(exchange, &body);
}

static void
handle_version(struct exchange *exchange)
{
    (void)exchange_call(exchange, METHOD_HEALTH, NULL, 0, on_version);
}

static void
on_metrics(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    struct server *server = exchange->server;
    struct text body = {0};
    char model[SERVER_MODEL_BYTES];

    (void)index;
    server_model_name(server, model);
    metrics_render(&server->metrics, (const void *)reply->message,
                   atomic_load(&server->exchanges_open),
                   strcmp(server->options.metrics_compat, "vllm") == 0, model, &body);
    exchange_answer(exchange, 200, "text/plain; version=0.0.4; charset=utf-8", &body);
}

static void
handle_metrics(struct exchange *exchange)
{
    (void)exchange_call(exchange, METHOD_METRICS, NULL, 0, on_metrics);
}

/* ---- models ---------------------------------------------------------------------------------- */

static void
add_model(struct text *body, const char *name, size_t length, const Kvasir__V1__ModelReply *model)
{
    text_add(body, "{\"id\":");
    text_json(body, name, length);
    text_format(body,
                ",\"object\":\"model\",\"created\":%" PRIu64 ",\"owned_by\":\"kvasir\",\"root\":",
                model->created_s);
    text_json_string(body, model->name == NULL ? "" : model->name);
    text_format(body, ",\"parent\":null,\"max_model_len\":%u}", model->context_tokens);
}

/* All names, or the one that was asked for. */
static void
on_models(struct exchange *exchange, unsigned index, const struct hub_reply *reply)
{
    const Kvasir__V1__ModelReply *model = (const void *)reply->message;
    const char *wanted = exchange->argument;
    const char *names = exchange->server->options.served_model_name;
    struct text body = {0};
    unsigned found = 0;

    (void)index;
    if (exchange_refuse_reply(exchange, reply)) {
        return;
    }
    names = names == NULL ? (model->name == NULL ? "" : model->name) : names;
    text_add(&body, wanted == NULL ? "{\"object\":\"list\",\"data\":[" : "");
    while (names != NULL) {
        const char *comma = strchr(names, ',');
        size_t length = comma == NULL ? strlen(names) : (size_t)(comma - names);

        if (wanted == NULL || (strlen(wanted) == length && memcmp(wanted, names, length) == 0)) {
            text_add(&body, found++ > 0 ? "," : "");
            add_model(&body, names, length, model);
        }
        names = comma == NULL ? NULL : comma + 1;
    }
    text_add(&body, wanted == NULL ? "]}" : "");
    if (found > 0) {
        exchange_answer_json(exchange, &body);
        return;
    }
    text_deinit(&body);
    exchange_refuse_as(exchange, 404, "invalid_request_error", "model_not_found",
                       "the model %.128s does not exist here", wanted);
}

static void
handle_models(struct exchange *exchange)
{
    (void)exchange_call(exchange, METHOD_MODEL, NULL, 0, on_models);
}

/* ---- the table ------------------------------------------------------------------------------- */

static const struct route routes[] = {
    {"POST", "/v1/chat/completions", NULL, "chat", false, chat_handle, NULL},
    {"POST", "/v1/completions", NULL, "completions", false, completion_handle, NULL},
    {"GET", "/v1/models", NULL, "models", false, handle_models, NULL},
    {"GET", "/v1/models/", "", "models", false, handle_models, NULL},
    {"POST", "/v1/documents", NULL, "documents", false, document_register, NULL},
    {"GET", "/v1/documents", NULL, "documents", false, document_list, NULL},
    {"POST", "/v1/documents/", "/pin", "documents", false, document_pin, "pinned"},
    {"DELETE", "/v1/documents/", "/pin", "documents", false, document_unpin, "unpinned"},
    {"POST", "/v1/documents/", "/warm", "documents", false, document_warm, "warm"},
    {"GET", "/v1/documents/", "", "documents", false, document_get, NULL},
    {"DELETE", "/v1/documents/", "", "documents", false, document_delete, "deleted"},
    {"POST", "/tokenize", NULL, "tokenize", false, tokenize_handle, NULL},
    {"POST", "/detokenize", NULL, "detokenize", false, detokenize_handle, NULL},
    {"GET", "/health", NULL, "health", true, handle_health, NULL},
    {"GET", "/version", NULL, "version", true, handle_version, NULL},
    {"GET", "/metrics", NULL, "metrics", true, handle_metrics, NULL},
};

/* Whether a path is the route's; *argument is what stands at its place, not NUL-terminated. */
static bool
matches(const struct route *route, const char *url, const char **argument, size_t *length)
{
    size_t prefix = strlen(route->path);
    size_t tail;

    if (route->tail == NULL) {
        *argument = NULL;
        return strcmp(url, route->path) == 0;
    }
    if (strncmp(url, route->path, prefix) != 0) {
        return false;
    }
    *argument = url + prefix;
    *length = strlen(*argument);
    tail = strlen(route->tail);
    if (*length <= tail || strcmp(*argument + *length - tail, route->tail) != 0) {
        return false;
    }
    *length -= tail;
    return *length <= ARGUMENT_BYTES_MAX; /* slashes and all: ids may be paths */
}

/* Another method of the same path: "GET, DELETE". */
static void
add_method(char allow[ROUTES_ALLOW_BYTES], const char *method)
{
    size_t length = strlen(allow);

    (void)snprintf(allow + length, ROUTES_ALLOW_BYTES - length, "%s%s", length == 0 ? "" : ", ",
                   method);
}

const struct route *
routes_find(const char *method, const char *url, char **argument_out,
            char allow[ROUTES_ALLOW_BYTES])
{
    const char *argument = NULL;
    size_t length = 0;

    *argument_out = NULL;
    allow[0] = '\0';
    method = strcmp(method, "HEAD") == 0 ? "GET" : method;
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (!matches(&routes[i], url, &argument, &length)) {
            continue;
        }
        if (strcmp(routes[i].method, method) != 0) {
            add_method(allow, routes[i].method);
            continue;
        }
        if (argument != NULL) {
            char *copy = mem_zalloc(length + 1, 1);

            if (copy == NULL) {
                return NULL;
            }
            memcpy(copy, argument, length);
            *argument_out = copy;
        }
        return &routes[i];
    }
    return NULL;
}
