/* SPDX-License-Identifier: Apache-2.0 */
/* retry - what a Generate call of the hub needs to go on at the next kvasird: libkvasir's resume,
 * for a request that is packed already.
 *
 * Messages may be put one behind the other and are read as one, so a retry is the bytes of the
 * first attempt and a GenerateRequest with nothing but `resume` in it. */
#ifndef GATEWAY_RETRY_H
#define GATEWAY_RETRY_H

#include "client/resume.h"
#include "proto/wire.h"

struct retry {
    struct resume resume;
    size_t request_bytes; /* of the first attempt */
    bool is_on;           /* the call may be sent again */
    uint64_t at_us;       /* when that is due; 0: it is not */
};

/* For a zeroed one.  A drawn answer gets a seed: it could not go on without.  ST_NO_MEMORY. */
enum status retry_begin(struct retry *retry, uint32_t window_ms,
                        const Kvasir__V1__GenerateRequest *request, struct wire_buffer *payload);
void retry_deinit(struct retry *retry);

/* Notes what came. */
void retry_take(struct retry *retry, const Kvasir__V1__GenerateReply *reply);

/* After an attempt ended so; true: `at_us` says when the next one is due. */
bool retry_may(struct retry *retry, bool was_lost, uint32_t code, uint64_t now_us);

/* Makes the payload the next attempt's, which begins.  ST_NO_MEMORY. */
enum status retry_prepare(struct retry *retry, struct wire_buffer *payload);

#endif
