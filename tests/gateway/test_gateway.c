/* SPDX-License-Identifier: Apache-2.0 */
/* What the gateway answers, against the fake daemon: every endpoint, and what it refuses. */
#include <string.h>

#include "tests/support/check_main.h"
#include "tests/support/gateway_fixture.h"

#define CHAT "/v1/chat/completions"

static struct json_object *
ask_json(const struct gateway_fixture *f, const char *method, const char *path, const char *body,
         unsigned status)
{
    char *text;
    unsigned is = http_ask(f->gateway.port, method, path, NULL, body, &text);

    ck_assert_msg(is == status, "%s %s: %u, not %u: %s", method, path, is, status, text);
    struct json_object *root = gateway_json(text);

    free(text);
    return root;
}

#define CHAT_OF(text, more) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]" more "}"

START_TEST(health_says_whether_the_daemon_serves)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct json_object *root = ask_json(&f, "GET", "/health", NULL, 200);

    ck_assert_str_eq(gateway_text_at(root, "status"), "ok");
    json_object_put(root);
    fake_daemon_stop(&f.daemon);
    gateway_wait_health(&f.gateway, 503);
    root = ask_json(&f, "GET", "/health", NULL, 503);
    ck_assert_str_eq(gateway_text_at(root, "error.type"), "unavailable_error");
    ck_assert(gateway_number_at(root, "error.code") == 503);
    json_object_put(root);
    gateway_teardown(&f);
}
END_TEST

START_TEST(models_and_version_tell_what_is_served)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct json_object *root = ask_json(&f, "GET", "/v1/models", NULL, 200);

    ck_assert_str_eq(gateway_text_at(root, "data.0.id"), "tiny.gguf");
    ck_assert_str_eq(gateway_text_at(root, "data.0.object"), "model");
    ck_assert(gateway_number_at(root, "data.0.max_model_len") == 2048);
    json_object_put(root);
    root = ask_json(&f, "GET", "/v1/models/tiny.gguf", NULL, 200);
    ck_assert_str_eq(gateway_text_at(root, "id"), "tiny.gguf");
    json_object_put(root);
    root = ask_json(&f, "GET", "/v1/models/other", NULL, 404);
    ck_assert_str_eq(gateway_text_at(root, "error.code"), "model_not_found");
    json_object_put(root);
    root = ask_json(&f, "GET", "/version", NULL, 200);
    ck_assert_str_eq(gateway_text_at(root, "daemon"), "0.1.0");
    json_object_put(root);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_chat_is_answered_whole_with_usage)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct json_object *root = ask_json(
        &f, "POST", CHAT,
        CHAT_OF("hi", ",\"documents\":[{\"id\":\"d1\",\"data\":{\"text\":\"x\"}}],\"seed\":7"),
        200);

    ck_assert_str_eq(gateway_text_at(root, "object"), "chat.completion");
    ck_assert_str_eq(gateway_text_at(root, "model"), "tiny.gguf");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.message.content"), "Hello wörld.");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.message.role"), "assistant");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.finish_reason"), "stop");
    ck_assert(gateway_number_at(root, "usage.completion_tokens") == 3);
    ck_assert(gateway_number_at(root, "usage.prompt_tokens_details.cached_tokens") == 0);
    ck_assert_str_eq(gateway_text_at(root, "usage.documents.0.id"), "d1");
    ck_assert_str_eq(gateway_text_at(root, "usage.documents.0.reason"), "cold");
    ck_assert(gateway_number_at(root, "usage.documents.0.tokens") == 7);
    ck_assert(gateway_number_at(root, "usage.seed") == 7);
    json_object_put(root);
    gateway_teardown(&f);
}
END_TEST

