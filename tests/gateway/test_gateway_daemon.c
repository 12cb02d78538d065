/* SPDX-License-Identifier: Apache-2.0 */
/* The gateway in front of the real daemon and worker: what is reused is what usage tells, what
 * tenants see of each other, and what a client that goes leaves behind. */
#include <string.h>

#include "common/utf8.h"
#include "tests/support/check_main.h"
#include "tests/support/gateway.h"
#include "tests/support/host.h"
#include "tests/support/http.h"

#define CHAT "/v1/chat/completions"
#define ASK  "\"messages\":[{\"role\":\"user\",\"content\":\"which?\"}],\"max_tokens\":4"

struct rig {
    struct host *host;
    struct gateway gateway;
};

static struct rig
start_with(const struct host_options *options, const char *const *args)
{
    struct rig rig = {.host = host_start(options)};

    rig.gateway = gateway_start(host_dir(rig.host), args);
    gateway_wait_health(&rig.gateway, 200);
    return rig;
}

static struct rig
start(const char *const *args)
{
    return start_with(&(struct host_options){.workers = 1}, args);
}

static void
stop(struct rig *rig)
{
    gateway_stop(&rig->gateway);
    host_stop(&rig->host);
}

static struct json_object *
ask_as(const struct rig *rig, const char *headers, const char *method, const char *path,
       const char *body, unsigned status)
{
    char *text;
    unsigned is = http_ask(rig->gateway.port, method, path, headers, body, &text);

    ck_assert_msg(is == status, "%s %s: %u, not %u: %s", method, path, is, status, text);
    struct json_object *root = gateway_json(text);

    free(text);
    return root;
}

static struct json_object *
ask(const struct rig *rig, const char *method, const char *path, const char *body, unsigned status)
{
    return ask_as(rig, NULL, method, path, body, status);
}

START_TEST(cached_tokens_are_those_that_were_read_and_not_built)
{
    struct rig rig = start(NULL);
    const char *first = "{" ASK ",\"documents\":[\"alpha beta gamma\",{\"title\":\"T\",\"text\":"
                        "\"delta\"}]}";
    const char *second = "{" ASK ",\"documents\":[{\"id\":\"t\",\"data\":{\"title\":\"T\","
                         "\"snippet\":\"delta\"}},\"alpha beta gamma\"]}";
    struct json_object *cold = ask(&rig, "POST", CHAT, first, 200);
    uint64_t reused = host_counter(rig.host, "tokens_reused");
    struct json_object *warm = ask(&rig, "POST", CHAT, second, 200);
    double cached = gateway_number_at(warm, "usage.prompt_tokens_details.cached_tokens");

    ck_assert(gateway_number_at(cold, "usage.prompt_tokens_details.cached_tokens") == 0);
    ck_assert_str_eq(gateway_text_at(cold, "usage.documents.0.reason"), "cold");
    ck_assert_str_eq(gateway_text_at(warm, "usage.documents.0.id"), "t");
    ck_assert_str_eq(gateway_text_at(warm, "usage.documents.0.reason"), "hit");
    ck_assert_str_eq(gateway_text_at(warm, "usage.documents.1.reason"), "hit");
    ck_assert_str_eq(gateway_text_at(warm, "usage.documents.1.hash"),
                     gateway_text_at(cold, "usage.documents.0.hash"));
    ck_assert_ptr_null(gateway_at(warm, "usage.documents.2"));
    ck_assert(gateway_number_at(warm, "usage.request") > gateway_number_at(cold, "usage.request"));
    ck_assert(cached > 0);
    ck_assert((double)(host_counter(rig.host, "tokens_reused") - reused) == cached);
    json_object_put(cold);
    json_object_put(warm);
    stop(&rig);
}
END_TEST

