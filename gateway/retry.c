/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/retry.h"

#include <string.h>

#include "common/mem.h"

static enum status
append(struct wire_buffer *payload, const Kvasir__V1__GenerateRequest *more)
{
    size_t length = protobuf_c_message_get_packed_size(&more->base);

    if (payload->length + length > payload->capacity) {
        uint8_t *bytes = mem_realloc(payload->bytes, payload->length + length, 1);

        if (bytes == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for %zu bytes of a request", length);
        }
        payload->bytes = bytes;
        payload->capacity = payload->length + length;
    }
    payload->length += protobuf_c_message_pack(&more->base, payload->bytes + payload->length);
    return ST_OK;
}

enum status
retry_begin(struct retry *retry, uint32_t window_ms, const Kvasir__V1__GenerateRequest *request,
            struct wire_buffer *payload)
{
    Kvasir__V1__GenerateRequest more = KVASIR__V1__GENERATE_REQUEST__INIT;
    Kvasir__V1__Sampling seed = KVASIR__V1__SAMPLING__INIT;
    Kvasir__V1__Sampling sampling = KVASIR__V1__SAMPLING__INIT;

    resume_init(&retry->resume, window_ms);
    retry->is_on = retry->resume.window_ms > 0;
    if (request->sampling != NULL) {
        sampling = *request->sampling;
    }
    resume_name_seed(&retry->resume, &sampling);
    if (sampling.has_seed && (request->sampling == NULL || !request->sampling->has_seed)) {
        seed.has_seed = true;
        seed.seed = sampling.seed;
        more.sampling = &seed;
        TRY(append(payload, &more));
    }
    retry->request_bytes = payload->length;
    return ST_OK;
}

void
retry_deinit(struct retry *retry)
{
    resume_deinit(&retry->resume);
}

void
retry_take(struct retry *retry, const Kvasir__V1__GenerateReply *reply)
{
    resume_take(&retry->resume, reply);
}

bool
retry_may(struct retry *retry, bool was_lost, uint32_t code, uint64_t now_us)
{
    if (!retry->is_on || !resume_may_try(&retry->resume, was_lost, code, now_us)) {
        return false;
    }
    retry->at_us = now_us + retry->resume.pause_ms * UINT64_C(1000);
    return true;
}

enum status
retry_prepare(struct retry *retry, struct wire_buffer *payload)
{
    Kvasir__V1__GenerateRequest more = KVASIR__V1__GENERATE_REQUEST__INIT;
    Kvasir__V1__Resume wire;

    retry->at_us = 0;
    payload->length = retry->request_bytes;
    resume_fill(&retry->resume, &wire, &more);
    TRY(append(payload, &more));
    /* kvasird ends the connection, which all calls share, at a frame that is larger. */
    return payload->length <= WIRE_CLIENT_BYTES_MAX
               ? ST_OK
               : ERR(ST_NO_MEMORY,
                     "to go on the request would need %zu bytes: at most %u are taken",
                     payload->length, WIRE_CLIENT_BYTES_MAX);
}
