/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "common/conf.h"
#include "common/mem.h"
#include "tests/support/check_main.h"

struct options {
    char *model;
    char *label;
    uint64_t kv_memory;
    uint64_t block_tokens;
    uint64_t drain_timeout_ms;
    double pin_share_max;
    bool deterministic;
};

#define AT(member) offsetof(struct options, member)

static const struct conf_option table[] = {
    {"model", CONF_STRING, NULL, 0, 0, "FILE", "checkpoint to serve", AT(model)},
    {"label", CONF_STRING, "kv", 0, 0, "TEXT", "name of this pool", AT(label)},
    {"kv-memory", CONF_SIZE, "4GiB", 1 << 20, UINT64_C(1) << 40, "BYTES", "memory for blocks",
     AT(kv_memory)},
    {"block-tokens", CONF_U64, "32", 16, 64, "N", "tokens in a block", AT(block_tokens)},
    {"drain-timeout", CONF_DURATION, "30s", 0, 3600000, "TIME", "patience at the end",
     AT(drain_timeout_ms)},
    {"pin-share-max", CONF_F64, "0.5", 0, 1, "SHARE", "share that may be pinned",
     AT(pin_share_max)},
    {"deterministic", CONF_BOOL, "false", 0, 0, NULL, "same bytes whatever runs beside",
     AT(deterministic)},
};

static struct options options;
static const struct conf conf = {table, sizeof(table) / sizeof(table[0]), &options};

static void
start(void)
{
    ck_assert_int_eq(conf_defaults(conf), ST_OK);
}

