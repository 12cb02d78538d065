/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway's pure output: strings, errors, usage; and keys. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "gateway/keys.h"
#include "gateway/refusal.h"
#include "gateway/render.h"
#include "tests/support/check_main.h"

static void
expect(struct text *text, const char *want)
{
    text_append(text, "", 1);
    ck_assert(!text->has_failed);
    ck_assert_str_eq(text->bytes, want);
    text_deinit(text);
}

START_TEST(any_bytes_become_a_json_string)
{
    struct text text = {0};

    text_json(&text, "a\"\\\n\t\x01\x7f\0ü€😀\xc3", 18);
    expect(&text, "\"a\\\"\\\\\\n\\t\\u0001\\u007f\\u0000ü€😀\xef\xbf\xbd\"");
    text_json_float(&text, 0.1f);
    text_add(&text, " ");
    text_json_float(&text, NAN);
    expect(&text, "0.100000001 null");
}
END_TEST

START_TEST(an_error_of_the_daemon_has_its_status_and_names_the_field)
{
    static const struct {
        uint32_t rpc;
        const char *detail;
        unsigned status;
        const char *code, *param;
    } rows[] = {
        {RPC_NOT_FOUND, "documents[3]: document id x: not registered", 404, "document_not_found",
         "documents[3]"},
        {RPC_INVALID_ARGUMENT, "sampling.top_p is 7: it must be in (0, 1]", 400, NULL, "top_p"},
        {RPC_INVALID_ARGUMENT, "the query is empty", 400, NULL, ""},
        {RPC_OUT_OF_RANGE, "prompt of 9000 tokens", 400, "context_length_exceeded", ""},
        {RPC_RESOURCE_EXHAUSTED, "queue is full", 429, "server_busy", ""},
        {RPC_UNAVAILABLE, "draining", 503, "unavailable", ""},
        {RPC_DEADLINE_EXCEEDED, "late", 504, "deadline_exceeded", ""},
        {RPC_CANCELLED, "cancelled", 499, "cancelled", ""},
        {RPC_INTERNAL, "bug", 500, NULL, ""},
        {99, "what", 500, NULL, ""},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hub_reply reply = {
            .code = rows[i].rpc, .detail = rows[i].detail, .retry_after_ms = 1001};
        struct refusal refusal;

        refusal_of_reply(&refusal, &reply);
        ck_assert_uint_eq(refusal.status, rows[i].status);
        ck_assert_str_eq(refusal.param, rows[i].param);
        ck_assert_uint_eq(refusal.retry_after_s, 2);
        ck_assert((refusal.code == NULL) == (rows[i].code == NULL));
        ck_assert(rows[i].code == NULL || strcmp(refusal.code, rows[i].code) == 0);
    }
}
END_TEST

START_TEST(a_preamble_is_no_document_of_the_clients)
{
    struct render_usage usage = {0};
    Kvasir__V1__Usage wire = KVASIR__V1__USAGE__INIT;
    Kvasir__V1__DocumentUsage documents[3];
    Kvasir__V1__DocumentUsage *list[3];
    char hit[] = "hit";

    for (int i = 0; i < 3; i++) {
        kvasir__v1__document_usage__init(&documents[i]);
        documents[i].tokens = 10 * (uint32_t)(i + 1);
        documents[i].miss_reason = hit;
        list[i] = &documents[i];
    }
    wire.n_documents = 3;
    wire.documents = list;
    wire.prompt_tokens = 70;
    wire.completion_tokens = 5;
    wire.tokens_reused = 60;
    render_usage_add(&usage, &wire, 2, true);
    render_usage_add(&usage, &wire, 2, false); /* the second choice: its own tokens only */
    ck_assert_uint_eq(usage.prompt_tokens, 70);
    ck_assert_uint_eq(usage.cached_tokens, 60);
    ck_assert_uint_eq(usage.completion_tokens, 10);
    expect(&usage.documents,
           "{\"index\":0,\"id\":null,\"tokens\":20,\"cached_tokens\":0,\"reason\":\"hit\"},"
           "{\"index\":1,\"id\":null,\"tokens\":30,\"cached_tokens\":0,\"reason\":\"hit\"}");
}
END_TEST

START_TEST(a_file_of_keys_is_read_strictly)
{
    static const struct {
        const char *text;
        const char *words; /* NULL: it is fine */
    } rows[] = {
        {"a = k1\n# no\n\n  b =  k 2  \na=sha256:"
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\n",
         NULL},
        {"", "no key"},
        {"a\n", ":1: a line must be"},
        {"a = x\n = y\n", ":2: a key without"},
        {"a = \n", ":1: key of 0 bytes"},
        {"a = sha256:12\n", "64 hex"},
        {"a b = x\n", "letters, digits"},
    };
    char path[] = "/tmp/kvasir-keys-XXXXXX";
    char tenant[KEYS_TENANT_MAX];
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct keys *keys = NULL;

        ck_assert_int_eq(ftruncate(fd, 0), 0);
        ck_assert_int_eq(pwrite(fd, rows[i].text, strlen(rows[i].text), 0),
                         (ssize_t)strlen(rows[i].text));
        enum status st = keys_read(path, &keys);

        ck_assert_int_eq(st == ST_OK, rows[i].words == NULL);
        if (st != ST_OK) {
            ck_assert_msg(strstr(status_detail(), rows[i].words) != NULL, "%s", status_detail());
            continue;
        }
        ck_assert(keys_find(keys, "k1", tenant));
        ck_assert_str_eq(tenant, "a");
        ck_assert(keys_find(keys, "k 2", tenant));
        ck_assert_str_eq(tenant, "b");
        ck_assert(keys_find(keys, "", tenant)); /* what hashes to that */
        ck_assert(!keys_find(keys, "k3", tenant) && !keys_find(keys, NULL, tenant));
        keys_destroy(&keys);
    }
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

CHECK_MAIN("gateway_text", any_bytes_become_a_json_string,
           an_error_of_the_daemon_has_its_status_and_names_the_field,
           a_preamble_is_no_document_of_the_clients, a_file_of_keys_is_read_strictly)
