/* SPDX-License-Identifier: Apache-2.0 */
/* refusal - why a request is not served, as OpenAI's clients expect to be told.
 *
 *   {"error": {"message": "...", "type": "invalid_request_error", "param": "top_p", "code": null}}
 */
#ifndef GATEWAY_REFUSAL_H
#define GATEWAY_REFUSAL_H

#include <stdint.h>

#include "gateway/hub.h"
#include "gateway/text.h"

#define REFUSAL_MESSAGE_BYTES 512
#define REFUSAL_PARAM_BYTES   96

struct refusal {
    unsigned status;                 /* HTTP */
    const char *type;                /* "invalid_request_error" */
    const char *code;                /* "model_not_found"; NULL: null */
    uint32_t retry_after_s;          /* 0: not said */
    char param[REFUSAL_PARAM_BYTES]; /* the field; "": null */
    char message[REFUSAL_MESSAGE_BYTES];
};

/* A request that is wrong: 400. `param` may be NULL. */
void refusal_set(struct refusal *refusal, const char *param, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Any other kind. */
void refusal_set_kind(struct refusal *refusal, unsigned status, const char *type, const char *code,
                      const char *message);

/* What the daemon answered with a code other than OK. */
void refusal_of_reply(struct refusal *refusal, const struct hub_reply *reply);

void refusal_render(const struct refusal *refusal, struct text *out);

#endif