/* A file with this text; the caller unlinks it. */
static void
write_file(const char *text, size_t length, char path_out[32])
{
    int fd;

    (void)snprintf(path_out, 32, "/tmp/test_conf_%ld", (long)getpid());
    fd = open(path_out, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
    close(fd);
}

static enum status
read_text(const char *text)
{
    char path[32];
    enum status st;

    write_file(text, strlen(text), path);
    st = conf_read_file(conf, path);
    unlink(path);
    return st;
}

/* A command line, split at its spaces; good until the next split. */
struct line {
    char *argv[16];
    int argc;
};

static char words[128];

static struct line
split(const char *text)
{
    struct line line = {.argc = 0};

    (void)snprintf(words, sizeof(words), "prog %s", text);
    for (char *rest = words, *word; (word = strsep(&rest, " ")) != NULL;) {
        if (*word != '\0') {
            line.argv[line.argc++] = word;
        }
    }
    return line;
}

static enum status
parse(int *first_operand_out, const char *text)
{
    struct line line = split(text);

    start();
    return conf_parse_args(conf, line.argc, line.argv, first_operand_out);
}

START_TEST(defaults_are_parsed_like_a_users_values)
{
    start();
    ck_assert_ptr_null(options.model);
    ck_assert_str_eq(options.label, "kv");
    ck_assert_uint_eq(options.kv_memory, UINT64_C(4) << 30);
    ck_assert_uint_eq(options.block_tokens, 32);
    ck_assert_uint_eq(options.drain_timeout_ms, 30000);
    ck_assert_double_eq(options.pin_share_max, 0.5);
    ck_assert(!options.deterministic);
    conf_deinit(conf);
    ck_assert_ptr_null(options.label);
}
END_TEST

START_TEST(the_command_line_wins_over_the_file_and_the_file_over_the_default)
{
    char path[32];
    const char text[] = "# ours\n  block-tokens =  16  \nkv-memory=1 GiB\r\n\nlabel=a=b#c";

    write_file(text, strlen(text), path);
    start();
    ck_assert_int_eq(conf_read_file(conf, path), ST_OK);
    int operand = 0;
    struct line line = split("--config FILE --block-tokens=64 run --deterministic");

    line.argv[2] = path;
    ck_assert_str_eq(conf_config_path(line.argc, line.argv), path);
    ck_assert_int_eq(conf_parse_args(conf, line.argc, line.argv, &operand), ST_OK);
    ck_assert_uint_eq(options.block_tokens, 64);
    ck_assert_uint_eq(options.kv_memory, UINT64_C(1) << 30);
    ck_assert_str_eq(options.label, "a=b#c");
    ck_assert_uint_eq(options.drain_timeout_ms, 30000);
    ck_assert_int_eq(operand, 4);
    ck_assert(!options.deterministic);
    unlink(path);
    conf_deinit(conf);
}
END_TEST

START_TEST(of_an_option_that_stands_twice_in_a_file_the_last_line_counts)
{
    start();
    ck_assert_int_eq(read_text("label = first\nblock-tokens = 16\nlabel = last\n"), ST_OK);
    ck_assert_str_eq(options.label, "last");
    conf_deinit(conf);
}
END_TEST

START_TEST(an_operand_or_two_dashes_end_the_options)
{
    int operand = 0;

    ck_assert_int_eq(parse(&operand, "--deterministic ask --model x"), ST_OK);
    ck_assert_int_eq(operand, 2);
    ck_assert(options.deterministic);
    ck_assert_ptr_null(options.model);
    ck_assert_int_eq(parse(&operand, "-- --model"), ST_OK);
    ck_assert_int_eq(operand, 2);
    ck_assert_int_eq(parse(&operand, "-"), ST_OK);
    ck_assert_int_eq(operand, 1);
    ck_assert_int_eq(parse(&operand, "--model -- --deterministic=no"), ST_OK);
    ck_assert_int_eq(operand, 4);
    ck_assert_str_eq(options.model, "--");
    ck_assert_int_eq(parse(&operand, ""), ST_OK);
    ck_assert_int_eq(operand, 1);
    conf_deinit(conf);
}
END_TEST

START_TEST(standing_options_are_passed_over_and_found_by_scan)
{
    int operand = 0;
    struct line line;

    ck_assert_int_eq(parse(&operand, "--help --config=a --print-config --config b"), ST_OK);
    ck_assert_int_eq(operand, 6);
    line = split("--help --config=a --print-config --config b");
    ck_assert(conf_scan(line.argc, line.argv, "help"));
    ck_assert(!conf_scan(line.argc, line.argv, "version"));
    ck_assert_str_eq(conf_config_path(line.argc, line.argv), "b");
    line = split("-- --help --config a");
    ck_assert(!conf_scan(line.argc, line.argv, "help"));
    ck_assert_ptr_null(conf_config_path(line.argc, line.argv));
    ck_assert_int_eq(parse(&operand, "--config"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "--config needs FILE");
    conf_deinit(conf);
}
END_TEST

START_TEST(an_unknown_option_names_its_nearest_neighbour)
{
    int operand = 0;

    ck_assert_int_eq(parse(&operand, "--kv_memory=3"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unknown option '--kv_memory'; did you mean '--kv-memory'?");
    ck_assert_int_eq(parse(&operand, "--halp"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unknown option '--halp'; did you mean '--help'?");
    ck_assert_int_eq(parse(&operand, "--zzzzzzzzzzzz"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unknown option '--zzzzzzzzzzzz'; --help lists all");
    ck_assert_int_eq(parse(&operand, "-v"), ST_INVALID);
    ck_assert_int_eq(conf_set(conf, "modell", "x"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "unknown option 'modell'; did you mean 'model'?");
    ck_assert_int_eq(conf_set(conf, "--=", "x"), ST_INVALID);
    ck_assert_int_eq(parse(&operand, "--="), ST_INVALID);
    conf_deinit(conf);
}
END_TEST

START_TEST(a_value_out_of_its_limits_is_refused_with_the_limit)
{
    int operand = 0;

    start();
    ck_assert_int_eq(parse(&operand, "--block-tokens 65"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "--block-tokens: 65 is above the maximum, 64");
    ck_assert_int_eq(conf_set(conf, "kv-memory", "4K"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "kv-memory: 4K is below the minimum, 1MiB");
    ck_assert_int_eq(conf_set(conf, "drain-timeout", "2h"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "drain-timeout: 2h is above the maximum, 1h");
    ck_assert_int_eq(conf_set(conf, "pin-share-max", "1.5"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "pin-share-max: 1.5 is above the maximum, 1");
    ck_assert_uint_eq(options.block_tokens, 32);
    conf_deinit(conf);
}
END_TEST

START_TEST(a_file_error_names_file_line_and_key)
{
    char path[32], expected[128];
    const char text[] = "model = a\n\nkv-memory = much\n";

    write_file(text, strlen(text), path);
    start();
    ck_assert_int_eq(conf_read_file(conf, path), ST_INVALID);
    snprintf(expected, sizeof(expected),
             "%s:3: kv-memory: 'much' is not a size such as 4096, 512MiB or 4GiB", path);
    ck_assert_str_eq(status_detail(), expected);
    unlink(path);
    ck_assert_int_eq(conf_read_file(conf, path), ST_SYSTEM);
    ck_assert_int_eq(conf_read_file(conf, "/tmp"), ST_SYSTEM);
    ck_assert_int_eq(read_text("model"), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), ":1: 'model': expected 'option = value'"));
    ck_assert_int_eq(read_text("model = a\001b"), ST_INVALID);
    conf_deinit(conf);
}
END_TEST

START_TEST(a_line_that_is_too_long_or_holds_a_nul_is_refused)
{
    static char text[5000];
    char path[32];

    start();
    memset(text, 'a', sizeof(text));
    write_file(text, sizeof(text), path);
    ck_assert_int_eq(conf_read_file(conf, path), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "line longer than 4095 bytes"));
    unlink(path);
    /* The longest line that fits, as the last one and without a newline. */
    memcpy(text, "model=", 6);
    write_file(text, 4095, path);
    ck_assert_int_eq(conf_read_file(conf, path), ST_OK);
    ck_assert_uint_eq(strlen(options.model), 4089);
    unlink(path);
    write_file("model=a\0b\n", 10, path);
    ck_assert_int_eq(conf_read_file(conf, path), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "byte 7 is NUL"));
    unlink(path);
    conf_deinit(conf);
}
END_TEST

START_TEST(sizes_and_durations_know_their_units_and_nothing_else)
{
    static const struct {
        const char *name, *text;
        uint64_t value; /* UINT64_MAX: refused */
    } cases[] = {
        {"kv-memory", "1048576", 1048576},
        {"kv-memory", "3M", 3 << 20},
        {"kv-memory", "3MiB", 3 << 20},
        {"kv-memory", "3mib", 3 << 20},
        {"kv-memory", "1 TiB", UINT64_C(1) << 40},
        {"kv-memory", "3MB", UINT64_MAX},
        {"kv-memory", "3.5GiB", UINT64_MAX},
        {"kv-memory", "-1", UINT64_MAX},
        {"kv-memory", " 3M", UINT64_MAX},
        {"kv-memory", "", UINT64_MAX},
        {"kv-memory", "G", UINT64_MAX},
        {"kv-memory", "99999999999999999999", UINT64_MAX},
        {"kv-memory", "99999999999T", UINT64_MAX},
        {"drain-timeout", "0", 0},
        {"drain-timeout", "250ms", 250},
        {"drain-timeout", "5s", 5000},
        {"drain-timeout", "2min", 120000},
        {"drain-timeout", "1h", 3600000},
        {"drain-timeout", "5", UINT64_MAX},
        {"drain-timeout", "5d", UINT64_MAX},
        {"block-tokens", "32x", UINT64_MAX},
        {"block-tokens", "0x20", UINT64_MAX},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bool refused = cases[i].value == UINT64_MAX;
        bool is_size = strcmp(cases[i].name, "kv-memory") == 0;

        start();
        ck_assert_msg(conf_set(conf, cases[i].name, cases[i].text)
                          == (refused ? ST_INVALID : ST_OK),
                      "%s = %s", cases[i].name, cases[i].text);
        if (!refused) {
            ck_assert_uint_eq(is_size ? options.kv_memory : options.drain_timeout_ms,
                              cases[i].value);
        }
    }
    conf_deinit(conf);
}
END_TEST

START_TEST(a_wrong_number_or_flag_is_refused)
{
    int operand = 0;

    start();
    ck_assert_int_eq(conf_set(conf, "pin-share-max", "nan"), ST_INVALID);
    ck_assert_int_eq(conf_set(conf, "pin-share-max", "0.5x"), ST_INVALID);
    ck_assert_int_eq(conf_set(conf, "pin-share-max", ""), ST_INVALID);
    ck_assert_int_eq(conf_set(conf, "pin-share-max", "-0.1"), ST_INVALID);
    ck_assert_int_eq(conf_set(conf, "deterministic", "maybe"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "deterministic: 'maybe' is not true or false");
    ck_assert_int_eq(conf_set(conf, "deterministic", "yes"), ST_OK);
    ck_assert(options.deterministic);
    ck_assert_int_eq(parse(&operand, "--model"), ST_INVALID);
    ck_assert_str_eq(status_detail(), "--model needs FILE");
    conf_deinit(conf);
}
END_TEST

static void
reads_back(void)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    struct options before = options;
    struct options after;

    conf_print_sample(conf, out);
    fclose(out);
    memset(&options, 0, sizeof(options));
    ck_assert_int_eq(read_text(text), ST_OK);
    after = options;
    ck_assert(after.model == NULL ? before.model == NULL : strcmp(after.model, before.model) == 0);
    ck_assert_str_eq(after.label, before.label);
    ck_assert_uint_eq(after.kv_memory, before.kv_memory);
    ck_assert_uint_eq(after.block_tokens, before.block_tokens);
    ck_assert_uint_eq(after.drain_timeout_ms, before.drain_timeout_ms);
    ck_assert(after.pin_share_max == before.pin_share_max);
    ck_assert(after.deterministic == before.deterministic);
    conf_deinit(conf);
    options = before;
    free(text);
}

START_TEST(a_printed_configuration_reads_back_to_the_same_values)
{
    start();
    reads_back();
    ck_assert_int_eq(conf_set(conf, "model", "  \"odd\" # name "), ST_OK);
    ck_assert_int_eq(conf_set(conf, "label", ""), ST_OK);
    ck_assert_int_eq(conf_set(conf, "kv-memory", "1048577"), ST_OK);
    ck_assert_int_eq(conf_set(conf, "drain-timeout", "61s"), ST_OK);
    ck_assert_int_eq(conf_set(conf, "pin-share-max", "0.1234567890123"), ST_OK);
    ck_assert_int_eq(conf_set(conf, "deterministic", "1"), ST_OK);
    reads_back();
    ck_assert_int_eq(conf_set(conf, "model", "\"quoted\""), ST_OK);
    ck_assert_int_eq(conf_set(conf, "drain-timeout", "0"), ST_OK);
    reads_back();
    conf_deinit(conf);
}
END_TEST

START_TEST(help_shows_every_option_with_its_default_and_limits)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    conf_print_help(conf, out);
    fclose(out);
    for (size_t i = 0; i < conf.count; i++) {
        ck_assert_ptr_nonnull(strstr(text, table[i].name));
        ck_assert_ptr_nonnull(strstr(text, table[i].help));
    }
    ck_assert_ptr_nonnull(strstr(text, "at least 1MiB; at most 1TiB [4GiB]"));
    ck_assert_ptr_nonnull(strstr(text, "--print-config"));
    free(text);
}
END_TEST

START_TEST(help_says_of_a_switch_that_it_is_on_by_default)
{
    static const struct conf_option switches[] = {
        {"kept", CONF_BOOL, "true", 0, 0, NULL, "stays", AT(deterministic)},
        {"gone", CONF_BOOL, "false", 0, 0, NULL, "goes", AT(deterministic)}};
    char text[1024] = "";
    FILE *out = fmemopen(text, sizeof(text), "w");

    conf_print_help((struct conf){switches, 2, &options}, out);
    fclose(out);
    ck_assert_ptr_nonnull(strstr(text, "stays [true]\n"));
    ck_assert_ptr_nonnull(strstr(text, "goes\n"));
}
END_TEST

START_TEST(a_wrong_default_is_found_at_once)
{
    static const struct conf_option wrong[] = {
        {"block-tokens", CONF_U64, "many", 0, 0, "N", "tokens in a block", AT(block_tokens)}};

    ck_assert_int_eq(conf_defaults((struct conf){wrong, 1, &options}), ST_INVALID);
}
END_TEST

START_TEST(without_memory_the_old_string_stays)
{
    start();
    mem_fail_at(1);
    ck_assert_int_eq(conf_set(conf, "label", "new"), ST_NO_MEMORY);
    mem_fail_at(0);
    ck_assert_str_eq(options.label, "kv");
    conf_deinit(conf);
}
END_TEST

CHECK_MAIN("conf", defaults_are_parsed_like_a_users_values,
           the_command_line_wins_over_the_file_and_the_file_over_the_default,
           of_an_option_that_stands_twice_in_a_file_the_last_line_counts,
           an_operand_or_two_dashes_end_the_options,
           standing_options_are_passed_over_and_found_by_scan,
           an_unknown_option_names_its_nearest_neighbour,
           a_value_out_of_its_limits_is_refused_with_the_limit,
           a_file_error_names_file_line_and_key, a_line_that_is_too_long_or_holds_a_nul_is_refused,
           sizes_and_durations_know_their_units_and_nothing_else, a_wrong_number_or_flag_is_refused,
           a_printed_configuration_reads_back_to_the_same_values,
           help_shows_every_option_with_its_default_and_limits,
           help_says_of_a_switch_that_it_is_on_by_default, a_wrong_default_is_found_at_once,
           without_memory_the_old_string_stays)
