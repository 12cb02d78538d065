/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <json-c/json.h>

#include "client/pbjson.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "tests/support/check_main.h"
#include "tests/support/messages.h"

/* The printed text; the caller frees it. */
static char *
print(const char *members, const ProtobufCMessage *message)
{
    char *text = NULL;
    size_t length = 0;
    FILE *file = open_memstream(&text, &length);

    ck_assert_ptr_nonnull(file);
    pbjson_print(file, members, message);
    ck_assert_int_eq(fclose(file), 0);
    return text;
}

START_TEST(fields_come_in_order_with_absent_ones_left_out)
{
    Kvasir__V1__GenerateReply reply = KVASIR__V1__GENERATE_REPLY__INIT;
    Kvasir__V1__TokenLogprob logprob = KVASIR__V1__TOKEN_LOGPROB__INIT;
    Kvasir__V1__TokenLogprob *logprobs[] = {&logprob};
    uint32_t ids[] = {0, 4294967295u};
    float alternatives[] = {-0.5f, NAN};
    char text[] = "a\"\\\n\x01\0\x7f\xff\xc3\xa9";
    char *json;

    reply.has_text = true;
    reply.text = (ProtobufCBinaryData){.data = (uint8_t *)text, .len = sizeof(text) - 1};
    reply.token_ids = ids;
    reply.n_token_ids = 2;
    logprob.has_logprob = true;
    logprob.logprob = -INFINITY;
    logprob.top_logprobs = alternatives;
    logprob.n_top_logprobs = 2;
    reply.logprobs = logprobs;
    reply.n_logprobs = 1;
    reply.has_finish = true;
    reply.finish = KVASIR__V1__FINISH_REASON__FINISH_LENGTH;
    json = print("\"schema\":1", &reply.base);
    ck_assert_str_eq(json, "{\"schema\":1,\"text\":\"a\\\"\\\\\\n\\u0001\\u0000\\u007f\\ufffdé\","
                           "\"token_ids\":[0,4294967295],\"logprobs\":[{\"logprob\":null,"
                           "\"top_ids\":[],\"top_logprobs\":[-0.5,null],\"top_texts\":[]}],"
                           "\"finish\":\"FINISH_LENGTH\"}\n");
    free(json);
}
END_TEST

START_TEST(keys_are_hex_and_large_numbers_are_exact)
{
    Kvasir__V1__DocumentInfo info = KVASIR__V1__DOCUMENT_INFO__INIT;
    uint8_t key[] = {0x00, 0xff, 0x1a};
    char *json, cell[PBJSON_CELL_BYTES];

    info.has_key = true;
    info.key = (ProtobufCBinaryData){.data = key, .len = 3};
    info.has_hits = true;
    info.hits = UINT64_MAX;
    json = print(NULL, &info.base);
    ck_assert_str_eq(json, "{\"key\":\"00ff1a\",\"hits\":18446744073709551615}\n");
    free(json);
    pbjson_cell(&info.base,
                protobuf_c_message_descriptor_get_field_by_name(info.base.descriptor, "key"), cell);
    ck_assert_str_eq(cell, "00ff1a");
    pbjson_cell(&info.base,
                protobuf_c_message_descriptor_get_field_by_name(info.base.descriptor, "state"),
                cell);
    ck_assert_str_eq(cell, "");
}
END_TEST

START_TEST(random_messages_of_every_type_are_json)
{
    const ProtobufCMessageDescriptor *types[MESSAGES_MAX];
    size_t count = messages_all(types);
    uint64_t rng = test_seed();
    struct json_tokener *tokener = json_tokener_new();

    json_tokener_set_flags(tokener, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    for (size_t round = 0; round < 10 * count; round++) {
        ProtobufCMessage *message = message_random(types[round % count], &rng);
        char *json = print(NULL, message);

        json_tokener_reset(tokener);
        json_object *object = json_tokener_parse_ex(tokener, json, (int)strlen(json));

        ck_assert_msg(object != NULL && json_object_is_type(object, json_type_object), "%s: %s",
                      message->descriptor->name, json);
        json_object_put(object);
        free(json);
        protobuf_c_message_free_unpacked(message, NULL);
    }
    json_tokener_free(tokener);
}
END_TEST

CHECK_MAIN("pbjson", fields_come_in_order_with_absent_ones_left_out,
           keys_are_hex_and_large_numbers_are_exact, random_messages_of_every_type_are_json)