START_TEST(n_choices_and_many_prompts_are_choices_by_index)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct json_object *root =
        ask_json(&f, "POST", "/v1/completions", "{\"prompt\":[\"a\",\"b\"],\"n\":2}", 200);

    ck_assert_str_eq(gateway_text_at(root, "object"), "text_completion");
    for (int i = 0; i < 4; i++) {
        char path[32];

        (void)snprintf(path, sizeof(path), "choices.%d.index", i);
        ck_assert(gateway_number_at(root, path) == i);
        (void)snprintf(path, sizeof(path), "choices.%d.text", i);
        ck_assert_str_eq(gateway_text_at(root, path), "Hello wörld.");
    }
    ck_assert_ptr_null(gateway_at(root, "choices.4"));
    ck_assert(gateway_number_at(root, "usage.completion_tokens") == 12);
    json_object_put(root);
    root = ask_json(&f, "POST", CHAT, CHAT_OF("hi", ",\"n\":17"), 400);
    ck_assert_str_eq(gateway_text_at(root, "error.param"), "n");
    json_object_put(root);
    gateway_teardown(&f);
}
END_TEST

START_TEST(log_probabilities_have_the_shape_of_each_endpoint)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    struct json_object *root =
        ask_json(&f, "POST", CHAT, CHAT_OF("hi", ",\"logprobs\":true,\"top_logprobs\":2"), 200);

    ck_assert(gateway_number_at(root, "choices.0.logprobs.content.2.logprob") == -0.5);
    ck_assert(gateway_number_at(root, "choices.0.logprobs.content.0.top_logprobs.1.logprob") == -2);
    json_object_put(root);
    root = ask_json(&f, "POST", "/v1/completions", "{\"prompt\":[1,2,3],\"logprobs\":2}", 200);
    ck_assert(gateway_number_at(root, "choices.0.logprobs.token_logprobs.2") == -0.5);
    ck_assert_ptr_nonnull(gateway_at(root, "choices.0.logprobs.top_logprobs.2"));
    ck_assert_ptr_nonnull(gateway_at(root, "choices.0.logprobs.text_offset.2"));
    ck_assert_ptr_nonnull(gateway_at(root, "choices.0.logprobs.tokens.2"));
    json_object_put(root);
    gateway_teardown(&f);
}
END_TEST

/* ---- streams --------------------------------------------------------------------------------- */

/* Walks the events of a stream: all are JSON but the last, [DONE]; their contents are appended. */
static unsigned
read_events(char *body, char *content, size_t bytes_max, double *completion_tokens)
{
    unsigned count = 0;
    char *event;

    content[0] = '\0';
    while ((event = strsep(&body, "\n")) != NULL) {
        if (strncmp(event, "data: ", 6) != 0 || strcmp(event, "data: [DONE]") == 0) {
            ck_assert(event[0] == '\0' || event[0] == ':' || strcmp(event, "data: [DONE]") == 0);
            continue;
        }
        struct json_object *root = gateway_json(event + 6);
        struct json_object *text = gateway_at(root, "choices.0.delta.content");

        text = text == NULL ? gateway_at(root, "choices.0.text") : text;
        if (text != NULL) {
            (void)strncat(content, json_object_get_string(text), bytes_max - strlen(content) - 1);
        }
        if (gateway_at(root, "usage.completion_tokens") != NULL) {
            *completion_tokens = gateway_number_at(root, "usage.completion_tokens");
        }
        json_object_put(root);
        count++;
    }
    return count;
}

