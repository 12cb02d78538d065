/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/handoff.h"

#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/mem.h"
#include "daemon/sched.h"
#include "tests/support/attach_world.h"
#include "tests/support/check_main.h"

/* The order to make both arenas. */
static void
expect_creation(struct world *w, int fd)
{
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_nonnull(reply.message);
    ck_assert_msg(!reply.message->is_refused, "%s", reply.message->reason);
    ck_assert_uint_eq(reply.fd_count, 0);
    ck_assert_uint_eq(reply.message->n_arenas, 2);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(reply.message->arenas[i]->must_create);
        ck_assert(!reply.message->arenas[i]->is_present);
    }
    ck_assert(!reply.message->has_block_count);
}

static void
expect_silence(struct world *w, int fd)
{
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_null(reply.message);
    ck_assert(!reply.is_closed);
}

/* Offers the arenas as a first worker does, or nothing, and hears that it is accepted. */
static struct handoff_event
finish(struct world *w, int fd, bool is_first)
{
    struct offer offer;

    if (is_first) {
        offer_open(w, &offer);
    } else {
        offer_open_empty(w, &offer);
    }
    fake_offer(w, fd, &offer);
    offer_close(&offer);
    struct handoff_event event = world_next(w, HANDOFF_ATTACHED);
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_nonnull(reply.message);
    ck_assert(!reply.message->is_refused);
    ck_assert_uint_eq(reply.message->worker, event.worker);
    ck_assert_uint_eq(reply.message->incarnation, event.incarnation);
    ck_assert(fake_hear(w, fd).is_closed);
    return event;
}

START_TEST(the_first_worker_makes_the_arenas_and_the_next_maps_them)
{
    struct world w;
    struct offer offer;
    char byte = 'k';

    world_open(&w);
    int first = fake_arrive(&w, "cpu");

    expect_creation(&w, first);
    offer_open(&w, &offer);
    ck_assert_int_eq(pwrite(offer.fds[0], &byte, 1, 100), 1);
    byte = 'w';
    ck_assert_int_eq(pwrite(offer.fds[1], &byte, 1, 200), 1);
    fake_offer(&w, first, &offer);
    offer_close(&offer); /* its worker is gone: kvasird alone keeps the memory */
    (void)close(first);
    struct handoff_event a = world_next(&w, HANDOFF_ATTACHED);
    int second = fake_arrive(&w, "cpu");
    struct reply reply = fake_hear(&w, second);

    ck_assert_ptr_nonnull(reply.message);
    ck_assert_uint_eq(reply.fd_count, 2);
    ck_assert_uint_eq(reply.message->block_count, WORLD_BLOCK_COUNT);
    for (size_t i = 0; i < 2; i++) {
        ck_assert(reply.message->arenas[i]->is_present);
        ck_assert(!reply.message->arenas[i]->must_create);
        ck_assert_str_eq(reply.message->arenas[i]->mechanism, "shm");
        ck_assert_int_eq(pread(reply.fds[i], &byte, 1, i == 0 ? 100 : 200), 1);
        ck_assert_int_eq(byte, i == 0 ? 'k' : 'w');
        (void)close(reply.fds[i]);
    }
    ck_assert_int_eq(reply.message->arenas[0]->kind, KVASIR__V1__ARENA_KIND__ARENA_KV);
    ck_assert_uint_eq(reply.message->arenas[0]->bytes, WORLD_KV_MEMORY);
    ck_assert_uint_eq(reply.message->arenas[1]->bytes, WORLD_WEIGHTS_BYTES);
    struct handoff_event b = finish(&w, second, false);

    ck_assert_int_eq(b.pid, getpid());
    ck_assert_str_eq(b.device, "cpu");
    ck_assert_str_eq(b.backend, "cpu");
    ck_assert_uint_eq(b.seqs_max, 8);
    ck_assert_uint_eq(b.block_count, WORLD_BLOCK_COUNT);
    ck_assert_uint_eq(b.block_bytes, WORLD_BLOCK_BYTES);
    (void)close(a.pidfd);
    (void)close(b.pidfd);
    (void)close(second);
    world_close(&w);
}
END_TEST

