/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/messages.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "kvasir/v1/wire.pb-c.h"
#include "kvasir/v1/worker.pb-c.h"
#include "proto/methods.h"

uint64_t
random_next(uint64_t *rng)
{
    uint64_t x = *rng += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* ---- every type ------------------------------------------------------------------------------ */

static size_t
add_type(const ProtobufCMessageDescriptor *types[MESSAGES_MAX], size_t count,
         const ProtobufCMessageDescriptor *type)
{
    for (size_t i = 0; i < count; i++) {
        if (types[i] == type) {
            return count;
        }
    }
    assert(count < MESSAGES_MAX);
    types[count++] = type;
    for (unsigned i = 0; i < type->n_fields; i++) {
        if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE) {
            count = add_type(types, count, type->fields[i].descriptor);
        }
    }
    return count;
}

size_t
messages_all(const ProtobufCMessageDescriptor *types_out[MESSAGES_MAX])
{
    static const ProtobufCMessageDescriptor *const roots[] = {
        &kvasir__v1__request_header__descriptor, &kvasir__v1__reply_header__descriptor,
        &kvasir__v1__attach__descriptor,         &kvasir__v1__attach_reply__descriptor,
        &kvasir__v1__attached__descriptor,       &kvasir__v1__worker_message__descriptor,
        &kvasir__v1__daemon_message__descriptor,
    };
    size_t count = 0;

    for (size_t i = 0; i < sizeof(roots) / sizeof(roots[0]); i++) {
        count = add_type(types_out, count, roots[i]);
    }
    for (int i = 0; i < METHOD_COUNT; i++) {
        count = add_type(types_out, count, method_get(i)->request);
        count = add_type(types_out, count, method_get(i)->reply);
    }
    return count;
}

/* ---- random messages ------------------------------------------------------------------------- */

static void *
zalloc(size_t size)
{
    void *storage = calloc(1, size);

    assert(storage != NULL);
    return storage;
}

static char *
random_text(uint64_t *rng)
{
    static const char *const pieces[] = {"a",    "Zeile\n", "\"quoted\\\"", "\x01\x1f", "Å",
                                         "日本", "😀"};
    char *text = zalloc(64);
    size_t length = 0;

    for (uint64_t n = random_next(rng) % 5; n > 0; n--) {
        const char *piece = pieces[random_next(rng) % (sizeof(pieces) / sizeof(pieces[0]))];

        memcpy(text + length, piece, strlen(piece));
        length += strlen(piece);
    }
    return text;
}

static ProtobufCBinaryData
random_bytes(uint64_t *rng)
{
    ProtobufCBinaryData data = {.len = 1 + random_next(rng) % 40};

    data.data = zalloc(data.len);
    for (size_t i = 0; i < data.len; i++) {
        data.data[i] = (uint8_t)random_next(rng);
    }
    return data;
}

static size_t
element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_DOUBLE: return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    default: return 4; /* also bool and enums */
    }
}

static void
set_random(const ProtobufCFieldDescriptor *field, void *at, uint64_t *rng)
{
    uint64_t bits = random_next(rng) >> (random_next(rng) % 64);
    float real = (float)(int64_t)bits / 1024.0f;
    protobuf_c_boolean truth = bits & 1;
    ProtobufCBinaryData data;
    const void *source = &bits; /* little-endian: the low bytes are the number */
    char *text;
    ProtobufCMessage *message;

    switch (field->type) {
    case PROTOBUF_C_TYPE_BOOL: source = &truth; break;
    case PROTOBUF_C_TYPE_FLOAT: source = &real; break;
    case PROTOBUF_C_TYPE_ENUM: {
        const ProtobufCEnumDescriptor *type = field->descriptor;

        bits = (uint64_t)type->values[bits % type->n_values].value;
        break;
    }
    case PROTOBUF_C_TYPE_STRING:
        text = random_text(rng);
        source = &text;
        break;
    case PROTOBUF_C_TYPE_BYTES:
        data = random_bytes(rng);
        source = &data;
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        message = message_random(field->descriptor, rng);
        source = &message;
        break;
    default: break;
    }
    memcpy(at, source, element_size(field->type));
}

static void
set_repeated(ProtobufCMessage *message, const ProtobufCFieldDescriptor *field, uint64_t *rng)
{
    size_t count = random_next(rng) % 4;
    size_t size = element_size(field->type);
    char *array = count == 0 ? NULL : zalloc(count * size);

    for (size_t i = 0; i < count; i++) {
        set_random(field, array + i * size, rng);
    }
    memcpy((char *)message + field->offset, &array, sizeof(array));
    memcpy((char *)message + field->quantifier_offset, &count, sizeof(count));
}

ProtobufCMessage *
message_random(const ProtobufCMessageDescriptor *type, uint64_t *rng)
{
    ProtobufCMessage *message = zalloc(type->sizeof_message);

    protobuf_c_message_init(type, message);
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        uint32_t *quantifier = (uint32_t *)(void *)((char *)message + field->quantifier_offset);
        bool is_oneof = (field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0;

        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            set_repeated(message, field, rng);
        } else if (random_next(rng) % 2 == 0 && !(is_oneof && *quantifier != 0)) {
            set_random(field, (char *)message + field->offset, rng);
            if (is_oneof) {
                *quantifier = field->id;
            } else if (field->type != PROTOBUF_C_TYPE_STRING
                       && field->type != PROTOBUF_C_TYPE_MESSAGE) {
                *quantifier = 1;
            }
        }
    }
    return message;
}