START_TEST(a_stream_is_events_that_end_with_usage_and_done)
{
    struct gateway_fixture f;
    struct http *http;
    char content[256];
    double tokens = 0;

    gateway_setup(&f, NULL);
    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, NULL,
                 CHAT_OF("hi", ",\"stream\":true,\"stream_options\":{\"include_usage\":true}"));
    ck_assert_uint_eq(http_response(http), 200);
    ck_assert_ptr_nonnull(strstr(http_head(http), "text/event-stream"));
    ck_assert_ptr_nonnull(strstr(http_head(http), "X-Accel-Buffering: no"));
    char *body = strdup(http_body(http));
    size_t length = strlen(body);

    ck_assert_str_eq(body + length - strlen("data: [DONE]\n\n"), "data: [DONE]\n\n");
    /* role, three texts, finish, usage */
    ck_assert_uint_eq(read_events(body, content, sizeof(content), &tokens), 6);
    ck_assert_str_eq(content, "Hello wörld.");
    ck_assert(tokens == 3);
    free(body);
    /* The connection serves the next one. */
    http_request(http, "POST", "/v1/completions", NULL, "{\"prompt\":\"x\",\"stream\":true}");
    ck_assert_uint_eq(http_response(http), 200);
    body = strdup(http_body(http));
    ck_assert_uint_eq(read_events(body, content, sizeof(content), &tokens), 4);
    ck_assert_str_eq(content, "Hello wörld.");
    free(body);
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_client_that_goes_cancels_its_request)
{
    struct gateway_fixture f;
    struct http *http;

    gateway_setup(&f, NULL);
    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, NULL, CHAT_OF("hold", ",\"stream\":true"));
    ck_assert_uint_eq(http_response_head(http), 200);
    (void)http_wait_body(http, "Hello");
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 0);
    http_close(&http);
    gateway_wait_metric(&f.gateway, "kvasir_http_client_aborts_total", 1);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 1);
    /* The same without a stream: nothing was sent yet. */
    unsigned calls = fake_daemon_calls(f.daemon);

    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, NULL, CHAT_OF("hold", ""));
    while (fake_daemon_calls(f.daemon) == calls) {
        fake_daemon_wait_call(f.daemon);
    }
    http_close(&http);
    gateway_wait_metric(&f.gateway, "kvasir_http_client_aborts_total", 2);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 2);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_daemon_that_vanishes_ends_a_stream_with_an_error)
{
    static const char *const args[] = {"--retry", "20ms", NULL};
    struct gateway_fixture f;
    struct http *http;

    gateway_setup(&f, args);
    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, NULL, CHAT_OF("vanish", ",\"stream\":true"));
    ck_assert_uint_eq(http_response(http), 200);
    ck_assert_ptr_nonnull(strstr(http_body(http), "Hello"));
    ck_assert_ptr_nonnull(strstr(http_body(http), "data: {\"error\""));
    ck_assert_ptr_null(strstr(http_body(http), "[DONE]"));
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_silent_stream_gets_pings)
{
    static const char *const args[] = {"--ping-interval", "50ms", NULL};
    struct gateway_fixture f;
    struct http *http;

    gateway_setup(&f, args);
    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, NULL, CHAT_OF("hold", ",\"stream\":true"));
    ck_assert_uint_eq(http_response_head(http), 200);
    (void)http_wait_body(http, ": ping\n\n: ping\n\n");
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

/* ---- refusals -------------------------------------------------------------------------------- */

