/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/docs.h"
#include "common/mem.h"
#include "tests/support/check_main.h"

/* A folder of one test; its files are removed with it. */
struct folder {
    char dir[64];
    char files[8][96];
    size_t count;
};

static struct folder
folder_make(void)
{
    struct folder folder = {.dir = "/tmp/kvasir-docs-"
                                   "XX"
                                   "XX"
                                   "XX"}; /* mkdtemp fills it */

    ck_assert_ptr_nonnull(mkdtemp(folder.dir));
    return folder;
}

static const char *
folder_add(struct folder *folder, const char *name, const char *text, size_t length)
{
    char *path = folder->files[folder->count++];
    char text_of_path[96];

    (void)snprintf(text_of_path, sizeof(text_of_path), "%s/%s", folder->dir, name);
    memcpy(path, text_of_path, sizeof(text_of_path));
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(text, 1, length, file), length);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static void
folder_remove(struct folder *folder)
{
    for (size_t i = 0; i < folder->count; i++) {
        ck_assert_int_eq(unlink(folder->files[i]), 0);
    }
    ck_assert_int_eq(rmdir(folder->dir), 0);
}

START_TEST(a_folder_gives_its_texts_in_the_order_of_their_names)
{
    struct folder folder = folder_make();
    struct docs docs = {.count = 0};

    (void)folder_add(&folder, "b.md", "B", 1);
    (void)folder_add(&folder, "a.b.txt", "A", 1);
    (void)folder_add(&folder, "Z.txt", "Z", 1);
    (void)folder_add(&folder, "skip.c", "c", 1);
    (void)folder_add(&folder, ".txt", "", 0);
    ck_assert_int_eq(docs_add_path(&docs, folder.dir, ".txt,.md"), ST_OK);
    ck_assert_uint_eq(docs.count, 3);
    ck_assert_str_eq(docs.segments[0]->text, "Z");
    ck_assert_str_eq(docs.segments[1]->title, "a.b");
    ck_assert_str_eq(docs.segments[2]->title, "b");
    ck_assert_str_eq(docs.segments[2]->id, folder.files[0]);
    ck_assert_int_eq(docs_add_path(&docs, folder.dir, ".pdf"), ST_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(status_detail(), "ends in one of .pdf"));
    docs_deinit(&docs);
    folder_remove(&folder);
}
END_TEST

START_TEST(lines_of_json_become_documents)
{
    static const char text[] =
        "{\"text\":\"one\",\"id\":\"i\",\"title\":\"t\",\"more\":{\"x\":[1]}}\r\n"
        "  \n"
        "{\"title\":\"\\u00e9\",\"text\":\"\"}";
    struct folder folder = folder_make();
    struct docs docs = {.count = 0};
    const char *path = folder_add(&folder, "l.jsonl", text, sizeof(text) - 1);
    char id[128];

    ck_assert_msg(docs_add_jsonl(&docs, path) == ST_OK, "%s", status_detail());
    ck_assert_uint_eq(docs.count, 2);
    ck_assert_str_eq(docs.segments[0]->id, "i");
    ck_assert_str_eq(docs.segments[0]->title, "t");
    ck_assert_str_eq(docs.segments[0]->text, "one");
    (void)snprintf(id, sizeof(id), "%s:3", path);
    ck_assert_str_eq(docs.segments[1]->id, id);
    ck_assert_str_eq(docs.segments[1]->title, "é");
    ck_assert_str_eq(docs.segments[1]->text, "");
    docs_deinit(&docs);
    folder_remove(&folder);
}
END_TEST

START_TEST(bad_lines_are_named)
{
#define LINE(text) text, sizeof(text) - 1
    static const struct {
        const char *text;
        size_t length;
        const char *detail;
    } cases[] = {
        {LINE("{\"text\":\"a\"}\n{\"text\":\"a"), ":2: JSON ends too early"},
        {LINE("\n\n[]"), ":3: not a JSON object"},
        {LINE("{\"text\":5}"), ":1: \"text\" is not a string"},
        {LINE("{\"text\":\"a\",\"id\":null}"), ":1: \"id\" is not a string"},
        {LINE("{\"title\":\"a\"}"), ":1: no \"text\""},
        {LINE("{\"text\":\"a\"} {}"), ":1: column "},
        {LINE("{'text':'a'}"), ":1: column "},
        {LINE("{\"text\":\"a\\u0000b\"}"), ":1: \"text\" holds a NUL"},
        {LINE("{\"text\":\"a\"}\n{\"text\":\"\xff\"}"), ":2: not UTF-8 text"},
        {LINE("{\"text\":\"a\0\"}"), ":1: not UTF-8 text"},
        {LINE("{\"text\":[[[[[[[[[[1]]]]]]]]]]}"), ":1: column "},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct folder folder = folder_make();
        struct docs docs = {.count = 0};
        const char *path = folder_add(&folder, "l.jsonl", cases[i].text, cases[i].length);

        ck_assert_msg(docs_add_jsonl(&docs, path) == ST_INVALID, "case %zu", i);
        ck_assert_msg(strstr(status_detail(), path) != NULL
                          && strstr(status_detail(), cases[i].detail) != NULL,
                      "case %zu: %s", i, status_detail());
        docs_deinit(&docs);
        folder_remove(&folder);
    }
}
END_TEST

START_TEST(a_file_over_the_limit_is_refused_with_the_limit)
{
    struct folder folder = folder_make();
    struct docs docs = {.count = 0};
    size_t length = DOCS_BYTES_MAX + 1;
    char *text = mem_zalloc(length, 1);

    memset(text, 'x', length);
    const char *path = folder_add(&folder, "large.txt", text, length);

    ck_assert_int_eq(docs_add_path(&docs, path, ""), ST_INVALID);
    ck_assert_ptr_nonnull(strstr(status_detail(), "larger than 16777216 bytes"));
    ck_assert_int_eq(truncate(path, DOCS_BYTES_MAX), 0);
    ck_assert_int_eq(docs_add_path(&docs, path, ""), ST_OK);
    ck_assert_int_eq(docs_add_path(&docs, "/nonexistent.txt", ""), ST_NOT_FOUND);
    mem_free(text);
    docs_deinit(&docs);
    folder_remove(&folder);
}
END_TEST

START_TEST(every_failed_allocation_is_a_status_and_leaks_nothing)
{
    struct folder folder = folder_make();
    const char *path = folder_add(&folder, "a.txt", "text", 4);
    enum status st = ST_NO_MEMORY;

    for (uint64_t n = 1; st != ST_OK; n++) {
        struct docs docs = {.count = 0};

        mem_fail_at(n);
        st = docs_add_path(&docs, path, "");
        mem_fail_at(0);
        ck_assert(st == ST_OK || st == ST_NO_MEMORY);
        ck_assert_uint_lt(n, 20);
        docs_deinit(&docs);
    }
    folder_remove(&folder);
}
END_TEST

CHECK_MAIN("docs", a_folder_gives_its_texts_in_the_order_of_their_names,
           lines_of_json_become_documents, bad_lines_are_named,
           a_file_over_the_limit_is_refused_with_the_limit,
           every_failed_allocation_is_a_status_and_leaks_nothing)
