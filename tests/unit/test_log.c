/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/log.h"
#include "tests/support/check_main.h"

static char heard[2048];

static void
hear(void *arg, enum log_level level, const char *event, const char *detail)
{
    (void)arg;
    (void)level;
    (void)event;
    snprintf(heard, sizeof(heard), "%s", detail);
}

/* What log_event writes for this detail, without its last byte, which must be the line's end. */
static const char *
line_of(const char *detail)
{
    static char text[2048];
    int ends[2], stderr_before = dup(STDERR_FILENO);
    ssize_t length;

    ck_assert_int_eq(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    log_warn("told", "detail=%s", detail);
    dup2(stderr_before, STDERR_FILENO);
    close(stderr_before);
    close(ends[1]);
    length = read(ends[0], text, sizeof(text));
    ck_assert_int_gt(length, 0);
    ck_assert_int_eq(read(ends[0], text + length, 1), 0);
    close(ends[0]);
    ck_assert_int_eq(text[length - 1], '\n');
    text[length - 1] = 0;
    return text;
}

START_TEST(what_a_name_holds_never_makes_a_line_of_its_own)
{
    unsetenv("JOURNAL_STREAM");
    log_init("test", LOG_LEVEL_INFO);
    log_set_tap(hear, NULL);
    log_set_tap_level(LOG_LEVEL_WARN);
    ck_assert_str_eq(line_of("a\r\nkvasird error: all_is_lost \x1b[2J\x7f h\xc3\xb6her"),
                     "test warn: told detail=a??kvasird error: all_is_lost ?[2J? h\xc3\xb6her");
    ck_assert_str_eq(heard, "detail=a??kvasird error: all_is_lost ?[2J? h\xc3\xb6her");
}
END_TEST

START_TEST(a_detail_of_any_length_is_one_line)
{
    char detail[4000];

    unsetenv("JOURNAL_STREAM");
    log_init("test", LOG_LEVEL_INFO);
    memset(detail, 'x', sizeof(detail));
    for (size_t length = 950; length < sizeof(detail); length += length < 1050 ? 1 : 700) {
        detail[length] = 0;
        ck_assert_ptr_null(strchr(line_of(detail), '\n'));
        detail[length] = 'x';
    }
}
END_TEST

CHECK_MAIN("log", what_a_name_holds_never_makes_a_line_of_its_own,
           a_detail_of_any_length_is_one_line)