START_TEST(what_is_wrong_is_refused_by_name)
{
    static const struct {
        const char *method, *path, *body;
        unsigned status;
        const char *param; /* NULL: null */
        const char *words; /* in the message */
    } rows[] = {
        {"POST", CHAT, "{\"messages\"", 400, NULL, "offset"},
        {"POST", CHAT, "", 400, NULL, ""},
        {"POST", CHAT, "[]", 400, NULL, "object"},
        {"POST", CHAT, "{}", 400, "messages", "missing"},
        {"POST", CHAT, "{\"messages\":[]}", 400, "messages", "1 to"},
        {"POST", CHAT, "{\"messages\":[{\"role\":\"user\"}]}", 400, "messages[0]", "content"},
        {"POST", CHAT, "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}", 400,
         "messages[0].role", "tool"},
        {"POST", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u0000b\"}]}", 400, NULL,
         "NUL"},
        {"POST", CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}]}", 400,
         "messages[0].content", "text"},
        {"POST", CHAT, CHAT_OF("x", ",\"temperature\":3"), 400, "temperature", "0 to 2"},
        {"POST", CHAT, CHAT_OF("x", ",\"temperature\":\"hot\""), 400, "temperature", "number"},
        {"POST", CHAT, CHAT_OF("x", ",\"max_tokens\":0"), 400, "max_tokens", "from 1"},
        {"POST", CHAT, CHAT_OF("x", ",\"max_tokens\":1.5"), 400, "max_tokens", "whole"},
        {"POST", CHAT, CHAT_OF("x", ",\"tools\":[{\"type\":\"function\"}]"), 400, "tools",
         "not served"},
        {"POST", CHAT, CHAT_OF("x", ",\"documents\":[\"a\",{\"title\":\"t\"}]"), 400,
         "documents[1]", "text"},
        {"POST", CHAT, CHAT_OF("x", ",\"documents\":[{\"hash\":\"sha256:12\"}]"), 400,
         "documents[0]", "64 hex"},
        {"POST", CHAT, CHAT_OF("x", ",\"top_logprobs\":2"), 400, "top_logprobs", "logprobs"},
        {"POST", CHAT, CHAT_OF("x", ",\"response_format\":{\"type\":\"xml\"}"), 400,
         "response_format", "json_object"},
        {"POST", CHAT, CHAT_OF("x", ",\"model\":\"gpt-4\""), 404, "model", "tiny.gguf"},
        {"POST", CHAT, CHAT_OF("x", ",\"messages\":[]"), 400, NULL, "twice"},
        {"POST", "/v1/completions", "{}", 400, "prompt", "missing"},
        {"POST", "/v1/completions", "{\"prompt\":[]}", 400, "prompt", "array"},
        {"POST", "/v1/completions", "{\"prompt\":\"x\",\"suffix\":\"y\"}", 400, "suffix",
         "not served"},
        {"POST", CHAT, CHAT_OF("full", ""), 429, NULL, "queue"},
        {"POST", CHAT, CHAT_OF("full", ",\"stream\":true"), 429, NULL, "queue"},
        {"POST", CHAT, CHAT_OF("late", ""), 504, NULL, "deadline"},
        {"POST", CHAT, CHAT_OF("junk", ""), 503, NULL, "bad reply"},
        {"GET", "/v2", NULL, 404, NULL, "no such path: /v2"},
        {"GET", CHAT, NULL, 405, NULL, "method"},
        {"POST", "/health", "", 405, NULL, "/health does not serve the method POST"},
    };
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        gateway_wait_health(&f.gateway, 200); /* after junk it connects anew */
        struct json_object *root =
            ask_json(&f, rows[i].method, rows[i].path, rows[i].body, rows[i].status);
        struct json_object *param = gateway_at(root, "error.param");

        ck_assert_msg(
            (param == NULL) == (rows[i].param == NULL)
                && (param == NULL || strcmp(json_object_get_string(param), rows[i].param) == 0),
            "row %zu: %s", i, json_object_to_json_string(root));
        ck_assert_msg(strstr(gateway_text_at(root, "error.message"), rows[i].words) != NULL,
                      "row %zu: %s", i, json_object_to_json_string(root));
        (void)gateway_text_at(root, "error.type");
        json_object_put(root);
    }
    gateway_teardown(&f);
}
END_TEST

START_TEST(a_full_queue_says_when_to_come_back)
{
    struct gateway_fixture f;
    struct http *http;

    gateway_setup(&f, NULL);
    http = http_open(f.gateway.port);
    http_request(http, "POST", CHAT, "x-request-id: my-id.1\r\n", CHAT_OF("full", ""));
    ck_assert_uint_eq(http_response(http), 429);
    ck_assert_ptr_nonnull(strstr(http_head(http), "Retry-After: 1\r\n"));
    ck_assert_ptr_nonnull(strstr(http_head(http), "x-request-id: my-id.1\r\n"));
    http_close(&http);
    gateway_teardown(&f);
}
END_TEST

START_TEST(fields_that_are_not_known_are_counted_and_ignored)
{
    struct gateway_fixture f;

    gateway_setup(&f, NULL);
    json_object_put(
        ask_json(&f, "POST", CHAT, CHAT_OF("x", ",\"a\":1,\"b\":null,\"user\":\"u\""), 200));
    ck_assert(gateway_metric(&f.gateway, "kvasir_http_unknown_fields_total") == 2);
    gateway_teardown(&f);
}
END_TEST

CHECK_MAIN("gateway", health_says_whether_the_daemon_serves, models_and_version_tell_what_is_served,
           a_chat_is_answered_whole_with_usage, n_choices_and_many_prompts_are_choices_by_index,
           log_probabilities_have_the_shape_of_each_endpoint,
           a_stream_is_events_that_end_with_usage_and_done, a_client_that_goes_cancels_its_request,
           a_daemon_that_vanishes_ends_a_stream_with_an_error, a_silent_stream_gets_pings,
           what_is_wrong_is_refused_by_name, a_full_queue_says_when_to_come_back,
           fields_that_are_not_known_are_counted_and_ignored)
