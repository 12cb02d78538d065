/* SPDX-License-Identifier: Apache-2.0 */
/* messages - every message type of ours, and random messages of each; for tests and the fuzzer. */
#ifndef TESTS_SUPPORT_MESSAGES_H
#define TESTS_SUPPORT_MESSAGES_H

#include <stddef.h>
#include <stdint.h>

#include <protobuf-c/protobuf-c.h>

#define MESSAGES_MAX 128

/* Fills types_out with every type that a method, a header or the worker link uses, also inside
 * others; returns how many.  The order is stable. */
size_t messages_all(const ProtobufCMessageDescriptor *types_out[MESSAGES_MAX]);

/* A message with about half of its fields set, repeated ones 0 to 3 times.  Free it with
 * protobuf_c_message_free_unpacked(message, NULL). */
ProtobufCMessage *message_random(const ProtobufCMessageDescriptor *type, uint64_t *rng);

/* splitmix64. */
uint64_t random_next(uint64_t *rng);

#endif