START_TEST(a_worker_is_told_what_to_be)
{
    struct world w;

    world_open(&w);
    int fd = fake_arrive(&w, "cpu");
    const Kvasir__V1__AttachReply *m = fake_hear(&w, fd).message;

    ck_assert_ptr_nonnull(m);
    ck_assert_str_eq(m->model_path, "/models/m.gguf");
    ck_assert_str_eq(m->worker_endpoint, "ipc:///run/kvasir/worker.sock");
    ck_assert_uint_eq(m->checkpoint_fingerprint.len, 32);
    ck_assert_mem_eq(m->checkpoint_fingerprint.data, "\1\2\3", 4);
    ck_assert_uint_eq(m->pool_fingerprint.len, 32);
    ck_assert_mem_eq(m->pool_fingerprint.data, handoff_pool_fingerprint(w.handoff), 32);
    ck_assert_uint_eq(m->kv_memory, WORLD_KV_MEMORY);
    ck_assert(m->is_deterministic);
    ck_assert_uint_eq(m->block_tokens, 32);
    ck_assert_uint_eq(m->kv_type, 1);
    ck_assert_uint_eq(m->kv_layout, 1);
    ck_assert_uint_eq(m->step_tokens, WORLD_STEP_TOKENS);
    ck_assert_uint_eq(m->heartbeat_ms, WORLD_HEARTBEAT_MS);
    (void)close(fd);
    world_close(&w);
}
END_TEST

START_TEST(of_two_at_once_the_second_waits_until_the_first_has_offered)
{
    struct world w;

    world_open(&w);
    int first = fake_arrive(&w, "cpu"), second = fake_arrive(&w, "cpu");
    int third = fake_arrive(&w, "cpu");

    expect_creation(&w, first);
    expect_silence(&w, second);
    expect_silence(&w, third);
    (void)close(finish(&w, first, true).pidfd);
    for (int i = 0; i < 2; i++) { /* both may map at once */
        struct reply reply = fake_hear(&w, i == 0 ? second : third);

        ck_assert_uint_eq(reply.fd_count, 2);
        (void)close(reply.fds[0]);
        (void)close(reply.fds[1]);
    }
    (void)close(finish(&w, third, false).pidfd);
    (void)close(finish(&w, second, false).pidfd);
    (void)close(first);
    (void)close(second);
    (void)close(third);
    world_close(&w);
}
END_TEST

START_TEST(when_the_creator_is_gone_the_next_in_line_makes_the_arenas)
{
    struct world w;

    world_open(&w);
    int first = fake_arrive(&w, "cpu"), second = fake_arrive(&w, "cpu");
    int third = fake_arrive(&w, "cpu");

    expect_creation(&w, first);
    (void)close(first);
    world_turn(&w);
    ck_assert_ptr_nonnull(strstr(world_next(&w, HANDOFF_LOST).reason, "while it loaded"));
    expect_creation(&w, second);
    expect_silence(&w, third);
    (void)close(finish(&w, second, true).pidfd);
    struct reply reply = fake_hear(&w, third);

    ck_assert_uint_eq(reply.fd_count, 2);
    (void)close(reply.fds[0]);
    (void)close(reply.fds[1]);
    world_expect_nothing(&w);
    (void)close(second);
    (void)close(third);
    world_close(&w);
}
END_TEST

/* A forked child of a worker may hold its socket open: only the pidfd tells. */
START_TEST(a_creator_whose_process_ended_is_gone_though_its_socket_is_open)
{
    struct world w;
    int tell[2], go[2];
    char byte;

    world_open(&w);
    ck_assert_int_eq(pipe(tell), 0);
    ck_assert_int_eq(pipe(go), 0);
    int held[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, held), 0);
    pid_t child = fork();

    if (child == 0) {
        int fd = fake_connect(&w);
        Kvasir__V1__Attach attach = fake_attach();

        fake_say(fd, &attach.base, NULL, 0);
        fake_send(held[1], "x", 1, &fd, 1); /* its socket lives on in us */
        (void)!write(tell[1], "x", 1);
        (void)!read(go[0], &byte, 1);
        _exit(0);
    }
    ck_assert_int_eq(read(tell[0], &byte, 1), 1);
    world_turn(&w);
    int waiting = fake_arrive(&w, "cpu");

    expect_silence(&w, waiting);
    ck_assert_int_eq(write(go[1], "x", 1), 1);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    world_turn(&w);
    struct handoff_event event = world_next(&w, HANDOFF_LOST);

    ck_assert_int_eq(event.pid, child);
    ck_assert_ptr_nonnull(strstr(event.reason, "process ended"));
    expect_creation(&w, waiting);
    for (int i = 0; i < 2; i++) {
        (void)close(tell[i]);
        (void)close(go[i]);
        (void)close(held[i]);
    }
    (void)close(waiting);
    world_close(&w);
}
END_TEST