START_TEST(a_registered_document_is_asked_about_by_id_and_by_hash)
{
    struct rig rig = start(NULL);
    char body[512];
    struct json_object *made =
        ask(&rig, "POST", "/v1/documents",
            "{\"id\":\"books/one\",\"title\":\"T\",\"text\":\"alpha beta gamma\"}", 200);
    const char *hash = gateway_text_at(made, "hash");
    struct json_object *root;

    root = ask(&rig, "GET", "/v1/documents/books%2Fone", NULL, 200);
    ck_assert_str_eq(gateway_text_at(root, "hash"), hash);
    json_object_put(root);
    root = ask(&rig, "GET", "/v1/documents", NULL, 200);
    ck_assert_str_eq(gateway_text_at(root, "data.0.id"), "books/one");
    ck_assert_str_eq(gateway_text_at(root, "data.0.hash"), hash);
    ck_assert(gateway_number_at(root, "total") == 1);
    json_object_put(root);
    root = ask(&rig, "POST", "/v1/documents/books%2Fone/warm", "", 200);
    json_object_put(root);
    root = ask(&rig, "GET", "/v1/documents/books%2Fone", NULL, 200);
    ck_assert_str_eq(gateway_text_at(root, "state"), "sealed");
    json_object_put(root);
    (void)snprintf(body, sizeof(body),
                   "{" ASK ",\"documents\":[\"x\",{\"id\":\"books/one\"},{\"hash\":\"%s\"}]}",
                   hash);
    root = ask(&rig, "POST", CHAT, body, 200);
    ck_assert_str_eq(gateway_text_at(root, "usage.documents.1.hash"), hash);
    ck_assert_str_eq(gateway_text_at(root, "usage.documents.1.reason"), "hit");
    ck_assert_str_eq(gateway_text_at(root, "usage.documents.2.hash"), hash);
    json_object_put(root);
    root = ask(&rig, "POST", "/v1/documents/books%2Fone/pin", "{\"ttl_seconds\":60}", 200);
    json_object_put(root);
    root = ask(&rig, "GET", "/v1/documents/books%2Fone", NULL, 200);
    ck_assert(gateway_number_at(root, "pins") == 1);
    json_object_put(root);
    root = ask(&rig, "DELETE", "/v1/documents/books%2Fone/pin", NULL, 200);
    json_object_put(root);
    root = ask(&rig, "DELETE", "/v1/documents/books%2Fone", NULL, 200);
    ck_assert(gateway_number_at(root, "blocks_erased") > 0);
    ck_assert(gateway_number_at(root, "copies") > 0);
    json_object_put(root);
    root = ask(&rig, "GET", "/v1/documents", NULL, 200);
    ck_assert_ptr_null(gateway_at(root, "data.0"));
    json_object_put(root);
    root = ask(&rig, "GET", "/v1/documents/books%2Fone", NULL, 404);
    json_object_put(root);
    root = ask(&rig, "POST", CHAT, body, 404);
    ck_assert_str_eq(gateway_text_at(root, "error.code"), "document_not_found");
    ck_assert_str_eq(gateway_text_at(root, "error.param"), "documents[1]");
    json_object_put(root);
    json_object_put(made);
    stop(&rig);
}
END_TEST

#define LONG_ASK                                                                                   \
    "\"messages\":[{\"role\":\"user\",\"content\":\"which?\"}],\"max_tokens\":900,"                \
    "\"temperature\":0,\"ignore_eos\":true,\"documents\":[\"alpha beta gamma\",\"delta\"]"

/* kvasird dies while it gives so many answers; the next one takes over. */
static void
crash_in_answers(const struct rig *rig, size_t count)
{
    host_wait_answering(rig->host, count);
    host_kill_daemon(rig->host);
    host_restart_daemon(rig->host);
}

/* The texts of a stream's events, one after the other. */
static void
join_deltas(const char *body, char *out, size_t size)
{
    static const char mark[] = "\"content\":\"";
    size_t length = 0;

    for (const char *at = strstr(body, mark); at != NULL; at = strstr(at, mark)) {
        for (at += strlen(mark); *at != '"' && length + 2 < size; at++) {
            out[length++] = *at;
            if (*at == '\\') {
                out[length++] = *++at;
            }
        }
    }
    out[length] = '\0';
}

