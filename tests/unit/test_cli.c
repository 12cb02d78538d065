/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir and kvasirctl, the real programs, against the fake daemon: output and exit codes. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <json-c/json.h>

#include "tests/support/check_main.h"
#include "tests/support/fake_daemon.h"
#include "tests/support/process.h"

#define KEY "abababababababababababababababababababababababababababababababab"

/* A folder with a daemon's sockets and two documents. */
struct fixture {
    char dir[64];
    char doc_a[96];
    char doc_b[96];
    char jsonl[96];
    struct fake_daemon *daemon;
};

static void
write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static struct fixture
setup(void)
{
    struct fixture f = {.dir = "/tmp/kvasir-cli-"
                               "XX"
                               "XX"
                               "XX"}; /* mkdtemp fills it */

    ck_assert_ptr_nonnull(mkdtemp(f.dir));
    (void)snprintf(f.doc_a, sizeof(f.doc_a), "%s/a.txt", f.dir);
    (void)snprintf(f.doc_b, sizeof(f.doc_b), "%s/b.md", f.dir);
    (void)snprintf(f.jsonl, sizeof(f.jsonl), "%s/list.jsonl", f.dir);
    write_file(f.doc_b, "second");
    write_file(f.doc_a, "first");
    write_file(f.jsonl,
               "{\"text\": \"one\", \"id\": \"id-1\", \"other\": [1]}\n\n{\"text\": \"two\"}");
    f.daemon = fake_daemon_start(f.dir);
    return f;
}

static void
teardown(struct fixture *f)
{
    char path[128];

    fake_daemon_stop(&f->daemon);
    (void)snprintf(path, sizeof(path), "%s/client.sock", f->dir);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/admin.sock", f->dir);
    (void)unlink(path);
    ck_assert_int_eq(unlink(f->doc_a), 0);
    ck_assert_int_eq(unlink(f->doc_b), 0);
    ck_assert_int_eq(unlink(f->jsonl), 0);
    ck_assert_int_eq(rmdir(f->dir), 0);
}

/* Runs a program with KVASIR_RUNTIME_DIR set; returns its exit code, its stdout in *output_out. */
static int
run(const struct fixture *f, const char *program, const char *const *args, const char **output_out)
{
    static char output[16384];
    char variable[128];
    const char *env[] = {variable, NULL};

    (void)snprintf(variable, sizeof(variable), "KVASIR_RUNTIME_DIR=%s", f->dir);
    struct process *process = process_start_piped(program, args, env);

    (void)snprintf(output, sizeof(output), "%s", process_output(process));
    int code = process_wait(process);

    process_destroy(&process);
    *output_out = output;
    return code;
}

#define RUN(f, program, output, ...)                                                               \
    run((f), (program), (const char *const[]){__VA_ARGS__, NULL}, (output))

static json_object *
parse(const char *text)
{
    json_object *object = json_tokener_parse(text);
    json_object *schema;

    ck_assert_msg(object != NULL, "not JSON: %s", text);
    ck_assert(json_object_object_get_ex(object, "schema", &schema));
    ck_assert_int_eq(json_object_get_int(schema), 1);
    return object;
}

/* The text of a member reached by names: "usage", "ttft_us". */
static const char *
member(json_object *object, const char *name, const char *inner)
{
    json_object *value;

    ck_assert_msg(json_object_object_get_ex(object, name, &value), "no %s", name);
    if (inner != NULL) {
        ck_assert_msg(json_object_object_get_ex(value, inner, &value), "no %s", inner);
    }
    return json_object_get_string(value);
}

START_TEST(ask_streams_the_answer_as_text)
{
    struct fixture f = setup();
    const char *out;

    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--docs", f.dir, "hi"), 0);
    ck_assert_str_eq(out, "Hello wörld.\n");
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "--usage", "ask", "--raw", "--system", "be brief",
                         "--docs", f.doc_a, "--", "hi"),
                     0);
    ck_assert_str_eq(out, "Hello wörld.\n");
    teardown(&f);
}
END_TEST

START_TEST(ask_gives_one_json_object_or_one_a_reply)
{
    struct fixture f = setup();
    const char *out;
    json_object *object;

    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--json", "--docs", f.doc_b, "--jsonl",
                         f.jsonl, "--seed", "18446744073709551615", "hi"),
                     0);
    object = parse(out);
    ck_assert_str_eq(member(object, "text", NULL), "Hello wörld.");
    ck_assert_str_eq(member(object, "token_ids", NULL), "[ 1, 2, 3 ]");
    ck_assert_str_eq(member(object, "finish", NULL), "FINISH_STOP");
    ck_assert_str_eq(member(object, "usage", "ttft_us"), "1500");
    ck_assert_ptr_nonnull(strstr(out, "\"seed\":18446744073709551615"));
    ck_assert_ptr_nonnull(strstr(out, f.doc_b)); /* the first document's id */
    json_object_put(object);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--stream-json", "--jsonl", f.jsonl, "hi"),
                     0);
    for (int lines = 0; lines < 4; lines++) {
        const char *end = strchr(out, '\n');

        ck_assert_ptr_nonnull(end);
        json_object_put(parse(out));
        out = end + 1;
    }
    ck_assert_str_eq(out, "");
    teardown(&f);
}
END_TEST