START_TEST(a_worker_that_leaves_at_any_stage_leaves_nothing)
{
    struct world w;

    world_open(&w);
    size_t fds = open_fds();

    for (int stage = 0; stage < 4; stage++) {
        Kvasir__V1__Attach attach = fake_attach();
        struct offer offer;
        int fd = fake_connect(&w);

        if (stage >= 1) { /* connected and heard */
            world_turn(&w);
        }
        if (stage >= 2) { /* its Attach not heard yet */
            fake_say(fd, &attach.base, NULL, 0);
        }
        if (stage >= 3) { /* in the middle, and its offer is on the way */
            world_turn(&w);
            offer_open(&w, &offer);
            fake_say(fd, &offer.message.base, offer.fds, offer.fd_count);
            offer_close(&offer);
        }
        (void)close(fd);
        world_turn(&w);
        (void)world_next(&w, HANDOFF_LOST); /* an offer nobody can be accepted for is discarded */
        world_expect_nothing(&w);
        ck_assert_uint_eq(open_fds(), fds);
        int held[2];

        handoff_arena_fds(w.handoff, held);
        ck_assert_int_eq(held[0], -1);
        ck_assert_int_eq(held[1], -1);
    }
    struct handoff_event event = attach_whole(&w);

    ck_assert_uint_eq(event.worker, 0);
    (void)close(event.pidfd);
    world_close(&w);
}
END_TEST

START_TEST(numbers_are_the_lowest_free_and_incarnations_never_come_again)
{
    struct world w;
    uint64_t last;

    world_open(&w);
    struct handoff_event event = attach_whole(&w);

    ck_assert_uint_eq(event.worker, 0);
    ck_assert_uint_ne(event.incarnation, 0);
    last = event.incarnation;
    (void)close(event.pidfd);
    for (uint32_t i = 1; i < SCHED_WORKERS_MAX; i++) {
        event = attach_whole(&w);
        ck_assert_uint_eq(event.worker, i);
        ck_assert_uint_gt(event.incarnation, last);
        last = event.incarnation;
        (void)close(event.pidfd);
    }
    int fd = fake_arrive(&w, "cpu");

    ck_assert_ptr_nonnull(strstr(world_next(&w, HANDOFF_REFUSED).reason, "64 workers"));
    (void)close(fd);
    handoff_worker_gone(w.handoff, 9);
    handoff_worker_gone(w.handoff, 5);
    for (uint32_t i = 5; i <= 9; i += 4) {
        event = attach_whole(&w);
        ck_assert_uint_eq(event.worker, i);
        ck_assert_uint_gt(event.incarnation, last);
        last = event.incarnation;
        (void)close(event.pidfd);
    }
    world_close(&w);
}
END_TEST

/* A first worker whose arenas end with the last process that maps them. */
static void
attach_ipc_maker(struct world *w)
{
    static char ipc[] = "ipc";
    struct offer offer;
    int fd = fake_arrive(w, "cuda:0");

    expect_creation(w, fd);
    offer_open(w, &offer);
    offer.infos[0].mechanism = offer.infos[1].mechanism = ipc;
    fake_offer(w, fd, &offer);
    offer_close(&offer);
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_nonnull(reply.message);
    ck_assert_msg(!reply.message->is_refused, "%s", reply.message->reason);
    (void)close(fd);
    world_turn(w);
    (void)close(world_next(w, HANDOFF_ATTACHED).pidfd);
}

START_TEST(arenas_that_no_fd_keeps_are_dropped_with_their_last_worker)
{
    struct world w;

    world_open(&w);
    attach_ipc_maker(&w);
    ck_assert(!handoff_keeps_arenas(w.handoff));
    int second = fake_arrive(&w, "cuda:0");
    struct reply reply = fake_hear(&w, second);

    ck_assert_uint_eq(reply.fd_count, 2); /* it maps, and has its number */
    (void)close(reply.fds[0]);
    (void)close(reply.fds[1]);
    handoff_worker_gone(w.handoff, 0);
    ck_assert(!handoff_lost_arenas(w.handoff));
    (void)close(second); /* it never came as far as Attached */
    world_turn(&w);
    (void)world_next(&w, HANDOFF_LOST);
    ck_assert(handoff_lost_arenas(w.handoff));
    ck_assert(!handoff_lost_arenas(w.handoff)); /* said once */
    attach_ipc_maker(&w);
    handoff_worker_gone(w.handoff, 0);
    ck_assert(handoff_lost_arenas(w.handoff));
    world_close(&w);
}
END_TEST

