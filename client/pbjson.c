/* SPDX-License-Identifier: Apache-2.0 */
#include "client/pbjson.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "proto/wire.h"

static void print_object(FILE *out, const char *members, const ProtobufCMessage *message);

/* ---- reaching into messages ------------------------------------------------------------------ */

static const void *
field_at(const ProtobufCMessage *message, unsigned offset)
{
    return (const char *)message + offset;
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
    default: return 4;
    }
}

static size_t
repeated_count(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    size_t count;

    memcpy(&count, field_at(message, field->quantifier_offset), sizeof(count));
    return count;
}

static const char *
repeated_array(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const char *array;

    memcpy(&array, field_at(message, field->offset), sizeof(array));
    return array;
}

static bool
is_present(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field)
{
    const void *pointer;
    uint32_t quantifier;

    if (field->label == PROTOBUF_C_LABEL_REPEATED || field->label == PROTOBUF_C_LABEL_REQUIRED) {
        return true;
    }
    memcpy(&quantifier, field_at(message, field->quantifier_offset), sizeof(quantifier));
    if ((field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) != 0) {
        return quantifier == field->id;
    }
    if (field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_MESSAGE) {
        memcpy(&pointer, field_at(message, field->offset), sizeof(pointer));
        return pointer != NULL;
    }
    return quantifier != 0;
}

size_t
pbjson_repeated(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
                ProtobufCMessage *const **values_out)
{
    assert(field->label == PROTOBUF_C_LABEL_REPEATED && field->type == PROTOBUF_C_TYPE_MESSAGE);
    memcpy(values_out, field_at(message, field->offset), sizeof(*values_out));
    return repeated_count(message, field);
}

/* ---- scalars --------------------------------------------------------------------------------- */

static void
real_text(double value, int digits, char *text, size_t size)
{
    if (isfinite(value)) {
        (void)snprintf(text, size, "%.*g", digits, value);
    } else {
        (void)snprintf(text, size, "null");
    }
}

static const char *
enum_name(const ProtobufCEnumDescriptor *type, int value)
{
    const ProtobufCEnumValue *row = protobuf_c_enum_descriptor_get_value(type, value);

    return row == NULL ? NULL : row->name;
}

