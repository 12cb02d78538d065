/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/refusal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char INVALID_REQUEST[] = "invalid_request_error";

void
refusal_set(struct refusal *refusal, const char *param, const char *format, ...)
{
    va_list args;

    *refusal = (struct refusal){.status = 400, .type = INVALID_REQUEST};
    (void)snprintf(refusal->param, sizeof(refusal->param), "%s", param == NULL ? "" : param);
    va_start(args, format);
    (void)vsnprintf(refusal->message, sizeof(refusal->message), format, args);
    va_end(args);
}

void
refusal_set_kind(struct refusal *refusal, unsigned status, const char *type, const char *code,
                 const char *message)
{
    *refusal = (struct refusal){.status = status, .type = type, .code = code};
    (void)snprintf(refusal->message, sizeof(refusal->message), "%s", message);
}

/* gRPC code -> HTTP status, type, code. */
static const struct row {
    uint32_t rpc;
    unsigned status;
    const char *type;
    const char *code;
} rows[] = {
    {RPC_CANCELLED, 499, "request_cancelled", "cancelled"},
    {RPC_INVALID_ARGUMENT, 400, INVALID_REQUEST, NULL},
    {RPC_DEADLINE_EXCEEDED, 504, "timeout_error", "deadline_exceeded"},
    {RPC_NOT_FOUND, 404, INVALID_REQUEST, "document_not_found"},
    {RPC_ALREADY_EXISTS, 409, INVALID_REQUEST, NULL},
    {RPC_PERMISSION_DENIED, 403, "permission_error", NULL},
    {RPC_RESOURCE_EXHAUSTED, 429, "rate_limit_error", "server_busy"},
    {RPC_FAILED_PRECONDITION, 400, INVALID_REQUEST, NULL},
    {RPC_ABORTED, 409, INVALID_REQUEST, NULL},
    {RPC_OUT_OF_RANGE, 400, INVALID_REQUEST, "context_length_exceeded"},
    {RPC_UNIMPLEMENTED, 501, "server_error", "not_implemented"},
    {RPC_UNAVAILABLE, 503, "unavailable_error", "unavailable"},
    {RPC_UNAUTHENTICATED, 401, "authentication_error", "invalid_api_key"},
};

/* The daemon's details begin with the field where one is to blame: "documents[1]: ...". */
static void
take_param(struct refusal *refusal)
{
    size_t length = strspn(refusal->message, "abcdefghijklmnopqrstuvwxyz_.[]0123456789");
    const char *field = refusal->message;

    if (strncmp(field, "sampling.", strlen("sampling.")) == 0) {
        field += strlen("sampling.");
        length -= strlen("sampling.");
    }
    if (length > 0 && length < sizeof(refusal->param)
        && (strncmp(field, "documents[", 10) == 0 || strncmp(field, "messages[", 9) == 0
            || field != refusal->message)) {
        memcpy(refusal->param, field, length);
        refusal->param[length] = '\0';
    }
}

void
refusal_of_reply(struct refusal *refusal, const struct hub_reply *reply)
{
    struct row row = {.status = 500, .type = "server_error"};

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].rpc == reply->code) {
            row = rows[i];
        }
    }
    refusal_set_kind(refusal, row.status, row.type, row.code, reply->detail);
    refusal->retry_after_s = (reply->retry_after_ms + 999) / 1000;
    take_param(refusal);
}

void
refusal_render(const struct refusal *refusal, struct text *out)
{
    text_add(out, "{\"error\":{\"message\":");
    text_json_string(out, refusal->message);
    text_format(out, ",\"type\":\"%s\",\"param\":", refusal->type);
    if (refusal->param[0] == '\0') {
        text_add(out, "null");
    } else {
        text_json_string(out, refusal->param);
    }
    text_add(out, ",\"code\":");
    if (refusal->code == NULL) {
        text_add(out, "null");
    } else {
        text_format(out, "\"%s\"", refusal->code);
    }
    text_add(out, "}}");
}