START_TEST(answers_and_streams_go_on_over_a_crash_of_the_daemon)
{
    static char undisturbed[65536], stream[65536];
    struct rig rig = start_with(&(struct host_options){.workers = 1, .keeps_pool = true}, NULL);
    struct json_object *warm = ask(&rig, "POST", CHAT, "{" LONG_ASK ",\"n\":2}", 200);
    struct http *http = http_open(rig.gateway.port);

    do { /* until kvasird was killed before the end of both */
        http_request(http, "POST", CHAT, NULL, "{" LONG_ASK ",\"n\":2}");
        crash_in_answers(&rig, 2);
        ck_assert_uint_eq(http_response(http), 200);
        struct json_object *whole = gateway_json(http_body(http));

        for (int i = 0; i < 2; i++) {
            const char *path = i == 0 ? "choices.0.message.content" : "choices.1.message.content";

            ck_assert_str_eq(gateway_text_at(whole, path), gateway_text_at(warm, path));
        }
        ck_assert(gateway_number_at(whole, "usage.completion_tokens") == 1800);
        json_object_put(whole);
    } while (host_counter(rig.host, "requests_regained") < 2);
    json_object_put(warm);
    http_request(http, "POST", CHAT, NULL, "{" LONG_ASK ",\"stream\":true}");
    ck_assert_uint_eq(http_response(http), 200);
    join_deltas(http_body(http), undisturbed, sizeof(undisturbed));
    http_request(http, "POST", CHAT, NULL, "{" LONG_ASK ",\"stream\":true}");
    crash_in_answers(&rig, 1);
    ck_assert_uint_eq(http_response(http), 200);
    join_deltas(http_body(http), stream, sizeof(stream));
    ck_assert_str_eq(stream, undisturbed);
    ck_assert_ptr_nonnull(strstr(http_body(http), "[DONE]"));
    ck_assert_ptr_null(strstr(http_body(http), "error"));
    http_close(&http);
    stop(&rig);
}
END_TEST

static char *
write_keys(const char *text)
{
    char *path = strdup("/tmp/kvasir-keys-XXXXXX");
    int fd = mkstemp(path);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fd), 0);
    return path;
}

START_TEST(tenants_share_nothing_and_strangers_get_nothing)
{
    /* sha256 of "secret-b" */
    char *path = write_keys("# tenants\nacme = secret-a\n"
                            "blue = sha256:"
                            "ff492ef788c89b555e6f738b33d2422f57dbb6656af2402155672c5f123a90af\n"
                            "blue = secret-c\n");
    const char *const args[] = {"--api-keys", path, NULL};
    const char *a = "Authorization: Bearer secret-a\r\n", *c = "Authorization: Bearer secret-c\r\n";
    const char *body = "{" ASK ",\"documents\":[\"alpha beta gamma\"]}";
    const char *by_id = "{" ASK ",\"documents\":[{\"id\":\"d\"}]}";
    struct rig rig = start(args);

    json_object_put(ask(&rig, "POST", CHAT, body, 401));
    json_object_put(ask_as(&rig, "Authorization: Bearer secret-x\r\n", "POST", CHAT, body, 401));
    json_object_put(ask(&rig, "GET", "/v1/models", NULL, 401));
    ck_assert(gateway_metric(&rig.gateway, "kvasir_http_auth_failures_total") == 3);
    json_object_put(ask_as(&rig, a, "POST", CHAT, body, 200));
    struct json_object *own = ask_as(&rig, a, "POST", CHAT, body, 200);
    struct json_object *other = ask_as(&rig, c, "POST", CHAT, body, 200);

    ck_assert_str_eq(gateway_text_at(own, "usage.documents.0.reason"), "hit");
    ck_assert_str_eq(gateway_text_at(other, "usage.documents.0.reason"), "cold");
    ck_assert_str_ne(gateway_text_at(own, "usage.documents.0.hash"),
                     gateway_text_at(other, "usage.documents.0.hash"));
    json_object_put(own);
    json_object_put(other);
    json_object_put(
        ask_as(&rig, a, "POST", "/v1/documents", "{\"id\":\"d\",\"text\":\"ours\"}", 200));
    json_object_put(ask_as(&rig, a, "POST", CHAT, by_id, 200));
    json_object_put(ask_as(&rig, c, "POST", CHAT, by_id, 404));
    json_object_put(ask_as(&rig, c, "GET", "/v1/documents/d", NULL, 404));
    struct json_object *list = ask_as(&rig, c, "GET", "/v1/documents", NULL, 200);

    ck_assert_ptr_null(gateway_at(list, "data.0"));
    json_object_put(list);
    json_object_put(ask_as(&rig, c, "DELETE", "/v1/documents/d", NULL, 404));
    json_object_put(ask_as(&rig, a, "GET", "/v1/documents/d", NULL, 200));
    stop(&rig);
    ck_assert_int_eq(unlink(path), 0);
    free(path);
}
END_TEST

