/* SPDX-License-Identifier: Apache-2.0 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/histogram.h"
#include "common/htab.h"
#include "common/list.h"
#include "common/mem.h"
#include "common/notify.h"
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

/* Of elements with keys below `end` those from `begin` on are there, each once. */
static void
check_table(const struct htab *tab, const struct element *elements, uint64_t begin, uint64_t end)
{
    uint64_t seen = 0;

    for (struct htab_node *n = htab_next(tab, NULL); n != NULL; n = htab_next(tab, n)) {
        uint64_t key = HTAB_ENTRY(n, const struct element, node)->key;

        ck_assert_uint_ge(key, begin);
        ck_assert_uint_lt(key, end);
        seen++;
    }
    ck_assert_uint_eq(seen, end - begin);
    for (uint64_t key = 0; key < end; key++) {
        ck_assert_ptr_eq(htab_find(tab, htab_mix(key), &key),
                         key < begin ? NULL : &elements[key].node);
    }
}

START_TEST(a_table_grows_a_few_buckets_an_insert_and_is_whole_meanwhile)
{
    struct htab tab;
    struct element elements[1100] = {0};
    uint64_t removed = 0, growing = 0;
    size_t before = 0;

    ck_assert_int_eq(htab_init(&tab, element_equal), ST_OK);
    for (uint64_t i = 0; i < 1100; i++) {
        bool is_growing = tab.old != NULL;

        elements[i].key = i;
        ck_assert_int_eq(htab_insert(&tab, htab_mix(i), &elements[i].node), ST_OK);
        growing += tab.old != NULL;
        before = is_growing && tab.old != NULL ? before : 0;
        ck_assert_uint_le(tab.old == NULL ? 0 : tab.moved - before, HTAB_MOVES);
        before = tab.moved;
        if (i % 10 == 9) { /* what is removed may be in an old bucket or a new one */
            htab_remove(&tab, &elements[removed++].node);
        }
        if (i % 7 == 0) {
            check_table(&tab, elements, removed, i + 1);
        }
    }
    ck_assert_uint_gt(growing, 400); /* half of the inserts: or nothing of this was tested */
    check_table(&tab, elements, removed, 1100);
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

START_TEST(a_supervisor_that_does_not_read_stops_nobody)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char name[64];
    int length = snprintf(name, sizeof(name), "@kvasir-test-notify-%d", (int)getpid());
    enum status st = ST_OK;
    char line[64];

    memcpy(addr.sun_path + 1, name + 1, (size_t)length - 1);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&addr,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)length)),
                     0);
    ck_assert_int_eq(setenv("NOTIFY_SOCKET", name, 1), 0);
    for (int i = 0; i < 100000 && st == ST_OK; i++) {
        st = notify_send("STATUS=waiting");
    }
    ck_assert_int_eq(st, ST_UNAVAILABLE); /* and not for ever in the first that found no room */
    ck_assert_int_gt(recv(fd, line, sizeof(line), 0), 0);
    ck_assert_int_eq(notify_send("STATUS=waiting"), ST_OK);
    ck_assert_int_eq(unsetenv("NOTIFY_SOCKET"), 0);
    (void)close(fd);
}
END_TEST

START_TEST(a_histogram_counts_a_value_up_to_and_with_its_bound)
{
    struct histogram h = {.bounds = &histogram_tokens};

    histogram_add(&h, 0);
    histogram_add(&h, 1);
    histogram_add(&h, 1.5);
    histogram_add(&h, 1e9);
    ck_assert_uint_eq(h.counts[0], 2);
    ck_assert_uint_eq(h.counts[1], 1);
    ck_assert_uint_eq(h.counts[histogram_tokens.count], 1);
    ck_assert_uint_eq(histogram_count(&h), 4);
    ck_assert(h.sum == 1e9 + 2.5);
}
END_TEST

CHECK_MAIN("common", a_table_finds_what_was_inserted_and_nothing_else,
           a_table_grows_a_few_buckets_an_insert_and_is_whole_meanwhile,
           a_table_that_cannot_grow_stays_whole, a_list_keeps_order_and_unlinks_twice_without_harm,
           a_status_keeps_its_detail_and_may_quote_the_one_before,
           a_supervisor_that_does_not_read_stops_nobody,
           a_histogram_counts_a_value_up_to_and_with_its_bound)
