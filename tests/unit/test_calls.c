/* SPDX-License-Identifier: Apache-2.0 */
/* Open calls, and their names: by connection and by retry key. */
#include "daemon/calls.h"

#include <string.h>

#include "tests/support/check_main.h"

static struct address
client(uint8_t name)
{
    return (struct address){
        .socket = ROUTER_CLIENT, .identity = {name}, .identity_length = 1, .connection = name};
}

static struct call *
open_call(struct calls *calls, uint8_t name, const char *key)
{
    struct address from = client(name);
    struct call *call = NULL;

    ck_assert_int_eq(calls_open(calls, &from, 1, &call), ST_OK);
    if (key != NULL) {
        ck_assert_int_eq(calls_set_retry_key(calls, call, key, strlen(key)), ST_OK);
    }
    return call;
}

START_TEST(a_retry_ends_the_earlier_attempt_and_nobody_else)
{
    struct calls *calls;

    ck_assert_int_eq(calls_new(&calls), ST_OK);
    struct call *other = open_call(calls, 1, "another");
    struct call *plain = open_call(calls, 2, NULL);
    struct call *first = open_call(calls, 3, "key");

    ck_assert_ptr_null(calls_next_lost(calls));
    struct call *second = open_call(calls, 4, "key");

    ck_assert_ptr_eq(calls_next_lost(calls), first);
    calls_close(calls, first);
    ck_assert_ptr_null(calls_next_lost(calls));
    ck_assert(!other->is_lost && !plain->is_lost && !second->is_lost);

    /* Once a call has ended its key is free. */
    calls_close(calls, second);
    (void)open_call(calls, 5, "key");
    ck_assert_ptr_null(calls_next_lost(calls));
    calls_destroy(&calls);
}
END_TEST

START_TEST(a_key_without_bytes_or_with_too_many_is_refused)
{
    static const char bytes[CALLS_RETRY_KEY_MAX + 1] = {0};
    struct calls *calls;

    ck_assert_int_eq(calls_new(&calls), ST_OK);
    struct call *call = open_call(calls, 1, NULL);

    ck_assert_int_eq(calls_set_retry_key(calls, call, bytes, 0), ST_INVALID);
    ck_assert_int_eq(calls_set_retry_key(calls, call, bytes, sizeof(bytes)), ST_INVALID);
    ck_assert_int_eq(calls_set_retry_key(calls, call, bytes, sizeof(bytes) - 1), ST_OK);
    calls_destroy(&calls);
}
END_TEST

START_TEST(who_works_for_a_call_of_a_lost_client_still_has_it)
{
    struct calls *calls;

    ck_assert_int_eq(calls_new(&calls), ST_OK);
    struct call *call = open_call(calls, 1, NULL);

    call->is_in_hand = true;
    ck_assert_uint_eq(calls_lose_client(calls, &call->address), 1);
    ck_assert(call->is_lost);
    ck_assert_ptr_null(calls_next_lost(calls));
    call->is_in_hand = false;
    ck_assert_ptr_eq(calls_next_lost(calls), call);
    calls_destroy(&calls);
}
END_TEST

CHECK_MAIN("calls", who_works_for_a_call_of_a_lost_client_still_has_it,
           a_retry_ends_the_earlier_attempt_and_nobody_else,
           a_key_without_bytes_or_with_too_many_is_refused)
