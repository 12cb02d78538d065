/* SPDX-License-Identifier: Apache-2.0 */
/* Requests as JSON become what kvasird takes: every shape of documents, every field by its bounds.
 * The refusals are in tests/gateway/test_gateway.c, as clients see them. */
#include <string.h>

#include "common/mem.h"
#include "gateway/request.h"
#include "tests/support/check_main.h"

static const struct request_limits limits = {.choices_max = 16, .temperature = 0.5f};

static void
read_ok(struct request *request, enum request_kind kind, const char *body)
{
    struct refusal refusal = {0};

    ck_assert_msg(request_read(request, kind, body, strlen(body), &limits, &refusal), "%s: %s",
                  body, refusal.message);
}

static void
read_refused(enum request_kind kind, const char *body, const char *param)
{
    struct request request;
    struct refusal refusal = {0};

    ck_assert_msg(!request_read(&request, kind, body, strlen(body), &limits, &refusal), "%s", body);
    ck_assert_uint_eq(refusal.status, 400);
    ck_assert_msg(strcmp(refusal.param, param) == 0, "%s: %s: %s", body, refusal.param,
                  refusal.message);
    request_deinit(&request);
}

#define CHAT(more) "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"}]" more "}"

START_TEST(documents_come_in_every_shape_and_keep_their_order)
{
    struct request r;

    read_ok(&r, REQUEST_CHAT,
            CHAT(",\"documents\":[\"plain\",{\"title\":\"t\",\"text\":\"x\"},{\"content\":\"c\","
                 "\"id\":\"i\"},{\"id\":\"d\",\"data\":{\"title\":\"dt\",\"snippet\":\"s\"}},"
                 "{\"data\":\"bare\"},{\"id\":\"known\"},{\"hash\":\"sha256:"
                 "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\"}]"));
    Kvasir__V1__Segment **d = r.message.documents;

    ck_assert_uint_eq(r.message.n_documents, 7);
    ck_assert_str_eq(d[0]->text, "plain");
    ck_assert_str_eq(d[1]->title, "t");
    ck_assert_str_eq(d[1]->text, "x");
    ck_assert_str_eq(d[2]->text, "c");
    ck_assert_str_eq(d[2]->id, "i");
    ck_assert_str_eq(d[3]->text, "s");
    ck_assert_str_eq(d[3]->title, "dt");
    ck_assert_str_eq(d[3]->id, "d");
    ck_assert_str_eq(d[4]->text, "bare");
    ck_assert_ptr_null(d[5]->text);
    ck_assert_str_eq(d[5]->document_id, "known");
    ck_assert(d[6]->has_document_key);
    ck_assert_uint_eq(d[6]->document_key.data[31], 0xff);
    request_deinit(&r);
}
END_TEST

START_TEST(a_completion_has_its_documents_before_each_prompt)
{
    struct request r;

    read_ok(&r, REQUEST_COMPLETION,
            "{\"prompt\":[\"a\",\"b\"],\"documents\":[\"x\"],\"n\":2,\"max_tokens\":3}");
    ck_assert_uint_eq(r.prompt_count, 2);
    ck_assert_uint_eq(r.message.n_segments, 1);
    ck_assert_uint_eq(r.message.n_documents, 0);
    request_use_prompt(&r, 1);
    ck_assert_str_eq(r.message.query, "b");
    ck_assert(r.message.add_bos);
    request_deinit(&r);
    read_ok(&r, REQUEST_COMPLETION, "{\"prompt\":[[1,2],[3]]}");
    request_use_prompt(&r, 0);
    ck_assert_uint_eq(r.message.n_query_ids, 2);
    ck_assert(!r.message.add_bos);
    ck_assert_uint_eq(r.sampling.max_tokens, 16);
    request_deinit(&r);
    read_ok(&r, REQUEST_COMPLETION, "{\"prompt\":[5,6,7]}");
    ck_assert_uint_eq(r.prompt_count, 1);
    ck_assert_uint_eq(r.prompts[0].id_count, 3);
    request_deinit(&r);
    read_refused(REQUEST_COMPLETION,
                 "{\"prompt\":\"a\",\"documents\":[{\"title\":\"t\",\"text\":"
                 "\"x\"}]}",
                 "documents");
    read_refused(REQUEST_COMPLETION, "{\"prompt\":[1,-2]}", "prompt");
}
END_TEST

