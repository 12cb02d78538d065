/* SPDX-License-Identifier: Apache-2.0 */
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "tests/support/check_main.h"
#include "worker/mailbox.h"

#define MESSAGES 20000

static void
deliver(struct mailbox *mailbox, struct wire_arena *arena, uint64_t number)
{
    Kvasir__V1__DaemonMessage out = KVASIR__V1__DAEMON_MESSAGE__INIT;
    const ProtobufCMessage *message = NULL;
    struct wire_buffer buffer = {0};

    out.has_incarnation = true;
    out.incarnation = number;
    ck_assert_int_eq(wire_pack(&buffer, &out.base), ST_OK);
    ck_assert_int_eq(wire_unpack(arena, &kvasir__v1__daemon_message__descriptor, buffer.bytes,
                                 buffer.length, WIRE_WORKER_BYTES_MAX, &message),
                     ST_OK);
    mailbox_deliver(mailbox, (const Kvasir__V1__DaemonMessage *)message);
    wire_buffer_deinit(&buffer);
}

/* The engine's side of the next test: every message comes back as one of the same number. */
static void *
echo(void *arg)
{
    struct mailbox *mailbox = arg;

    for (;;) {
        const Kvasir__V1__DaemonMessage *in = mailbox_take(mailbox, true);

        if (in == NULL) {
            break;
        }
        Kvasir__V1__WorkerMessage out = KVASIR__V1__WORKER_MESSAGE__INIT;

        out.has_incarnation = true;
        out.incarnation = in->incarnation;
        mailbox_taken(mailbox);
        struct wire_buffer *buffer = mailbox_buffer(mailbox);

        if (buffer == NULL || wire_pack(buffer, &out.base) != ST_OK) {
            break;
        }
        mailbox_post(mailbox);
    }
    mailbox_end(mailbox, ST_OK, "");
    return NULL;
}

START_TEST(every_message_comes_through_in_order_with_both_queues_full_at_times)
{
    struct mailbox *mailbox = NULL;
    struct wire_arena *arena = NULL;
    pthread_t thread;
    uint64_t sent = 0, heard = 0;

    ck_assert_int_eq(mailbox_new(&mailbox), ST_OK);
    ck_assert_int_eq(wire_arena_new(&arena), ST_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, echo, mailbox), 0);
    while (heard < MESSAGES) {
        struct wire_arena *next = sent < MESSAGES ? mailbox_next_arena(mailbox) : NULL;

        if (next != NULL) {
            deliver(mailbox, next, sent++);
            continue; /* fills up before anything is read */
        }
        struct pollfd item = {.fd = mailbox_fd(mailbox), .events = POLLIN};

        ck_assert_int_ge(poll(&item, 1, 600000), 1);
        mailbox_clear_fd(mailbox);
        for (const struct wire_buffer *b = mailbox_outgoing(mailbox); b != NULL;
             b = mailbox_outgoing(mailbox)) {
            const ProtobufCMessage *message = NULL;

            wire_arena_reset(arena);
            ck_assert_int_eq(wire_unpack(arena, &kvasir__v1__worker_message__descriptor, b->bytes,
                                         b->length, WIRE_WORKER_BYTES_MAX, &message),
                             ST_OK);
            ck_assert_uint_eq(((const Kvasir__V1__WorkerMessage *)message)->incarnation, heard++);
            mailbox_sent(mailbox);
        }
    }
    mailbox_close(mailbox);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert(mailbox_state(mailbox).is_ended);
    wire_arena_destroy(&arena);
    mailbox_destroy(&mailbox);
}
END_TEST

START_TEST(a_full_mailbox_says_so_and_has_room_again_when_one_is_taken)
{
    struct mailbox *mailbox = NULL;
    struct wire_arena *arena;
    uint64_t n = 0;

    ck_assert_int_eq(mailbox_new(&mailbox), ST_OK);
    for (arena = mailbox_next_arena(mailbox); arena != NULL; arena = mailbox_next_arena(mailbox)) {
        deliver(mailbox, arena, n++);
    }
    ck_assert_uint_eq(n, MAILBOX_IN_MAX);
    ck_assert_uint_eq(mailbox_take(mailbox, false)->incarnation, 0);
    mailbox_taken(mailbox);
    ck_assert_ptr_nonnull(mailbox_next_arena(mailbox));
    ck_assert_uint_eq(mailbox_take(mailbox, false)->incarnation, 1);
    mailbox_destroy(&mailbox);
}
END_TEST

START_TEST(a_message_remembers_how_many_steps_there_had_been_when_it_came)
{
    struct mailbox *mailbox = NULL;

    ck_assert_int_eq(mailbox_new(&mailbox), ST_OK);
    for (uint64_t steps = 5; steps < 8; steps++) {
        mailbox_set_state(mailbox, steps, 1, true);
        deliver(mailbox, mailbox_next_arena(mailbox), steps);
    }
    for (uint64_t steps = 5; steps < 8; steps++) {
        ck_assert_uint_eq(mailbox_take(mailbox, false)->incarnation, steps);
        ck_assert_uint_eq(mailbox_taken(mailbox), steps);
    }
    mailbox_destroy(&mailbox);
}
END_TEST

START_TEST(a_closed_mailbox_lets_nobody_wait)
{
    struct mailbox *mailbox = NULL;

    ck_assert_int_eq(mailbox_new(&mailbox), ST_OK);
    for (int i = 0; i < MAILBOX_OUT_MAX; i++) {
        ck_assert_ptr_nonnull(mailbox_buffer(mailbox));
        mailbox_post(mailbox);
    }
    mailbox_close(mailbox);
    ck_assert_ptr_null(mailbox_take(mailbox, true));
    ck_assert_ptr_null(mailbox_buffer(mailbox));
    ck_assert(mailbox_is_closed(mailbox));
    mailbox_destroy(&mailbox);
}
END_TEST

/* Memory that is there for busy times is not touched in quiet ones. */
START_TEST(one_message_at_a_time_uses_one_arena_and_one_buffer)
{
    struct mailbox *mailbox;

    ck_assert_int_eq(mailbox_new(&mailbox), ST_OK);
    const struct wire_arena *arena = mailbox_next_arena(mailbox);
    const struct wire_buffer *buffer = mailbox_buffer(mailbox);

    for (uint32_t i = 0; i < 3 * MAILBOX_IN_MAX; i++) {
        ck_assert_ptr_eq(mailbox_next_arena(mailbox), arena);
        deliver(mailbox, mailbox_next_arena(mailbox), i);
        ck_assert_uint_eq(mailbox_take(mailbox, false)->incarnation, i);
        (void)mailbox_taken(mailbox);
        ck_assert_ptr_eq(mailbox_buffer(mailbox), buffer);
        mailbox_post(mailbox);
        ck_assert_ptr_eq(mailbox_outgoing(mailbox), buffer);
        mailbox_sent(mailbox);
    }
    mailbox_destroy(&mailbox);
}
END_TEST

CHECK_MAIN("mailbox", one_message_at_a_time_uses_one_arena_and_one_buffer,
           every_message_comes_through_in_order_with_both_queues_full_at_times,
           a_full_mailbox_says_so_and_has_room_again_when_one_is_taken,
           a_message_remembers_how_many_steps_there_had_been_when_it_came,
           a_closed_mailbox_lets_nobody_wait)