/* Numbers and booleans; false for the other types. */
static bool
number_text(const ProtobufCFieldDescriptor *field, const void *at, char *text, size_t size)
{
    uint64_t wide = 0;
    uint32_t narrow = 0;
    double real;
    float single;

    memcpy(element_size(field->type) == 8 ? (void *)&wide : (void *)&narrow, at,
           element_size(field->type) == 8 ? 8 : 4);
    switch (field->type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_SFIXED64: (void)snprintf(text, size, "%" PRId64, (int64_t)wide); break;
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64: (void)snprintf(text, size, "%" PRIu64, wide); break;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_SFIXED32: (void)snprintf(text, size, "%" PRId32, (int32_t)narrow); break;
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FIXED32: (void)snprintf(text, size, "%" PRIu32, narrow); break;
    case PROTOBUF_C_TYPE_BOOL: (void)snprintf(text, size, narrow != 0 ? "true" : "false"); break;
    case PROTOBUF_C_TYPE_DOUBLE:
        memcpy(&real, &wide, sizeof(real));
        real_text(real, 17, text, size);
        break;
    case PROTOBUF_C_TYPE_FLOAT:
        memcpy(&single, &narrow, sizeof(single));
        real_text((double)single, 9, text, size);
        break;
    default: return false;
    }
    return true;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Length of the character at the start of text, or 0 if it is none. */
static size_t
character_length(const char *text, size_t length)
{
    for (size_t n = 1; n <= 4 && n <= length; n++) {
        if (wire_is_text(text, n)) {
            return n;
        }
    }
    return 0;
}

void
pbjson_print_string(FILE *out, const char *text, size_t length)
{
    static const char escapes[] = {['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  ['\f'] = 'f',
                                   ['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\', [0x7f] = 0};

    (void)fputc('"', out);
    while (length > 0) {
        unsigned char byte = (unsigned char)*text;
        size_t n = byte == 0 ? 1 : character_length(text, length);

        if (n == 0) {
            (void)fputs("\\ufffd", out);
            n = 1;
        } else if (byte < sizeof(escapes) && escapes[byte] != 0) {
            (void)fprintf(out, "\\%c", escapes[byte]);
        } else if (byte < 0x20 || byte == 0x7f) {
            (void)fprintf(out, "\\u%04x", byte);
        } else {
            (void)fwrite(text, 1, n, out);
        }
        text += n;
        length -= n;
    }
    (void)fputc('"', out);
}

static void
print_bytes(FILE *out, const ProtobufCFieldDescriptor *field, const ProtobufCBinaryData *data)
{
    if (strcmp(field->name, "text") == 0 || strcmp(field->name, "top_texts") == 0) {
        pbjson_print_string(out, (const char *)data->data, data->len);
        return;
    }
    (void)fputc('"', out);
    for (size_t i = 0; i < data->len; i++) {
        (void)fprintf(out, "%02x", data->data[i]);
    }
    (void)fputc('"', out);
}

static void
print_value(FILE *out, const ProtobufCFieldDescriptor *field, const void *at)
{
    char text[64];
    const char *string;
    const ProtobufCMessage *message;
    ProtobufCBinaryData data;
    int number;

    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        memcpy(&string, at, sizeof(string));
        pbjson_print_string(out, string, strlen(string));
        break;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(&data, at, sizeof(data));
        print_bytes(out, field, &data);
        break;
    case PROTOBUF_C_TYPE_MESSAGE:
        memcpy(&message, at, sizeof(message));
        print_object(out, NULL, message);
        break;
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(&number, at, sizeof(number));
        string = enum_name(field->descriptor, number);
        (void)(string != NULL ? fprintf(out, "\"%s\"", string) : fprintf(out, "%d", number));
        break;
    default:
        (void)number_text(field, at, text, sizeof(text));
        (void)fputs(text, out);
        break;
    }
}

static void
print_array(FILE *out, const ProtobufCFieldDescriptor *field, const ProtobufCMessage *message)
{
    size_t count = repeated_count(message, field);
    const char *array = repeated_array(message, field);

    (void)fputc('[', out);
    for (size_t i = 0; i < count; i++) {
        (void)fputs(i == 0 ? "" : ",", out);
        print_value(out, field, array + i * element_size(field->type));
    }
    (void)fputc(']', out);
}

/* Messages are not recursive (tests/unit/test_wire.c), so this ends. */
static void
print_object(FILE *out, const char *members, const ProtobufCMessage *message)
{
    const char *separator = members == NULL ? "" : ",";

    (void)fprintf(out, "{%s", members == NULL ? "" : members);
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];

        if (is_present(message, field)) {
            (void)fprintf(out, "%s\"%s\":", separator, field->name);
            separator = ",";
            if (field->label == PROTOBUF_C_LABEL_REPEATED) {
                print_array(out, field, message);
            } else {
                print_value(out, field, field_at(message, field->offset));
            }
        }
    }
    (void)fputc('}', out);
}

void
pbjson_print(FILE *out, const char *members, const ProtobufCMessage *message)
{
    print_object(out, members, message);
    (void)fputc('\n', out);
}

/* ---- tables ---------------------------------------------------------------------------------- */

void
pbjson_cell(const ProtobufCMessage *message, const ProtobufCFieldDescriptor *field,
            char cell_out[PBJSON_CELL_BYTES])
{
    const void *at = field_at(message, field->offset);
    const char *string = "";
    ProtobufCBinaryData data;
    int number;

    assert(field->label != PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE);
    cell_out[0] = '\0';
    if (!is_present(message, field)) {
        return;
    }
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING: memcpy(&string, at, sizeof(string)); break;
    case PROTOBUF_C_TYPE_ENUM:
        memcpy(&number, at, sizeof(number));
        string = enum_name(field->descriptor, number);
        break;
    case PROTOBUF_C_TYPE_BYTES:
        memcpy(&data, at, sizeof(data));
        for (size_t i = 0; i < data.len && 2 * i + 2 < PBJSON_CELL_BYTES; i++) {
            (void)snprintf(cell_out + 2 * i, 3, "%02x", data.data[i]);
        }
        return;
    default: (void)number_text(field, at, cell_out, PBJSON_CELL_BYTES); return;
    }
    (void)snprintf(cell_out, PBJSON_CELL_BYTES, "%s", string == NULL ? "?" : string);
}
