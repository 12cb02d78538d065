/* SPDX-License-Identifier: Apache-2.0 */
/* Tries an input as every message type: what wire_unpack accepts must pack to bytes that it accepts
 * again and that stay the same from then on. */
#include <stdlib.h>
#include <string.h>

#include "proto/wire.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/messages.h"

static void
require(int is_true)
{
    if (!is_true) {
        abort();
    }
}

static void
round_trip(struct wire_arena *arena, const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
           size_t length)
{
    struct wire_buffer first = {0}, second = {0};
    const ProtobufCMessage *message;

    if (wire_unpack(arena, type, bytes, length, WIRE_ADMIN_BYTES_MAX, &message) != ST_OK) {
        return;
    }
    require(wire_pack(&first, message) == ST_OK);
    require(wire_unpack(arena, type, first.bytes, first.length, WIRE_CLIENT_BYTES_MAX, &message)
            == ST_OK);
    require(wire_pack(&second, message) == ST_OK);
    require(first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0);
    wire_buffer_deinit(&first);
    wire_buffer_deinit(&second);
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t length)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);
    struct wire_arena *arena = NULL;

    require(wire_arena_new(&arena) == ST_OK);
    for (size_t i = 0; i < count; i++) {
        round_trip(arena, types[i], bytes, length);
        wire_arena_reset(arena);
    }
    wire_arena_destroy(&arena);
    return 0;
}
