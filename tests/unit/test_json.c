/* SPDX-License-Identifier: Apache-2.0 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/htab.h"
#include "model/json.h"
#include "tests/support/check_main.h"

#define NAME "test.json"

static struct json_object *
require(const char *text)
{
    struct json_object *root = NULL;

    ck_assert_msg(json_parse(NAME, text, strlen(text), &root) == ST_OK, "%s: %s", text,
                  status_detail());
    return root;
}

static const struct bad {
    const char *text;
    const char *reason; /* NULL: any */
} bads[] = {
    {"", "offset 0: the text ends inside a value"},
    {"[1]", "offset 0: the value is not an object"},
    {"{", "offset 1: the text ends inside a value"},
    {"{\"a\":1", "offset 6: the text ends inside a value"},
    {"{\"a\":1,}", NULL},
    {"{\"a\":01}", NULL},
    {"{\"a\":[1,]}", NULL},
    {"{\"a\":1} x", NULL},
    {"{\"a\":1}{}", NULL},
    {"{\"a\":tru}", NULL},
    {"{\"a\":True}", NULL},
    {"{a:1}", NULL},
    {"{'a':1}", "offset 1: 0x27 is not JSON"},
    {"{\"a\":'b'}", "offset 5: 0x27 is not JSON"},
    {"{\"a\":NaN}", "offset 5: 0x4e is not JSON"},
    {"{\"a\":-Infinity}", "offset 6: 0x49 is not JSON"},
    {"{\"a\":\"\t\"}", "offset 6: the control character 0x09 in a string"},
    {"{\"a\":\"\xC0\"}", "offset 6: not UTF-8"},
    {"{\"a\":\"\\u0000\"}", "offset 6: a NUL character in a string"},
    {"{\"a\":\"\\ud83d\"}", "offset 6: half of a surrogate pair"},
    {"{\"a\":\"\\udc00\"}", "offset 6: half of a surrogate pair"},
    {"{\"a\":\"\\ud83dx\"}", "offset 6: half of a surrogate pair"},
    {"{\"a\":\"\\\\ud83d\\ude00\"}", "offset 13: half of a surrogate pair"},
    {"{\"a\":\"\\x41\"}", NULL},
    {"{\"a\":1 /* no */}", NULL},
    {"{\"a\":1,\"a\":1}", "an object has one key twice"},
    {"{\"b\":[{\"a\":1,\"c\":2,\"a\":3}]}", "an object has one key twice"},
    {"{\"a\":[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]}", NULL},
};

START_TEST(what_is_not_strict_json_is_refused_with_its_place)
{
    const struct bad *bad = &bads[_i];
    struct json_object *root = NULL;
    char expected[128];

    ck_assert_int_eq(json_parse(NAME, bad->text, strlen(bad->text), &root), ST_INVALID);
    ck_assert_ptr_null(root);
    (void)snprintf(expected, sizeof(expected), NAME ": %s", bad->reason == NULL ? "" : bad->reason);
    ck_assert_msg(strncmp(status_detail(), expected, strlen(expected)) == 0, "%s: \"%s\"",
                  bad->text, status_detail());
}
END_TEST

START_TEST(every_cut_of_a_text_is_refused_and_the_whole_is_not)
{
    static const char text[] =
        " {\"a\\\"b\\\\\":[1,-2.5e3,\"\\ud83d\\ude00:'N\",null,true],\"c\":{}} \n";

    for (size_t length = 0; length < sizeof(text) - 4; length++) {
        struct json_object *root = NULL;
        char *copy = malloc(length + 1); /* an exact copy, for sanitizers */

        memcpy(copy, text, length);
        ck_assert_int_eq(json_parse(NAME, copy, length, &root), ST_INVALID);
        free(copy);
    }
    struct json_object *root = require(text);
    json_release(&root);
    ck_assert_ptr_null(root);
}
END_TEST

