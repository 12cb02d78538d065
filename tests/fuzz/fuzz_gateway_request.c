/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of HTTP requests: whatever they hold, they are read or refused, and nothing leaks.  The
 * first byte chooses the endpoint. */
#include <assert.h>

#include "gateway/request.h"
#include "tests/fuzz/fuzz.h"

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    const struct request_limits limits = {.choices_max = 16, .temperature = 1};
    struct request request;
    struct refusal refusal = {0};

    if (length == 0) {
        return 0;
    }
    enum request_kind kind = (enum request_kind)(bytes[0] % (REQUEST_DOCUMENT_ACTION + 1));

    if (request_read(&request, kind, (const char *)bytes + 1, length - 1, &limits, &refusal)) {
        for (size_t i = 0; i < request.prompt_count; i++) {
            request_use_prompt(&request, i);
        }
        assert(protobuf_c_message_get_packed_size(&request.message.base) < (1u << 28));
    } else {
        assert(refusal.status >= 400 && refusal.message[0] != '\0');
    }
    request_deinit(&request);
    return 0;
}