START_TEST(arenas_that_an_fd_keeps_outlive_their_last_worker)
{
    struct world w;
    int fds[2];

    world_open(&w);
    (void)close(attach_whole(&w).pidfd);
    ck_assert(handoff_keeps_arenas(w.handoff));
    handoff_worker_gone(w.handoff, 0);
    ck_assert(!handoff_lost_arenas(w.handoff));
    handoff_arena_fds(w.handoff, fds);
    ck_assert_int_ge(fds[0], 0);
    world_close(&w);
}
END_TEST

START_TEST(two_kvasirds_never_give_the_same_incarnation)
{
    struct world a, b;

    world_open(&a);
    struct handoff_event first = attach_whole(&a);

    (void)close(first.pidfd);
    world_close(&a);
    world_open(&b);
    struct handoff_event second = attach_whole(&b);

    (void)close(second.pidfd);
    ck_assert_uint_ne(first.incarnation, second.incarnation);
    world_close(&b);
}
END_TEST

START_TEST(who_says_nothing_is_dropped_in_time)
{
    struct world w;

    world_open(&w);
    ck_assert_uint_eq(handoff_wakeup_us(w.handoff), UINT64_MAX);
    int mute = fake_connect(&w);

    world_turn(&w);
    ck_assert_uint_eq(handoff_wakeup_us(w.handoff), w.now_us + HANDOFF_GREETING_US);
    w.now_us += HANDOFF_GREETING_US - 1;
    world_turn(&w);
    world_expect_nothing(&w);
    w.now_us++;
    world_turn(&w);
    ck_assert_ptr_nonnull(strstr(world_next(&w, HANDOFF_REFUSED).reason, "no Attach within 10 s"));
    ck_assert_str_eq(fake_hear(&w, mute).message->reason, "no Attach within 10 s");
    (void)close(mute);

    int slow = fake_arrive(&w, "cpu"), waiting = fake_arrive(&w, "cpu");

    expect_creation(&w, slow);
    ck_assert_uint_eq(handoff_wakeup_us(w.handoff), w.now_us + WORLD_LOAD_MS * 1000);
    w.now_us += WORLD_LOAD_MS * 1000;
    world_turn(&w);
    ck_assert_ptr_nonnull(strstr(world_next(&w, HANDOFF_REFUSED).reason, "within 60000 ms"));
    world_expect_nothing(&w); /* whoever waits does so as long as it takes */
    expect_creation(&w, waiting);
    (void)close(slow);
    (void)close(waiting);
    world_close(&w);
}
END_TEST

START_TEST(more_talks_than_the_limit_wait_for_their_turn)
{
    struct world w;
    int fds[HANDOFF_CONNECTIONS_MAX + 2];
    struct handoff_event event;

    world_open(&w);
    for (size_t i = 0; i < HANDOFF_CONNECTIONS_MAX; i++) {
        fds[i] = fake_arrive(&w, "cpu");
    }
    for (size_t i = HANDOFF_CONNECTIONS_MAX; i < HANDOFF_CONNECTIONS_MAX + 2; i++) {
        fds[i] = fake_arrive(&w, "cpu"); /* would spin for ever if it woke us up */
    }
    ck_assert_uint_eq(handoff_poll_count(w.handoff), HANDOFF_POLL_MAX);
    for (size_t i = 0; i < HANDOFF_CONNECTIONS_MAX; i++) {
        (void)close(fds[i]);
    }
    world_turn(&w);
    for (size_t i = 0; i < HANDOFF_CONNECTIONS_MAX; i++) {
        (void)world_next(&w, HANDOFF_LOST);
    }
    world_turn(&w);
    ck_assert(!handoff_next(w.handoff, &event));
    expect_creation(&w, fds[HANDOFF_CONNECTIONS_MAX]);
    expect_silence(&w, fds[HANDOFF_CONNECTIONS_MAX + 1]);
    (void)close(fds[HANDOFF_CONNECTIONS_MAX]);
    (void)close(fds[HANDOFF_CONNECTIONS_MAX + 1]);
    world_close(&w);
}
END_TEST

