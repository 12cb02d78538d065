/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/segment.h"

#include <assert.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token_ids_le is read where it lies");

enum status
segment_ids(const Kvasir__V1__Segment *segment, const uint32_t **ids_out, size_t *count_out)
{
    const ProtobufCBinaryData *bytes = &segment->token_ids_le;

    if (!segment->has_token_ids_le) {
        *ids_out = segment->token_ids;
        *count_out = segment->n_token_ids;
        return ST_OK;
    }
    if (segment->n_token_ids > 0) {
        return ERR(ST_INVALID, "more than one of token_ids and token_ids_le");
    }
    if (bytes->len % sizeof(uint32_t) != 0) {
        return ERR(ST_INVALID, "token_ids_le has %zu bytes: four an id", bytes->len);
    }
    assert((uintptr_t)bytes->data % _Alignof(uint32_t) == 0); /* as wire_unpack allocates */
    *ids_out = (const uint32_t *)(const void *)bytes->data;
    *count_out = bytes->len / sizeof(uint32_t);
    return ST_OK;
}

enum status
segment_check_ids(uint32_t vocab_size, const uint32_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] >= vocab_size) {
            return ERR(ST_INVALID, "token_ids[%zu] is %u: the vocabulary has %u", i, ids[i],
                       vocab_size);
        }
    }
    return ST_OK;
}