START_TEST(exit_codes_tell_what_kind_of_failure_it_was)
{
    struct fixture f = setup();
    const char *out;
    char nowhere[] = "ipc:///nonexistent/x.sock";

    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "full"), 1);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--frob", "x"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--docs", "/nonexistent", "x"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--temperature", "hot", "x"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--timeout", "forever", "x"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--logprobs", "2", "x"), 2);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "--endpoint", nowhere, "x"), 3);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "forget",
                         "00"
                         "ab" KEY),
                     2);
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "docs", "get",
                         "00ababababababababababababababababababababababababababababababab"),
                     4);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "ask", "late"), 5);
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "health", "--endpoint", nowhere), 3);
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "config"), 1); /* unimplemented in the fake */
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "workers", "-o", "nonsense"), 2);
    teardown(&f);
}
END_TEST

START_TEST(documents_can_be_registered_warmed_and_forgotten)
{
    struct fixture f = setup();
    const char *out;

    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "register", f.dir), 0);
    ck_assert_ptr_nonnull(strstr(out, "66666666 5 "));
    ck_assert_ptr_nonnull(strstr(out, "a.txt\n"));
    ck_assert(strstr(out, "a.txt") < strstr(out, "b.md"));
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "register", "--json", f.doc_b), 0);
    json_object_put(parse(out));
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "warm", KEY, KEY), 0);
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "forget", "--abort", KEY), 0);
    ck_assert_ptr_nonnull(strstr(out, "erased 3 blocks, 3145728 bytes: 1 copies"));
    ck_assert_ptr_nonnull(strstr(out, "2 ended"));
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "tokenize", "AB"), 0);
    ck_assert_str_eq(out, "65 66\n");
    ck_assert_int_eq(RUN(&f, "./kvasir", &out, "version"), 0);
    ck_assert_ptr_nonnull(strstr(out, "kvasird 0.1.0"));
    teardown(&f);
}
END_TEST

START_TEST(an_operator_sees_tables_and_programs_see_json)
{
    struct fixture f = setup();
    const char *out;
    json_object *object;

    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "workers", "-o", "worker,state,tokens_decoded"),
                     0);
    ck_assert_str_eq(out, "WORKER STATE TOKENS_DECODED\n     0 ready  1234567890123\n");
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "docs", "--no-headers", "-o", "hits,state"), 0);
    ck_assert_str_eq(out, "   3 sealed\n   3 sealed\n");
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "docs", "list", "--json", "--limit", "2"), 0);
    object = parse(out);
    ck_assert_str_eq(member(object, "total", NULL), "9");
    json_object_put(object);
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "stats"), 0);
    ck_assert_ptr_nonnull(strstr(out, "doc_hits    41 documents found resident"));
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "status"), 0);
    ck_assert_ptr_nonnull(strstr(out, "up       1 min 1 s"));
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "health"), 0);
    ck_assert_str_eq(out, "SERVING: 1 worker\n");
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "docs", "pin", KEY, "--json"), 0);
    ck_assert_str_eq(out, "{\"schema\":1}\n");
    ck_assert_int_eq(RUN(&f, "./kvasirctl", &out, "docs", "get", KEY), 0);
    ck_assert_ptr_nonnull(strstr(out, KEY " sealed"));
    teardown(&f);
}
END_TEST

START_TEST(a_shell_is_told_what_could_come_next)
{
    static const struct {
        const char *words[4], *candidates;
    } cases[] = {
        {{"s"}, "status\nstats\n"},
        {{"w"}, "workers\nwhatif\n"},
        {{"docs", "pi"}, "pin\n"},
        {{"--json", "workers", "r"}, "resume\n"},
        {{"docs", "evict", "--j"}, "--json\n"},
        {{"docs", "evict", "-y"}, "--yes\n"},
        {{"docs", "-o", ""}, ""}, /* a value that no shell can guess */
        {{"docs", "pin", "12"}, ""},
        {{"nonsense", ""}, ""},
    };
    struct fixture f = setup();
    const char *output;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *const *w = cases[i].words;

        ck_assert_int_eq(
            RUN(&f, "./kvasirctl", &output, "completion", "words", "--", w[0], w[1], w[2], w[3]),
            0);
        ck_assert_str_eq(output, cases[i].candidates);
    }
    teardown(&f);
}
END_TEST

START_TEST(an_interrupt_cancels_the_call_and_exits_with_130)
{
    struct fixture f = setup();
    char dir[128];
    const char *env[] = {dir, NULL};
    const char *const args[] = {"ask", "hold", NULL};

    (void)snprintf(dir, sizeof(dir), "KVASIR_RUNTIME_DIR=%s", f.dir);
    struct process *process = process_start_piped("./kvasir", args, env);

    fake_daemon_wait_call(f.daemon);
    process_signal(process, SIGINT);
    ck_assert_uint_le(strlen(process_output(process)), strlen("Hello "));
    ck_assert_int_eq(process_wait(process), 130);
    ck_assert_uint_eq(fake_daemon_cancels(f.daemon), 1);
    process_destroy(&process);
    teardown(&f);
}
END_TEST

CHECK_MAIN("cli", ask_streams_the_answer_as_text, ask_gives_one_json_object_or_one_a_reply,
           exit_codes_tell_what_kind_of_failure_it_was,
           documents_can_be_registered_warmed_and_forgotten,
           an_operator_sees_tables_and_programs_see_json, a_shell_is_told_what_could_come_next,
           an_interrupt_cancels_the_call_and_exits_with_130)