START_TEST(out_of_file_descriptors_it_pauses_and_goes_on)
{
    struct world w;
    struct rlimit limit, none;

    world_open(&w);
    int fd = fake_connect(&w);
    Kvasir__V1__Attach attach = fake_attach();

    fake_say(fd, &attach.base, NULL, 0);
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = limit;
    none.rlim_cur = (rlim_t)dup(fd); /* the lowest free one: no more than those below it */
    (void)close((int)none.rlim_cur);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
    world_turn(&w);
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    expect_silence(&w, fd);
    ck_assert_uint_eq(handoff_wakeup_us(w.handoff), w.now_us + 1000000);
    w.now_us += 1000000;
    world_turn(&w); /* ends the pause, */
    world_turn(&w); /* so that this one listens */
    expect_creation(&w, fd);
    (void)close(fd);
    world_close(&w);
}
END_TEST

START_TEST(the_socket_is_its_owners_alone_and_never_takes_anothers_place)
{
    struct world w;
    struct stat info;
    struct handoff *other = NULL;
    struct handoff_config config = {.path = w.path, .model_path = "m", .worker_endpoint = "e"};
    char path[200];

    world_open(&w);
    ck_assert_int_eq(stat(w.path, &info), 0);
    ck_assert(S_ISSOCK(info.st_mode));
    ck_assert_uint_eq(info.st_mode & 0777, 0600);
    ck_assert_int_eq(handoff_new(&config, &other), ST_SYSTEM);
    ck_assert_ptr_nonnull(strstr(status_detail(), w.path));
    ck_assert_int_eq(stat(w.path, &info), 0);
    memset(path, 'p', sizeof(path));
    path[sizeof(path) - 1] = '\0';
    config.path = path;
    ck_assert_int_eq(handoff_new(&config, &other), ST_INVALID);
    ck_assert_ptr_null(other);
    world_close(&w);
}
END_TEST

START_TEST(an_allocation_that_fails_anywhere_costs_one_worker_at_most)
{
    struct world w;
    bool has_failed = true;

    world_open(&w);
    for (uint64_t n = 1; has_failed; n++) {
        struct handoff_event event;
        struct offer offer;
        int fd = fake_connect(&w);
        Kvasir__V1__Attach attach = fake_attach();
        uint64_t last = mem_allocations() + n;

        offer_open(&w, &offer);
        mem_fail_at(n);
        fake_say(fd, &attach.base, NULL, 0);
        world_turn(&w);
        if (!handoff_next(w.handoff, &event)) {
            fake_offer(&w, fd, &offer);
            ck_assert(handoff_next(w.handoff, &event));
        }
        has_failed = mem_allocations() >= last;
        mem_fail_at(0);
        ck_assert_int_eq(event.kind, has_failed ? HANDOFF_REFUSED : HANDOFF_ATTACHED);
        if (!has_failed) {
            ck_assert_uint_eq(event.worker, 0);
            (void)close(event.pidfd);
        }
        offer_close(&offer);
        (void)close(fd);
    }
    world_close(&w);
}
END_TEST

CHECK_MAIN("handoff", the_first_worker_makes_the_arenas_and_the_next_maps_them,
           a_worker_is_told_what_to_be, of_two_at_once_the_second_waits_until_the_first_has_offered,
           when_the_creator_is_gone_the_next_in_line_makes_the_arenas,
           a_creator_whose_process_ended_is_gone_though_its_socket_is_open,
           a_worker_that_leaves_at_any_stage_leaves_nothing,
           numbers_are_the_lowest_free_and_incarnations_never_come_again,
           arenas_that_no_fd_keeps_are_dropped_with_their_last_worker,
           arenas_that_an_fd_keeps_outlive_their_last_worker,
           two_kvasirds_never_give_the_same_incarnation, who_says_nothing_is_dropped_in_time,
           more_talks_than_the_limit_wait_for_their_turn,
           out_of_file_descriptors_it_pauses_and_goes_on,
           the_socket_is_its_owners_alone_and_never_takes_anothers_place,
           an_allocation_that_fails_anywhere_costs_one_worker_at_most)
