/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/target.h"

#include <stdio.h>
#include <string.h>

#include "client/rpc.h"
#include "common/clock.h"
#include "common/mem.h"
#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "proto/endpoints.h"

static char *
copy(const char *text, size_t length)
{
    char *out = mem_zalloc(length + 1, 1);

    if (out != NULL) {
        memcpy(out, text, length);
    }
    return out;
}

static enum status
parse_kvasir(const char *rest, struct target *target)
{
    static const char *const modes[] = {"", "lazy", "reencode", "prefix", "none"};
    const char *query = strchr(rest, '?');
    size_t length = query == NULL ? strlen(rest) : (size_t)(query - rest);

    target->kind = TARGET_KVASIR;
    target->place = copy(rest, length);
    if (query != NULL) {
        target->reuse = -1;
        for (int i = 1; i < 5 && strncmp(query, "?reuse=", 7) == 0; i++) {
            target->reuse = strcmp(query + 7, modes[i]) == 0 ? i : target->reuse;
        }
        if (target->reuse < 0) {
            return ERR(ST_INVALID, "target %s: \"%s\" must be ?reuse=lazy|reencode|prefix|none",
                       target->name, query);
        }
    }
    return length == 0 ? ERR(ST_INVALID, "target %s: kvasir: needs a folder", target->name) : ST_OK;
}

static enum status
parse_http(const char *rest, struct target *target)
{
    const char *path = strchr(rest, '/');
    const char *query = strchr(rest, '?');
    const char *host_end = path != NULL ? path : query != NULL ? query : rest + strlen(rest);
    const char *colon = memchr(rest, ':', (size_t)(host_end - rest));
    const char *name_end = colon == NULL ? host_end : colon;

    target->kind = TARGET_HTTP;
    target->host = copy(rest, (size_t)(name_end - rest));
    target->port =
        colon == NULL ? mem_strdup("80") : copy(colon + 1, (size_t)(host_end - colon - 1));
    if (path != NULL) {
        target->place = query == NULL ? mem_strdup(path) : copy(path, (size_t)(query - path));
    } else {
        target->place = mem_strdup("");
    }
    if (query != NULL && strncmp(query, "?model=", 7) != 0) {
        return ERR(ST_INVALID, "target %s: \"%s\" must be ?model=MODEL", target->name, query);
    }
    target->model = query == NULL ? NULL : mem_strdup(query + 7);
    if (name_end == rest) {
        return ERR(ST_INVALID, "target %s: http:// needs a host", target->name);
    }
    return target->port == NULL ? ERR(ST_NO_MEMORY, "a target") : ST_OK;
}

enum status
target_parse(const char *text, struct target *target_out)
{
    const char *equals = strchr(text, '=');
    struct target target = {0};
    enum status st;

    if (equals == NULL || equals == text || equals - text >= TARGET_NAME_MAX) {
        return ERR(ST_INVALID, "\"%s\" is no target: NAME=kvasir:DIR or NAME=http://HOST:PORT/v1",
                   text);
    }
    memcpy(target.name, text, (size_t)(equals - text));
    if (strncmp(equals + 1, "kvasir:", 7) == 0) {
        st = parse_kvasir(equals + 8, &target);
    } else if (strncmp(equals + 1, "http://", 7) == 0) {
        st = parse_http(equals + 8, &target);
    } else {
        st = ERR(ST_INVALID, "target %s: must begin with kvasir: or http://", target.name);
    }
    if (st == ST_OK && target.place == NULL) {
        st = ERR(ST_NO_MEMORY, "a target");
    }
    if (st != ST_OK) {
        target_deinit(&target);
        return st;
    }
    *target_out = target;
    return ST_OK;
}

void
target_deinit(struct target *target)
{
    mem_free(target->place);
    mem_free(target->host);
    mem_free(target->port);
    mem_free(target->model);
    *target = (struct target){0};
}

enum status
connection_open(const struct target *target, const struct target_run *run,
                struct connection **connection_out)
{
    struct connection *connection = mem_zalloc(1, sizeof(*connection));

    if (connection == NULL) {
        return ERR(ST_NO_MEMORY, "a connection");
    }
    connection->ops = target->kind == TARGET_KVASIR ? &target_kvasir : &target_http;
    connection->target = target;
    connection->run = *run;
    enum status st = connection->ops->open(connection);

    if (st != ST_OK) {
        mem_free(connection);
        return st;
    }
    *connection_out = connection;
    return ST_OK;
}

void
connection_close(struct connection **connection)
{
    if (*connection != NULL) {
        (*connection)->ops->close(*connection);
        MEM_FREE(*connection);
    }
}

enum status
connection_prepare(struct connection *connection, const struct workload_request *request)
{
    connection->request = request;
    return connection->ops->prepare(connection, request);
}

void
connection_ask(struct connection *connection, uint64_t due_us, struct outcome *outcome)
{
    outcome_begin(outcome, due_us, clock_now_us());
    const char *error = connection->ops->ask(connection, outcome);

    outcome_end(outcome, error, clock_now_us());
}

enum status
target_reset(const struct target *target)
{
    char url[ENDPOINT_URL_MAX];
    Kvasir__V1__EvictRequest all = KVASIR__V1__EVICT_REQUEST__INIT;
    const ProtobufCMessage *reply;
    struct rpc *rpc = NULL;

    if (target->kind != TARGET_KVASIR) {
        return ST_OK;
    }
    TRY(endpoint_url(target->place, ENDPOINT_ADMIN, url));
    TRY(rpc_open(url, &rpc));
    all.has_blocks = true;
    all.blocks = UINT32_MAX;
    enum rpc_code code = rpc_call(rpc,
                                  &(struct rpc_call){.method = METHOD_EVICT,
                                                     .request = &all.base,
                                                     .timeout_ms = RPC_UNARY_TIMEOUT_MS},
                                  &reply);
    enum status st = code == RPC_OK
                         ? ST_OK
                         : ERR(ST_UNAVAILABLE, "target %s: %s", target->name, rpc_message(rpc));

    rpc_close(&rpc);
    return st;
}
