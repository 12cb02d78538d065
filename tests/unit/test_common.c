/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/htab.h"
#include "common/list.h"
#include "common/mem.h"
#include "common/status.h"
#include "tests/support/check_main.h"

struct element {
    struct htab_node node;
    struct list_node link;
    uint64_t key;
};

static bool
element_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct element, node)->key == *(const uint64_t *)key;
}

START_TEST(a_table_finds_what_was_inserted_and_nothing_else)
{
    struct htab tab;
    struct element elements[1000] = {0};
    uint64_t absent = 1000;

    ck_assert_int_eq(htab_init(&tab, element_equal), ST_OK);
    for (uint64_t i = 0; i < 1000; i++) {
        elements[i].key = i;
        ck_assert_int_eq(htab_insert(&tab, htab_mix(i), &elements[i].node), ST_OK);
    }
    for (uint64_t i = 0; i < 1000; i += 2) {
        htab_remove(&tab, &elements[i].node);
    }
    for (uint64_t i = 0; i < 1000; i++) {
        struct htab_node *node = htab_find(&tab, htab_mix(i), &i);

        ck_assert_ptr_eq(node, i % 2 == 0 ? NULL : &elements[i].node);
    }
    ck_assert_ptr_null(htab_find(&tab, htab_mix(absent), &absent));
    size_t seen = 0;
    for (struct htab_node *n = htab_next(&tab, NULL); n != NULL; n = htab_next(&tab, n)) {
        seen++;
    }
    ck_assert_uint_eq(seen, 500);
    htab_deinit(&tab);
}
END_TEST

START_TEST(a_table_that_cannot_grow_stays_whole)
{
    struct htab tab;
    struct element elements[17] = {0};

    ck_assert_int_eq(htab_init(&tab, element_equal), ST_OK);
    for (uint64_t i = 0; i < 16; i++) {
        elements[i].key = i;
        ck_assert_int_eq(htab_insert(&tab, htab_mix(i), &elements[i].node), ST_OK);
    }
    mem_fail_at(1);
    elements[16].key = 16;
    ck_assert_int_eq(htab_insert(&tab, htab_mix(16), &elements[16].node), ST_NO_MEMORY);
    mem_fail_at(0);
    ck_assert_uint_eq(tab.count, 16);
    htab_deinit(&tab);
}
END_TEST

START_TEST(a_list_keeps_order_and_unlinks_twice_without_harm)
{
    struct list_node head;
    struct element a = {.key = 1}, b = {.key = 2}, c = {.key = 3};
    uint64_t sum = 0;

    list_init(&head);
    list_push_back(&head, &b.link);
    list_push_back(&head, &c.link);
    list_push_front(&head, &a.link);
    LIST_FOR_EACH(n, &head)
    {
        sum = sum * 10 + LIST_ENTRY(n, struct element, link)->key;
    }
    ck_assert_uint_eq(sum, 123);
    list_unlink(&b.link);
    list_unlink(&b.link);
    LIST_FOR_EACH_SAFE(n, &head)
    {
        list_unlink(n);
    }
    ck_assert(list_is_empty(&head));
}
END_TEST

START_TEST(a_status_keeps_its_detail_and_may_quote_the_one_before)
{
    ck_assert_int_eq(ERR(ST_INVALID, "block of %d tokens", 3), ST_INVALID);
    ck_assert_int_eq(ERR(ST_INVALID, "model x: %s", status_detail()), ST_INVALID);
    ck_assert_str_eq(status_detail(), "model x: block of 3 tokens");
    ck_assert_ptr_nonnull(strstr(status_where(), "test_common.c:"));
}
END_TEST

CHECK_MAIN("common", a_table_finds_what_was_inserted_and_nothing_else,
           a_table_that_cannot_grow_stays_whole, a_list_keeps_order_and_unlinks_twice_without_harm,
           a_status_keeps_its_detail_and_may_quote_the_one_before)