START_TEST(text_becomes_tokens_and_tokens_text)
{
    struct rig rig = start(NULL);
    struct json_object *root = ask(&rig, "POST", "/tokenize", "{\"prompt\":\"alpha beta\"}", 200);
    struct json_object *tokens = gateway_at(root, "tokens");
    char body[512];

    ck_assert(gateway_number_at(root, "count") == (double)json_object_array_length(tokens));
    (void)snprintf(body, sizeof(body), "{\"tokens\":%s}", json_object_to_json_string(tokens));
    json_object_put(root);
    root = ask(&rig, "POST", "/detokenize", body, 200);
    ck_assert_str_eq(gateway_text_at(root, "prompt"), "alpha beta");
    json_object_put(root);
    root = ask(&rig, "POST", "/detokenize", "{\"tokens\":[99999999]}", 400);
    json_object_put(root);
    /* A chat has as many tokens as its answer says. */
    root = ask(&rig, "POST", "/tokenize", "{" ASK ",\"documents\":[\"x y\"]}", 200);
    double count = gateway_number_at(root, "count");

    json_object_put(root);
    root = ask(&rig, "POST", CHAT, "{" ASK ",\"documents\":[\"x y\"]}", 200);
    ck_assert(gateway_number_at(root, "usage.prompt_tokens") == count);
    json_object_put(root);
    stop(&rig);
}
END_TEST

/* The tiny model says anything, single bytes of long characters as well. */
START_TEST(no_event_ends_within_a_character)
{
    struct rig rig = start(NULL);
    struct http *http = http_open(rig.gateway.port);
    unsigned events = 0;

    http_request(http, "POST", CHAT, NULL,
                 "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":300,"
                 "\"temperature\":2,\"seed\":1,\"ignore_eos\":true,\"stream\":true}");
    ck_assert_uint_eq(http_response(http), 200);
    char *body = strdup(http_body(http)), *rest = body, *event;

    ck_assert_uint_eq(utf8_check(body, strlen(body)), strlen(body));
    while ((event = strsep(&rest, "\n")) != NULL) {
        if (strncmp(event, "data: {", 7) == 0) {
            struct json_object *root = gateway_json(event + 6);
            struct json_object *text = gateway_at(root, "choices.0.delta.content");

            events += text != NULL;
            json_object_put(root);
        }
    }
    ck_assert_uint_gt(events, 50);
    free(body);
    http_close(&http);
    stop(&rig);
}
END_TEST