START_TEST(getters_give_values_or_name_file_and_key)
{
    struct json_object *root =
        require("{\"i\":7,\"f\":0.5,\"b\":true,\"s\":\"t\",\"n\":null,\"m\":-1,"
                "\"o\":{\"x\":{\"y\":1.5}},\"l\":[{\"z\":3},4],\"huge\":1e999,"
                "\"big\":99999999999999999999}");
    struct json_view view = json_root(NAME, root), child, grandchild;
    struct json_object *list;
    struct gguf_string s;
    uint64_t u = 0;
    double f = 0;
    bool b = false;

    ck_assert(json_has(&view, "i") && !json_has(&view, "n") && !json_has(&view, "absent"));
    ck_assert_int_eq(json_get_u64(&view, "i", 1, 7, &u), ST_OK);
    ck_assert_uint_eq(u, 7);
    ck_assert_int_eq(json_get_f64(&view, "i", &f), ST_OK);
    ck_assert_double_eq(f, 7);
    ck_assert_int_eq(json_get_bool(&view, "b", &b), ST_OK);
    ck_assert(b);
    ck_assert_int_eq(json_get_string(&view, "s", &s), ST_OK);
    ck_assert(json_is_text(s, "t"));
    ck_assert_int_eq(json_get_u64(&view, "i", 1, 6, &u), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key i is 7, not from 1 to 6");
    ck_assert_int_eq(json_get_u64(&view, "m", 0, 6, &u), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key m is -1, not from 0 to 6");
    ck_assert_int_eq(json_get_u64(&view, "big", 0, UINT32_MAX, &u), ST_INVALID);
    ck_assert_int_eq(json_get_u64(&view, "f", 0, 6, &u), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key f is not an integer");
    ck_assert_int_eq(json_get_u64(&view, "n", 0, 6, &u), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key n is missing");
    ck_assert_int_eq(json_get_f64(&view, "s", &f), ST_INVALID);
    ck_assert_int_eq(json_get_f64(&view, "huge", &f), ST_INVALID);
    ck_assert_int_eq(json_get_bool(&view, "i", &b), ST_INVALID);
    ck_assert_int_eq(json_get_string(&view, "i", &s), ST_INVALID);
    ck_assert_int_eq(json_get_array(&view, "o", &list), ST_INVALID);
    ck_assert_int_eq(json_get_object(&view, "o", &child), ST_OK);
    ck_assert_int_eq(json_get_object(&child, "x", &grandchild), ST_OK);
    ck_assert_int_eq(json_get_bool(&grandchild, "y", &b), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key o.x.y is not true or false");
    ck_assert_int_eq(json_get_array(&view, "l", &list), ST_OK);
    ck_assert_int_eq(json_get_element(&view, "l", list, 0, &child), ST_OK);
    ck_assert_int_eq(json_get_bool(&child, "z", &b), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key l[0].z is not true or false");
    ck_assert_int_eq(json_get_element(&view, "l", list, 1, &child), ST_INVALID);
    ck_assert_str_eq(status_detail(), NAME ": key l has an element 1 that is not an object");
    ck_assert_uint_eq(json_text(list).length, 0);
    json_release(&root);
}
END_TEST

static size_t
heap_bytes(void)
{
    struct mallinfo2 info = mallinfo2();

    return info.uordblks + info.hblkhd;
}

/* Whether glibc counts the heap: a sanitizer has its own. */
static bool
is_counted(void)
{
    size_t before = heap_bytes();
    void *volatile block = malloc(100000);
    bool has_grown = heap_bytes() > before;

    free(block);
    return has_grown;
}

static void
compare_weight(const char *text)
{
    struct json_object *root = NULL;
    size_t before = heap_bytes();

    ck_assert_msg(json_parse(NAME, text, strlen(text), &root) == ST_OK, "%s: %.100s",
                  status_detail(), text);
    size_t taken = heap_bytes() - before;
    uint64_t weight = json_weight(text, strlen(text));

    ck_assert_msg(!is_counted() || taken > 0, "nothing is counted");
    ck_assert_msg(taken <= weight, "%zu bytes, weight %llu: %.100s", taken,
                  (unsigned long long)weight, text);
    json_release(&root);
}

static const char *const values[] = {
    "1",
    "1.5",
    "null",
    "true",
    "[]",
    "{}",
    "[1]",
    "[[]]",
    "[{}]",
    "[\"\"]",
    "\"\"",
    "-0.0",
    "{\"a\":1}",
    "\"[{,:,}]\"",
    "\"\\\"\\\\\"",
    "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]",
    "{\"a\":0,\"b\":0,\"c\":0,\"d\":0,\"e\":0,\"f\":0,"
    "\"g\":0,\"h\":0,\"i\":0,\"j\":0,\"k\":0,\"l\":0}"};

/* Many of one value, then of all mixed; an object of many members; a long string. */
START_TEST(no_text_takes_more_than_its_weight)
{
    const size_t count = sizeof(values) / sizeof(values[0]), room = 300000;
    uint64_t seed = test_seed();
    char *text = malloc(room);
    size_t at;

    for (size_t round = 0; round < 3 * count; round++) {
        size_t n = 1 + htab_mix(++seed) % 3000;

        at = (size_t)snprintf(text, room, "{\"a\":[1");
        for (size_t i = 0; i < n; i++) {
            size_t which = round < count ? round : htab_mix(++seed) % count;

            at += (size_t)snprintf(text + at, room - at, ",%s", values[which]);
        }
        (void)snprintf(text + at, room - at, "]}");
        compare_weight(text);
    }
    at = (size_t)snprintf(text, room, "{\"a\":0");
    for (unsigned i = 0; i < 5000; i++) {
        at += (size_t)snprintf(text + at, room - at, ",\"%u\":%u", i, i);
    }
    (void)snprintf(text + at, room - at, "}");
    compare_weight(text);
    (void)snprintf(text, room, "{\"a\":\"%0200000d\"}", 0);
    compare_weight(text);
    free(text);
}
END_TEST

int
main(void)
{
    Suite *suite = suite_create("json");
    TCase *tcase = tcase_create("json");
    SRunner *runner = srunner_create(suite);

    tcase_add_loop_test(tcase, what_is_not_strict_json_is_refused_with_its_place, 0,
                        (int)(sizeof(bads) / sizeof(bads[0])));
    tcase_add_test(tcase, every_cut_of_a_text_is_refused_and_the_whole_is_not);
    tcase_add_test(tcase, no_text_takes_more_than_its_weight);
    tcase_add_test(tcase, getters_give_values_or_name_file_and_key);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
