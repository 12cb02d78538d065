/* SPDX-License-Identifier: Apache-2.0 */
#include "client/manifest.h"

#include <string.h>

#include "tests/support/check_main.h"

static enum status
parse(const char *line, struct manifest_document *document_out)
{
    return manifest_parse(line, strlen(line), "m.jsonl:7", document_out);
}

START_TEST(a_line_names_a_document_and_what_is_wished_for_it)
{
    struct manifest_document document;

    ck_assert_int_eq(parse("{\"id\": \"faq/7\", \"version\": \"3\", \"path\": \"faq/7.md\", "
                           "\"title\": \"FAQ\", \"weight\": 2.5, \"pin\": true, "
                           "\"ttl\": \"12h\", \"more\": [1]}",
                           &document),
                     ST_OK);
    ck_assert_str_eq(document.id, "faq/7");
    ck_assert_str_eq(document.version, "3");
    ck_assert_str_eq(document.path, "faq/7.md");
    ck_assert_str_eq(document.title, "FAQ");
    ck_assert_double_eq(document.weight, 2.5);
    ck_assert(document.is_pinned);
    ck_assert_uint_eq(document.ttl_ms, 12u * 3600 * 1000);
    manifest_deinit(&document);
}
END_TEST

START_TEST(most_of_it_may_be_left_out)
{
    struct manifest_document document;

    ck_assert_int_eq(parse("{\"id\": \"a\", \"tokens\": [1, 2, 4294967295]}", &document), ST_OK);
    ck_assert_uint_eq(document.token_count, 3);
    ck_assert_uint_eq(document.tokens[2], UINT32_MAX);
    ck_assert_ptr_null(document.version);
    ck_assert_double_eq(document.weight, 1);
    ck_assert(!document.is_pinned);
    manifest_deinit(&document);
    ck_assert_int_eq(
        parse("{\"id\": \"a\", \"text\": \"\", \"pin\": true, \"ttl\": 90}", &document), ST_OK);
    ck_assert_uint_eq(document.ttl_ms, 90000);
    manifest_deinit(&document);
}
END_TEST

START_TEST(a_line_that_is_wrong_is_refused_with_its_place)
{
    static const struct {
        const char *line, *detail;
    } bad[] = {
        {"{\"id\": \"a\"", "m.jsonl:7: JSON ends too early"},
        {"[1]", "m.jsonl:7: not a JSON object"},
        {"{\"text\": \"t\"}", "m.jsonl:7: no \"id\""},
        {"{\"id\": 5, \"text\": \"t\"}", "m.jsonl:7: \"id\" is not a string"},
        {"{\"id\": \"a\"}",
         "m.jsonl:7: exactly one of \"path\", \"text\" and \"tokens\" must be there"},
        {"{\"id\": \"a\", \"text\": \"t\", \"tokens\": [1]}",
         "m.jsonl:7: exactly one of \"path\", \"text\" and \"tokens\" must be there"},
        {"{\"id\": \"a\", \"tokens\": []}", "m.jsonl:7: \"tokens\" is not a list of ids"},
        {"{\"id\": \"a\", \"tokens\": [1, -1]}", "m.jsonl:7: \"tokens\"[1] is not an id"},
        {"{\"id\": \"a\", \"text\": \"t\", \"weight\": 0}",
         "m.jsonl:7: \"weight\" is not a number above 0"},
        {"{\"id\": \"a\", \"text\": \"t\", \"pin\": 1}",
         "m.jsonl:7: \"pin\" is neither true nor false"},
        {"{\"id\": \"a\", \"text\": \"t\", \"ttl\": \"1h\"}",
         "m.jsonl:7: \"ttl\" goes with \"pin\""},
        {"{\"id\": \"a\", \"text\": \"t\", \"pin\": true, \"ttl\": \"soon\"}",
         "m.jsonl:7: \"ttl\" is not a time like \"90s\" or \"12h\", a year at most"},
        {"{\"id\": \"a\", \"tokens\": [1], \"title\": \"t\"}",
         "m.jsonl:7: \"title\" goes with a text"},
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct manifest_document document;

        ck_assert_int_eq(parse(bad[i].line, &document), ST_INVALID);
        ck_assert_str_eq(status_detail(), bad[i].detail);
    }
}
END_TEST

CHECK_MAIN("manifest", a_line_names_a_document_and_what_is_wished_for_it,
           most_of_it_may_be_left_out, a_line_that_is_wrong_is_refused_with_its_place)