START_TEST(a_client_that_goes_gives_its_blocks_back_within_two_steps)
{
    const struct tiny_model_config model = host_slow_model();
    struct rig rig = start_with(&(struct host_options){.workers = 1, .model = &model}, NULL);

    for (unsigned i = 0; i < 2; i++) {
        struct http *http = http_open(rig.gateway.port);

        http_request(http, "POST", CHAT, NULL,
                     i == 0 ? "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                              "\"max_tokens\":4000,\"ignore_eos\":true,\"stream\":true}"
                            : "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],"
                              "\"max_tokens\":4000,\"ignore_eos\":true}");
        if (i == 0) {
            ck_assert_uint_eq(http_response_head(http), 200);
        } else {
            host_wait_at_least(rig.host, "requests_running", 1);
        }
        http_close(&http);
        host_wait_exactly(rig.host, "blocks_own", 0);
        host_wait_at_least(rig.host, "requests_cancelled", i + 1);
        ck_assert_uint_le(host_counter(rig.host, "stop_steps_max"), 2);
    }
    stop(&rig);
}
END_TEST

START_TEST(a_response_format_makes_any_model_write_json_of_the_schema)
{
    struct rig rig = start(NULL);

    for (int seed = 0; seed < 4; seed++) {
        char body[1024];

        (void)snprintf(
            body, sizeof(body),
            "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":400,\"seed\":%d,"
            "\"temperature\":%d,\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{"
            "\"name\":\"p\",\"schema\":{\"type\":\"object\",\"properties\":{\"name\":{\"type\":"
            "\"string\",\"maxLength\":12},\"kind\":{\"enum\":[\"a\",\"ab\"]},\"n\":{\"type\":"
            "\"integer\"}},\"required\":[\"name\",\"kind\",\"n\"]}}}}",
            seed, seed % 3);
        struct json_object *root = ask(&rig, "POST", CHAT, body, 200);
        struct json_object *value =
            gateway_json(gateway_text_at(root, "choices.0.message.content"));

        ck_assert_str_eq(gateway_text_at(root, "choices.0.finish_reason"), "stop");
        (void)gateway_text_at(value, "name");
        ck_assert_int_eq(gateway_text_at(value, "kind")[0], 'a');
        (void)gateway_number_at(value, "n");
        json_object_put(value);
        json_object_put(root);
    }
    struct json_object *root =
        ask(&rig, "POST", CHAT,
            "{" ASK ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":"
            "{\"type\":\"integer\",\"minimum\":3}}}}",
            400);

    ck_assert_ptr_nonnull(strstr(gateway_text_at(root, "error.message"), "minimum"));
    json_object_put(root);
    stop(&rig);
}
END_TEST

START_TEST(logit_bias_seed_and_stop_do_what_they_say)
{
    struct rig rig = start(NULL);
    struct json_object *root = ask(&rig, "POST", "/tokenize", "{\"prompt\":\"q\"}", 200);
    char body[512];

    (void)snprintf(body, sizeof(body),
                   "{" ASK ",\"temperature\":0,\"logit_bias\":{\"%d\":100},\"logprobs\":true,"
                   "\"top_logprobs\":1}",
                   (int)gateway_number_at(root, "tokens.0"));
    json_object_put(root);
    root = ask(&rig, "POST", CHAT, body, 200);
    ck_assert_str_eq(gateway_text_at(root, "choices.0.message.content"), "qqqq");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.finish_reason"), "length");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.logprobs.content.0.token"), "q");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.logprobs.content.0.top_logprobs.0.token"),
                     "q");
    json_object_put(root);
    (void)snprintf(body + strlen(body) - 1, sizeof(body) - strlen(body), ",\"stop\":[\"qqq\"]}");
    root = ask(&rig, "POST", CHAT, body, 200);
    ck_assert_str_eq(gateway_text_at(root, "choices.0.message.content"), "");
    ck_assert_str_eq(gateway_text_at(root, "choices.0.finish_reason"), "stop");
    json_object_put(root);
    struct json_object *same[2];

    for (int i = 0; i < 2; i++) {
        same[i] = ask(&rig, "POST", CHAT,
                      "{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":12,"
                      "\"temperature\":2,\"seed\":5,\"n\":2,\"ignore_eos\":true}",
                      200);
    }
    ck_assert_str_eq(gateway_text_at(same[0], "choices.0.message.content"),
                     gateway_text_at(same[1], "choices.0.message.content"));
    ck_assert_str_eq(gateway_text_at(same[0], "choices.1.message.content"),
                     gateway_text_at(same[1], "choices.1.message.content"));
    ck_assert_str_ne(gateway_text_at(same[0], "choices.0.message.content"),
                     gateway_text_at(same[0], "choices.1.message.content"));
    json_object_put(same[0]);
    json_object_put(same[1]);
    stop(&rig);
}
END_TEST