START_TEST(sampling_has_openais_defaults_and_ranges)
{
    struct request r;

    read_ok(&r, REQUEST_CHAT, CHAT(""));
    ck_assert_float_eq(r.sampling.temperature, 0.5f);
    ck_assert(!r.sampling.has_max_tokens && !r.sampling.has_seed && !r.sampling.has_logprobs);
    ck_assert(!r.message.has_ignore_end);
    request_deinit(&r);
    read_ok(&r, REQUEST_CHAT,
            CHAT(",\"temperature\":0,\"top_p\":0,\"top_k\":-1,\"frequency_penalty\":0,"
                 "\"presence_penalty\":-1.5,\"logit_bias\":{\"7\":-100,\"8\":2.5},\"stop\":\"x\","
                 "\"seed\":-3,\"max_completion_tokens\":9,\"n\":2,\"user\":\"u\",\"tools\":[],"
                 "\"tool_choice\":\"none\",\"modalities\":[\"text\"],\"min_tokens\":2"));
    ck_assert(r.sampling.has_top_k && r.sampling.top_k == 1); /* top_p 0 */
    ck_assert(!r.sampling.has_frequency_penalty && r.sampling.has_presence_penalty);
    ck_assert_uint_eq(r.sampling.n_logit_bias, 2);
    ck_assert_uint_eq(r.sampling.logit_bias[0]->id, 7);
    ck_assert_float_eq(r.sampling.logit_bias[1]->bias, 2.5f);
    ck_assert_uint_eq(r.sampling.n_stop, 1);
    ck_assert_uint_eq(r.sampling.seed, (uint64_t)-3);
    ck_assert_uint_eq(r.sampling.max_tokens, 9);
    ck_assert_uint_eq(r.sampling.min_tokens, 2);
    ck_assert_uint_eq(r.unknown_fields, 0);
    request_deinit(&r);
    read_refused(REQUEST_CHAT, CHAT(",\"logit_bias\":{\"x\":1}"), "logit_bias");
    read_refused(REQUEST_CHAT, CHAT(",\"logit_bias\":{\"7\":101}"), "logit_bias");
    read_refused(REQUEST_CHAT, CHAT(",\"presence_penalty\":2.1"), "presence_penalty");
    read_refused(REQUEST_CHAT, CHAT(",\"seed\":1.5"), "seed");
    read_refused(REQUEST_CHAT, CHAT(",\"stop\":[1]"), "stop");
    read_refused(REQUEST_CHAT, CHAT(",\"stream_options\":{\"include_usage\":true}"),
                 "stream_options");
    read_refused(REQUEST_CHAT, CHAT(",\"modalities\":[\"audio\"]"), "modalities");
}
END_TEST

START_TEST(a_response_format_becomes_a_schema)
{
    struct request r;

    read_ok(&r, REQUEST_CHAT, CHAT(",\"response_format\":{\"type\":\"text\"}"));
    ck_assert_ptr_null(r.sampling.json_schema);
    request_deinit(&r);
    read_ok(&r, REQUEST_CHAT, CHAT(",\"response_format\":{\"type\":\"json_object\"}"));
    ck_assert_str_eq(r.sampling.json_schema, "{\"type\":\"object\"}");
    request_deinit(&r);
    read_ok(&r, REQUEST_CHAT,
            CHAT(",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
                 "\"schema\":{ \"type\" : \"integer\" }}}"));
    ck_assert_str_eq(r.sampling.json_schema, "{\"type\":\"integer\"}");
    request_deinit(&r);
    read_refused(REQUEST_CHAT, CHAT(",\"response_format\":{\"type\":\"json_schema\"}"),
                 "response_format");
}
END_TEST

START_TEST(content_parts_are_joined_and_unknown_fields_counted)
{
    struct request r;

    read_ok(
        &r, REQUEST_CHAT,
        "{\"messages\":[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
        "{\"type\":\"text\",\"text\":\"b\"}],\"name\":\"x\"}],\"novel\":{},\"other\":null}");
    ck_assert_str_eq(r.message.messages[0]->role, "system");
    ck_assert_str_eq(r.message.messages[0]->content, "ab");
    ck_assert_uint_eq(r.unknown_fields, 2);
    request_deinit(&r);
}
END_TEST

START_TEST(every_allocation_of_a_request_may_fail)
{
    static const char body[] =
        CHAT(",\"documents\":[\"a\",{\"hash\":\"sha256:"
             "0011223344556677889900112233445566778899001122334455667788990011"
             "\"}],\"logit_bias\":{\"1\":1},\"stop\":[\"a\"]");
    bool is_ok = false;

    for (uint64_t n = 1; !is_ok; n++) {
        struct request r;
        struct refusal refusal = {0};

        ck_assert_uint_lt(n, 1000);
        mem_fail_at(n);
        is_ok = request_read(&r, REQUEST_CHAT, body, sizeof(body) - 1, &limits, &refusal);
        mem_fail_at(0);
        ck_assert(is_ok || refusal.status != 0);
        request_deinit(&r);
    }
}
END_TEST

CHECK_MAIN("gateway_request", documents_come_in_every_shape_and_keep_their_order,
           a_completion_has_its_documents_before_each_prompt,
           sampling_has_openais_defaults_and_ranges, a_response_format_becomes_a_schema,
           content_parts_are_joined_and_unknown_fields_counted,
           every_allocation_of_a_request_may_fail)
