/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird's options: defaults that hold, refusals that say what may be, a manual that names them
 * all. */
#include <stdlib.h>
#include <string.h>

#include "common/mem.h"
#include "daemon/options.h"
#include "tests/support/check_main.h"

static enum status
read_args(struct options *options, const char *name, const char *value)
{
    char program[] = "kvasird", model[] = "--model", file[] = "m.gguf";
    char name_copy[64], value_copy[64];
    char *argv[] = {program, model, file, name_copy, value_copy, NULL};

    (void)snprintf(name_copy, sizeof(name_copy), "%s", name == NULL ? "" : name);
    (void)snprintf(value_copy, sizeof(value_copy), "%s", value == NULL ? "" : value);
    *options = (struct options){0};
    TRY(options_read(name == NULL ? 3 : 5, argv, options));
    return options_check(options);
}

static void
expect_refused(const char *name, const char *value, const char *message)
{
    struct options options;

    ck_assert_int_eq(read_args(&options, name, value), ST_INVALID);
    ck_assert_str_eq(status_detail(), message);
    options_deinit(&options);
}

START_TEST(the_defaults_are_those_of_the_manual)
{
    struct options options;
    struct kv_memory kv_memory;

    ck_assert_int_eq(read_args(&options, NULL, NULL), ST_OK);
    ck_assert_int_eq(options_kv_memory(&options, &kv_memory), ST_OK);
    ck_assert_uint_eq(kv_memory.bytes, 1u << 30);
    ck_assert_uint_eq(options.block_tokens, 32);
    ck_assert_uint_eq(options.reserve_tokens, 256);
    ck_assert_uint_eq(options.max_waiting, 1024);
    ck_assert_uint_eq(options.request_timeout, 600000);
    ck_assert_uint_eq(options.heartbeat, 1000);
    ck_assert_uint_eq(options.worker_liveness, 5000);
    ck_assert(!options.check_pool);
    options_deinit(&options);
}
END_TEST

START_TEST(kv_memory_is_a_size_or_a_share_of_what_is_free)
{
    static const struct {
        const char *text;
        uint64_t bytes;
        double percent;
    } cases[] = {
        {"40GiB", UINT64_C(40) << 30, 0},
        {"1", 1, 0},
        {"0.9", 0, 90},
        {"90%", 0, 90},
        {"1.0", 0, 100},
        {"100%", 0, 100},
        {"12.5%", 0, 12.5},
        {".5", 0, 50},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct options options;
        struct kv_memory memory;

        ck_assert_msg(read_args(&options, "--kv-memory", cases[i].text) == ST_OK, "%s: %s",
                      cases[i].text, status_detail());
        ck_assert_int_eq(options_kv_memory(&options, &memory), ST_OK);
        ck_assert_uint_eq(memory.bytes, cases[i].bytes);
        ck_assert_double_eq(memory.percent, cases[i].percent);
        options_deinit(&options);
    }
    expect_refused("--kv-memory", "0", "kv-memory: 0 is below the minimum, 1");
    expect_refused("--kv-memory", "0.0",
                   "kv-memory 0.0: a share must be above 0 and at most 1.0, or 100%");
    expect_refused("--kv-memory", "0%",
                   "kv-memory 0%: a share must be above 0 and at most 1.0, or 100%");
    expect_refused("--kv-memory", "1.5",
                   "kv-memory 1.5: a share must be above 0 and at most 1.0, or 100%");
    expect_refused("--kv-memory", "101%",
                   "kv-memory 101%: a share must be above 0 and at most 1.0, or 100%");
    expect_refused("--kv-memory", "0.5.5",
                   "kv-memory 0.5.5: a share must be above 0 and at most 1.0, or 100%");
    expect_refused("--kv-memory", "1.5GiB",
                   "kv-memory: '1.5GiB' is not a size such as 4096, 512MiB or 4GiB");
    expect_refused("--kv-memory", "-0.5",
                   "kv-memory: '-0.5' is not a size such as 4096, 512MiB or 4GiB");
}
END_TEST

START_TEST(what_the_table_cannot_check_is_checked_and_named)
{
    char program[] = "kvasird";
    char *argv[] = {program, NULL};
    struct options options = {0};

    ck_assert_int_eq(options_read(1, argv, &options), ST_OK);
    ck_assert_int_eq(options_check(&options), ST_INVALID);
    ck_assert_str_eq(status_detail(), "model is missing: name a checkpoint with --model");
    options_deinit(&options);
    expect_refused("--block-tokens", "48", "block-tokens 48: it must be 16, 32 or 64");
    expect_refused("--kv-type", "fp8", "kv-type fp8: it must be auto, f32 or bf16");
    expect_refused("--worker-liveness", "1500ms",
                   "worker-liveness 1500ms: it must be at least twice the heartbeat");
    expect_refused("--log-level", "loud",
                   "log-level loud: it must be error, warn, info, debug or trace");
    expect_refused("--shape", "tiny", "shape tiny: it goes with --load-format dummy only");
    expect_refused("--load-format", "dummy",
                   "load-format dummy goes with --shape and without --model");
    expect_refused("--eviction", "mru", "eviction mru: it must be zipf, lru, s3fifo or arc");
}
END_TEST

START_TEST(the_manual_names_every_option)
{
    struct options options = {0};
    struct conf conf = options_conf(&options);
    const char *source = getenv("KVASIR_SRCDIR");
    char path[512], pattern[96];
    char *text = mem_zalloc(64u << 10, 1);
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/daemon/kvasird.8", source == NULL ? "." : source);
    file = fopen(path, "r");
    ck_assert_msg(file != NULL, "no manual at %s", path);
    ck_assert_uint_gt(fread(text, 1, (64u << 10) - 1, file), 0);
    fclose(file);
    for (size_t i = 0; i < conf.count; i++) {
        (void)snprintf(pattern, sizeof(pattern), ".It Fl Fl %s", conf.table[i].name);
        ck_assert_msg(strstr(text, pattern) != NULL, "the manual lacks --%s", conf.table[i].name);
    }
    mem_free(text);
}
END_TEST

CHECK_MAIN("options", the_defaults_are_those_of_the_manual,
           kv_memory_is_a_size_or_a_share_of_what_is_free,
           what_the_table_cannot_check_is_checked_and_named, the_manual_names_every_option)