START_TEST(five_hundred_streams_at_once_are_all_answered_whole)
{
    enum {
        STREAMS = 512
    };
    static const char *const worker_args[] = {"--seqs-max", "128", NULL};
    struct host *host = host_start(
        &(struct host_options){.workers = 1, .kv_memory = "64MiB", .worker_args = worker_args});
    static const char *const args[] = {"--threads", "2", NULL};
    struct gateway gateway = gateway_start(host_dir(host), args);
    struct http *https[STREAMS];

    gateway_wait_health(&gateway, 200);
    for (int i = 0; i < STREAMS; i++) {
        char body[256];

        (void)snprintf(body, sizeof(body),
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"%d\"}],\"max_tokens\":8,"
                       "\"ignore_eos\":true,\"stream\":true,\"documents\":[\"%d\",\"shared\"],"
                       "\"stream_options\":{\"include_usage\":true}}",
                       i, i % 7);
        https[i] = http_open(gateway.port);
        http_request(https[i], "POST", CHAT, NULL, body);
    }
    for (int i = 0; i < STREAMS; i++) {
        ck_assert_uint_eq(http_response(https[i]), 200);
        ck_assert_ptr_nonnull(strstr(http_body(https[i]), "data: [DONE]\n\n"));
        ck_assert_ptr_nonnull(strstr(http_body(https[i]), "\"completion_tokens\":8"));
        http_close(&https[i]);
    }
    ck_assert_uint_eq(host_counter(host, "requests_finished"), STREAMS);
    /* A preamble, seven documents, and the one that all share. */
    ck_assert_uint_le(host_counter(host, "docs_built"), 9);
    gateway_stop(&gateway);
    host_stop(&host);
}
END_TEST

static void
run_ctl(const struct host *host, const char *command)
{
    const char *const args[] = {"--runtime-dir", host_dir(host), "workers", command, "all", NULL};
    struct process *process = process_start("./kvasirctl", args, NULL);

    ck_assert_int_eq(process_wait(process), 0);
    process_destroy(&process);
}

START_TEST(health_is_503_without_a_worker_and_while_something_drains)
{
    struct host *host = host_start(&(struct host_options){.workers = 0});
    struct gateway gateway = gateway_start(host_dir(host), NULL);

    gateway_wait_health(&gateway, 503);
    (void)host_add_worker(host);
    gateway_wait_health(&gateway, 200);
    run_ctl(host, "drain");
    gateway_wait_health(&gateway, 503);
    run_ctl(host, "resume");
    gateway_wait_health(&gateway, 200);
    gateway_stop(&gateway);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("gateway_daemon", cached_tokens_are_those_that_were_read_and_not_built,
           a_registered_document_is_asked_about_by_id_and_by_hash,
           answers_and_streams_go_on_over_a_crash_of_the_daemon,
           tenants_share_nothing_and_strangers_get_nothing, text_becomes_tokens_and_tokens_text,
           no_event_ends_within_a_character,
           a_client_that_goes_gives_its_blocks_back_within_two_steps,
           a_response_format_makes_any_model_write_json_of_the_schema,
           logit_bias_seed_and_stop_do_what_they_say,
           five_hundred_streams_at_once_are_all_answered_whole,
           health_is_503_without_a_worker_and_while_something_drains)
