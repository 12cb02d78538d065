/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that the specification gives for each value, at the edges of each form. */
#include "common/msgpack.h"

#include <string.h>

#include "common/mem.h"
#include "tests/support/check_main.h"

/* The writer's bytes are those, and it starts anew. */
static void
assert_bytes(struct msgpack *out, size_t length, const char *bytes)
{
    ck_assert(!out->has_failed);
    ck_assert_uint_eq(out->length, length);
    ck_assert_mem_eq(out->bytes, bytes, length);
    out->length = 0;
}

START_TEST(whole_numbers_take_their_shortest_form)
{
    static const struct {
        uint64_t value;
        size_t length;
        const char *bytes;
    } cases[] = {
        {0, 1, "\x00"},
        {127, 1, "\x7f"},
        {128, 2, "\xcc\x80"},
        {255, 2, "\xcc\xff"},
        {256, 3, "\xcd\x01\x00"},
        {65535, 3, "\xcd\xff\xff"},
        {65536, 5, "\xce\x00\x01\x00\x00"},
        {UINT32_MAX, 5, "\xce\xff\xff\xff\xff"},
        {UINT64_C(1) << 32, 9, "\xcf\x00\x00\x00\x01\x00\x00\x00\x00"},
        {UINT64_MAX, 9, "\xcf\xff\xff\xff\xff\xff\xff\xff\xff"},
    };
    struct msgpack out = {0};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        msgpack_u64(&out, cases[i].value);
        assert_bytes(&out, cases[i].length, cases[i].bytes);
    }
    msgpack_deinit(&out);
}
END_TEST

START_TEST(texts_arrays_and_maps_say_how_long_they_are)
{
    struct msgpack out = {0};
    char text[300];

    msgpack_nil(&out);
    assert_bytes(&out, 1, "\xc0");
    msgpack_f64(&out, -1.5);
    assert_bytes(&out, 9, "\xcb\xbf\xf8\x00\x00\x00\x00\x00\x00");
    msgpack_text(&out, "");
    assert_bytes(&out, 1, "\xa0");
    msgpack_text(&out, "type");
    assert_bytes(&out, 5, "\xa4type");
    memset(text, 'x', sizeof(text));
    text[32] = '\0';
    msgpack_text(&out, text);
    ck_assert_mem_eq(out.bytes, "\xd9\x20x", 3);
    out.length = 0;
    text[32] = 'x';
    text[299] = '\0';
    msgpack_text(&out, text);
    ck_assert_mem_eq(out.bytes, "\xda\x01\x2bx", 4);
    ck_assert_uint_eq(out.length, 302);
    out.length = 0;
    msgpack_array(&out, 15);
    assert_bytes(&out, 1, "\x9f");
    msgpack_array(&out, 16);
    assert_bytes(&out, 3, "\xdc\x00\x10");
    msgpack_array(&out, 65536);
    assert_bytes(&out, 5, "\xdd\x00\x01\x00\x00");
    msgpack_map(&out, 3);
    assert_bytes(&out, 1, "\x83");
    msgpack_map(&out, 65535);
    assert_bytes(&out, 3, "\xde\xff\xff");
    msgpack_map(&out, 65536);
    assert_bytes(&out, 5, "\xdf\x00\x01\x00\x00");
    msgpack_deinit(&out);
}
END_TEST

START_TEST(without_memory_it_remembers_that_it_failed)
{
    struct msgpack out = {0};

    msgpack_u64(&out, 1);
    mem_fail_at(1);
    for (int i = 0; i < 1000; i++) {
        msgpack_u64(&out, UINT64_MAX);
    }
    mem_fail_at(0);
    ck_assert(out.has_failed);
    msgpack_u64(&out, 1);
    ck_assert(out.has_failed);
    msgpack_deinit(&out);
    ck_assert_ptr_null(out.bytes);
}
END_TEST

CHECK_MAIN("msgpack", whole_numbers_take_their_shortest_form,
           texts_arrays_and_maps_say_how_long_they_are, without_memory_it_remembers_that_it_failed)
