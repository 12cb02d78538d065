/* SPDX-License-Identifier: Apache-2.0 */
/* kvasir-bench against a real daemon: the second run of a seed asks the same and is answered with
 * the same tokens; cold and warm are told apart; two targets take turns. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <json-c/json.h>

#include "tests/support/check_main.h"
#include "tests/support/host.h"

static char results[40];

/* Runs kvasir-bench with two targets of the same daemon, whose results it reads and removes. */
static void
bench(struct host *host, const char *salt, struct json_object *out[2])
{
    char place[2][200], path[200];
    const char *args[] = {"--requests",
                          "12",
                          "--pool",
                          "6",
                          "--docs",
                          "3",
                          "--alpha",
                          "1.1",
                          "--vocab",
                          "512",
                          "--document-tokens",
                          "20-60",
                          "--query-tokens",
                          "8",
                          "--output-tokens",
                          "5",
                          "--concurrency",
                          "3",
                          "--rounds",
                          "2",
                          "--salt",
                          salt,
                          "--detailed",
                          "--result-dir",
                          results,
                          place[0],
                          place[1],
                          NULL};

    (void)snprintf(place[0], sizeof(place[0]), "first=kvasir:%s", host_dir(host));
    (void)snprintf(place[1], sizeof(place[1]), "second=kvasir:%s?reuse=lazy", host_dir(host));
    struct process *process = process_start_piped("./kvasir-bench", args, NULL);
    const char *output = process_output(process);

    ck_assert_ptr_nonnull(strstr(output, "Serving Benchmark Result: first"));
    ck_assert_ptr_nonnull(strstr(output, "Document hit ratio (%):"));
    ck_assert_int_eq(process_wait(process), 0);
    process_destroy(&process);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s.json", results, i == 0 ? "first" : "second");
        out[i] = json_object_from_file(path);
        ck_assert_msg(out[i] != NULL, "%s", path);
        ck_assert_int_eq(unlink(path), 0);
    }
}

static const char *
part(struct json_object *object, const char *key)
{
    struct json_object *value = NULL;

    ck_assert_msg(json_object_object_get_ex(object, key, &value), "%s", key);
    return json_object_to_json_string_ext(value, JSON_C_TO_STRING_PLAIN);
}

static void
run_twice(const char *const *daemon_args)
{
    struct host *host =
        host_start(&(struct host_options){.workers = 2, .daemon_args = daemon_args});
    struct json_object *a[2], *b[2];

    (void)snprintf(results, sizeof(results), "/tmp/kvasir-bench-test.XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(results));
    ck_assert_int_eq(rmdir(results), 0); /* it is made */
    bench(host, "one", a);
    bench(host, "two", b);
    for (int i = 0; i < 2; i++) {
        ck_assert_str_eq(part(a[i], "completed"), "12");
        ck_assert_str_eq(part(a[i], "input_lens"), part(b[i], "input_lens"));
        ck_assert_str_eq(part(a[i], "text_hashes"), part(b[i], "text_hashes"));
        ck_assert_str_eq(part(a[i], "output_lens"), "[5,5,5,5,5,5,5,5,5,5,5,5]");
    }
    /* What the first target of a round built, the second one finds. */
    ck_assert_str_eq(part(a[0], "text_hashes"), part(a[1], "text_hashes"));
    ck_assert_str_ne(part(a[0], "documents"), part(a[0], "documents_hit"));
    ck_assert_str_eq(part(a[1], "documents"), part(a[1], "documents_hit"));
    ck_assert_str_eq(part(a[1], "document_tokens"), part(a[1], "tokens_reused"));
    for (int i = 0; i < 2; i++) {
        json_object_put(a[i]);
        json_object_put(b[i]);
    }
    ck_assert_int_eq(rmdir(results), 0);
    host_stop(&host);
}

START_TEST(a_seed_gives_the_same_requests_and_in_deterministic_mode_the_same_text)
{
    run_twice((const char *[]){"--deterministic", NULL});
}
END_TEST

START_TEST(on_the_cpu_a_seed_gives_the_same_text_anyway)
{
    run_twice(NULL);
}
END_TEST

CHECK_MAIN("bench", a_seed_gives_the_same_requests_and_in_deterministic_mode_the_same_text,
           on_the_cpu_a_seed_gives_the_same_text_anyway)
