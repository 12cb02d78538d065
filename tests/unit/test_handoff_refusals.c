/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker can do wrong: it is refused by name, and nothing of it is left. */
#include "daemon/handoff.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/attach_world.h"
#include "tests/support/check_main.h"

/* The refusal as kvasird's event and as the worker hears it; closes the worker's socket. */
static void
expect_refusal(struct world *w, int fd, const char *words)
{
    struct handoff_event event = world_next(w, HANDOFF_REFUSED);
    struct reply reply = fake_hear(w, fd);

    ck_assert_msg(strstr(event.reason, words) != NULL, "\"%s\" lacks \"%s\"", event.reason, words);
    ck_assert_ptr_nonnull(reply.message);
    ck_assert(reply.message->is_refused);
    ck_assert_str_eq(reply.message->reason, event.reason);
    ck_assert(fake_hear(w, fd).is_closed);
    (void)close(fd);
}

static void
expect_creation(struct world *w, int fd)
{
    struct reply reply = fake_hear(w, fd);

    ck_assert_ptr_nonnull(reply.message);
    ck_assert(!reply.message->is_refused && reply.message->arenas[0]->must_create);
}

/* --- Attach ----------------------------------------------------------------------------------- */

static char no_name[] = "", long_name[] = "abcdefghijklmnopqrstuvwxyz-abcdef", rocm[] = "rocm";
static char two_lines[] = "cpu\nworker_attached worker=0";

static void
spoil_attach(int i, Kvasir__V1__Attach *attach)
{
    switch (i) {
    case 0: attach->version = 2; break;
    case 1: attach->has_version = false; break;
    case 2: attach->device = NULL; break;
    case 3: attach->device = no_name; break;
    case 4: attach->device = long_name; break;
    case 5: attach->device = two_lines; break;
    case 6: attach->backend = rocm; break;
    case 7: attach->backend = NULL; break;
    case 8: attach->seqs_max = 0; break;
    case 9: attach->seqs_max = WORLD_STEP_TOKENS + 1; break;
    default: ck_abort();
    }
}

START_TEST(an_attach_that_is_wrong_is_refused_by_name)
{
    static const char *const words[] = {
        "worker speaks version 2, kvasird version 1",
        "worker speaks version 0, kvasird version 1",
        "name of a device",
        "name of a device",
        "name of a device",
        "name of a device",
        "neither cpu nor cuda",
        "neither cpu nor cuda",
        "takes 0 sequences at once: 1 to 512",
        "takes 513 sequences at once: 1 to 512",
    };
    struct world w;

    world_open(&w);
    size_t fds = open_fds();

    for (int i = 0; i < (int)(sizeof(words) / sizeof(words[0])); i++) {
        Kvasir__V1__Attach attach = fake_attach();
        int fd = fake_connect(&w);

        spoil_attach(i, &attach);
        fake_say(fd, &attach.base, NULL, 0);
        world_turn(&w);
        expect_refusal(&w, fd, words[i]);
        ck_assert_uint_eq(open_fds(), fds);
    }
    world_close(&w);
}
END_TEST

START_TEST(a_worker_of_another_device_is_refused_with_both_names)
{
    struct world w;

    world_open(&w);
    (void)close(attach_whole(&w).pidfd);
    int fd = fake_arrive(&w, "cuda:1");

    expect_refusal(&w, fd, "of device cuda:1, the arenas are on cpu");
    world_close(&w);
}
END_TEST

START_TEST(a_worker_that_speaks_before_its_turn_is_refused)
{
    struct world w;
    Kvasir__V1__Attach attach = fake_attach();

    world_open(&w);
    int first = fake_arrive(&w, "cpu"), second = fake_arrive(&w, "cpu");

    for (int i = 0; i < 3; i++) { /* those on top must not cost it the reason */
        fake_say(second, &attach.base, NULL, 0);
    }
    world_turn(&w);
    expect_refusal(&w, second, "before its turn");
    expect_creation(&w, first);
    (void)close(first);
    world_close(&w);
}
END_TEST

START_TEST(a_worker_of_another_user_is_refused)
{
    struct world w;
    int tell[2];
    char byte;

    if (geteuid() != 0) {
        printf("SKIP: only root can be another user for a while\n");
        return;
    }
    world_open(&w);
    ck_assert_int_eq(pipe(tell), 0);
    ck_assert_int_eq(chmod(w.dir, 0711), 0);
    ck_assert_int_eq(chmod(w.path, 0666), 0); /* as if the directory's owner had opened it up */
    pid_t child = fork();

    if (child == 0) {
        if (setuid(65534) != 0) {
            _exit(1);
        }
        int fd = fake_connect(&w);
        Kvasir__V1__Attach attach = fake_attach();
        struct reply reply;

        fake_say(fd, &attach.base, NULL, 0);
        (void)!write(tell[1], "x", 1);
        struct pollfd item = {.fd = fd, .events = POLLIN};

        (void)poll(&item, 1, -1);
        reply = fake_hear(&w, fd);
        _exit(reply.message != NULL && reply.message->is_refused ? 0 : 1);
    }
    int status;

    ck_assert_int_eq(read(tell[0], &byte, 1), 1);
    world_turn(&w);
    struct handoff_event event = world_next(&w, HANDOFF_REFUSED);

    ck_assert_str_eq(event.reason, "the worker is of uid 65534, kvasird of uid 0");
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    (void)close(tell[0]);
    (void)close(tell[1]);
    world_close(&w);
}
END_TEST

/* --- Attached --------------------------------------------------------------------------------- */

static char other_mechanism[] = "posix";

static void
replace_fd(struct offer *offer, size_t i, int fd)
{
    (void)close(offer->fds[i]);
    offer->fds[i] = fd;
}

struct spoiled {
    void (*spoil)(struct offer *offer);
    const char *words;
};

static void
another_fingerprint(struct offer *offer)
{
    memset(offer->fingerprint, 0xab, 32);
}

static void
short_fingerprint(struct offer *offer)
{
    offer->message.pool_fingerprint.len = 31;
}

static void
no_fingerprint(struct offer *offer)
{
    offer->message.has_pool_fingerprint = false;
}

static void
short_kv(struct offer *offer)
{
    replace_fd(offer, 0, memory_new(WORLD_KV_MEMORY - 1, true));
}

static void
short_weights(struct offer *offer)
{
    replace_fd(offer, 1, memory_new(WORLD_WEIGHTS_BYTES - 4096, true));
}

static void
unsealed_kv(struct offer *offer)
{
    replace_fd(offer, 0, memory_new(WORLD_KV_MEMORY, false));
}

static void
no_memory_at_all(struct offer *offer)
{
    int fds[2];

    ck_assert_int_eq(pipe(fds), 0);
    (void)close(fds[1]);
    replace_fd(offer, 1, fds[0]);
}

static void
one_fd_for_two(struct offer *offer)
{
    (void)close(offer->fds[--offer->fd_count]);
}

static void
one_arena(struct offer *offer)
{
    one_fd_for_two(offer);
    offer->message.n_arenas = 1;
}

static void
no_arena(struct offer *offer)
{
    offer_close(offer);
    offer->message.n_arenas = 0;
}

static void
three_arenas(struct offer *offer)
{
    offer->message.n_arenas = 3;
}

static void
three_fds(struct offer *offer)
{
    offer->fds[offer->fd_count++] = memory_new(4096, true);
}

static void
a_flood_of_fds(struct offer *offer)
{
    while (offer->fd_count < WORLD_FDS_MAX) {
        three_fds(offer);
    }
}

static void
kv_twice(struct offer *offer)
{
    offer->infos[1] = offer->infos[0];
    replace_fd(offer, 1, memory_new(WORLD_KV_MEMORY, true));
}

static void
unknown_kind(struct offer *offer)
{
    offer->infos[1].kind = (Kvasir__V1__ArenaKind)7;
}

static void
absent_arena(struct offer *offer)
{
    offer->infos[1].is_present = false;
}

static void
unknown_mechanism(struct offer *offer)
{
    offer->infos[0].mechanism = other_mechanism;
}

static void
no_mechanism(struct offer *offer)
{
    offer->infos[0].mechanism = NULL;
}

static void
no_blocks(struct offer *offer)
{
    offer->message.block_count = 0;
}

static void
blocks_of_nothing(struct offer *offer)
{
    offer->message.block_bytes = 0;
}

static void
too_many_blocks(struct offer *offer)
{
    offer->message.block_count = WORLD_BLOCK_COUNT + 1;
}

static void
blocks_that_overflow(struct offer *offer)
{
    offer->message.block_bytes = UINT64_C(1) << 56;
}

static void
kv_smaller_than_its_blocks(struct offer *offer)
{
    offer->infos[0].bytes = WORLD_KV_MEMORY - 1;
}

static void
empty_weights(struct offer *offer)
{
    offer->infos[1].bytes = 0;
}

static const struct spoiled spoiled_offers[] = {
    {another_fingerprint, "fingerprint is abababababababab..., kvasird's"},
    {short_fingerprint, "fingerprint has 31 bytes: 32"},
    {no_fingerprint, "fingerprint has 0 bytes: 32"},
    {short_kv, "the KV arena has 1048575 bytes, its worker says 1048576"},
    {short_weights, "the weights arena has 8192 bytes, its worker says 12288"},
    {unsealed_kv, "the KV arena is not memory sealed against shrinking"},
    {no_memory_at_all, "the weights arena is not memory sealed"},
    {one_fd_for_two, "2 arenas with 1 file descriptors offered: 2 were asked for"},
    {one_arena, "1 arenas with 1 file"},
    {no_arena, "0 arenas with 0 file"},
    {three_arenas, "3 arenas with 2 file"},
    {three_fds, "2 arenas with 3 file descriptors offered: 2 were asked for"},
    {a_flood_of_fds, "or 3 file descriptors"},
    {kv_twice, "the KV arena is offered twice"},
    {unknown_kind, "unknown kind 7"},
    {absent_arena, "without being present"},
    {unknown_mechanism, "none of shm, vmm, ipc"},
    {no_mechanism, "none of shm, vmm, ipc"},
    {no_blocks, "counts 0 blocks"},
    {blocks_of_nothing, "blocks of 0 bytes"},
    {too_many_blocks, "counts 257 blocks of 4096 bytes"},
    {blocks_that_overflow, "in the 1048576 bytes of --kv-memory"},
    {kv_smaller_than_its_blocks, "said to have 1048575 bytes: at least 1048576"},
    {empty_weights, "said to have 0 bytes"},
};

START_TEST(an_offer_that_is_wrong_is_refused_and_the_next_worker_makes_the_arenas)
{
    struct world w;

    world_open(&w);
    for (size_t i = 0; i < sizeof(spoiled_offers) / sizeof(spoiled_offers[0]); i++) {
        size_t fds = open_fds();
        struct offer offer;
        int first = fake_arrive(&w, "cpu"), next = fake_arrive(&w, "cpu");

        expect_creation(&w, first);
        offer_open(&w, &offer);
        spoiled_offers[i].spoil(&offer);
        fake_offer(&w, first, &offer);
        offer_close(&offer);
        expect_refusal(&w, first, spoiled_offers[i].words);
        expect_creation(&w, next);
        (void)close(next);
        world_turn(&w);
        (void)world_next(&w, HANDOFF_LOST);
        ck_assert_uint_eq(open_fds(), fds);
    }
    struct handoff_event event = attach_whole(&w);

    ck_assert_uint_eq(event.worker, 0); /* no number was lost on the way */
    (void)close(event.pidfd);
    world_close(&w);
}
END_TEST

START_TEST(device_memory_is_taken_without_a_look_at_its_size)
{
    static char mechanisms[][4] = {"vmm", "ipc"};

    for (int i = 0; i < 2; i++) {
        struct world w;
        struct offer offer;

        world_open(&w);
        int fd = fake_arrive(&w, "cuda:0");

        expect_creation(&w, fd);
        offer_open(&w, &offer);
        offer.infos[0].mechanism = offer.infos[1].mechanism = mechanisms[i];
        replace_fd(&offer, 0, memory_new(0, false));
        fake_offer(&w, fd, &offer);
        offer_close(&offer);
        (void)close(world_next(&w, HANDOFF_ATTACHED).pidfd);
        (void)close(fd);
        world_close(&w);
    }
}
END_TEST

START_TEST(a_later_worker_that_counts_otherwise_or_brings_arenas_is_refused)
{
    struct world w;
    struct offer offer;

    world_open(&w);
    (void)close(attach_whole(&w).pidfd);
    size_t fds = open_fds();

    for (int i = 0; i < 4; i++) {
        static const char *const words[] = {
            "counts 255 blocks of 4096 bytes, the arena has 256 of 4096",
            "counts 256 blocks of 2048 bytes, the arena has 256 of 4096",
            "2 arenas with 2 file descriptors offered: none was asked for",
            "kvasird's",
        };
        int fd = fake_arrive(&w, "cpu");
        struct reply reply = fake_hear(&w, fd);

        ck_assert_uint_eq(reply.fd_count, 2);
        (void)close(reply.fds[0]);
        (void)close(reply.fds[1]);
        if (i == 2) {
            offer_open(&w, &offer);
        } else {
            offer_open_empty(&w, &offer);
        }
        offer.message.block_count -= i == 0 ? 1 : 0;
        offer.message.block_bytes /= i == 1 ? 2 : 1;
        offer.fingerprint[0] ^= i == 3 ? 1 : 0;
        fake_offer(&w, fd, &offer);
        offer_close(&offer);
        expect_refusal(&w, fd, words[i]);
        ck_assert_uint_eq(open_fds(), fds);
    }
    struct handoff_event event = attach_whole(&w);

    ck_assert_uint_eq(event.worker, 1);
    (void)close(event.pidfd);
    world_close(&w);
}
END_TEST

/* --- bytes ------------------------------------------------------------------------------------ */

/* Brings a worker before Attach, into the queue or to where it is to offer. */
static int
bring_to(struct world *w, int stage, int *creator)
{
    int fd;

    *creator = stage == 1 ? fake_arrive(w, "cpu") : -1;
    fd = stage == 0 ? fake_connect(w) : fake_arrive(w, "cpu");
    world_turn(w);
    if (stage == 2) {
        expect_creation(w, fd);
    }
    return fd;
}

static void
leave(struct world *w, int creator)
{
    if (creator >= 0) {
        (void)close(creator);
        world_turn(w);
        (void)world_next(w, HANDOFF_LOST);
    }
}

START_TEST(an_oversize_datagram_or_a_flood_of_fds_is_refused_at_every_stage)
{
    static const uint8_t bytes[(64 << 10) + 1];
    struct world w;
    int flood[WORLD_FDS_MAX], creator;

    world_open(&w);
    for (size_t i = 0; i < WORLD_FDS_MAX; i++) {
        flood[i] = STDOUT_FILENO;
    }
    size_t fds = open_fds();

    for (int stage = 0; stage < 3; stage++) {
        int fd = bring_to(&w, stage, &creator);

        fake_send(fd, bytes, sizeof(bytes), NULL, 0);
        world_turn(&w);
        expect_refusal(&w, fd, "more than 65536 bytes");
        leave(&w, creator);

        fd = bring_to(&w, stage, &creator);
        fake_send(fd, bytes, 10, flood, WORLD_FDS_MAX);
        world_turn(&w);
        expect_refusal(&w, fd, "or 3 file descriptors");
        leave(&w, creator);

        fd = bring_to(&w, stage, &creator); /* an empty datagram looks like the end */
        fake_send(fd, bytes, 0, flood, WORLD_FDS_MAX);
        world_turn(&w);
        (void)world_next(&w, HANDOFF_LOST);
        (void)close(fd);
        leave(&w, creator);
        ck_assert_uint_eq(open_fds(), fds);
    }
    world_close(&w);
}
END_TEST

/* Random bytes may be a message by chance, but never one that is accepted. */
START_TEST(garbage_is_never_accepted_and_leaves_nothing)
{
    uint64_t state = test_seed();
    struct world w;

    world_open(&w);
    size_t fds = open_fds();

    for (int round = 0; round < 600; round++) {
        uint8_t bytes[64];
        int creator, fd = bring_to(&w, round % 3, &creator);
        size_t length = 1 + (size_t)round % sizeof(bytes);
        struct handoff_event event;

        for (size_t i = 0; i < length; i++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (uint8_t)(state >> 56);
        }
        fake_send(fd, bytes, length, NULL, 0);
        world_turn(&w);
        event = world_next(&w, HANDOFF_REFUSED);
        ck_assert_uint_gt(strlen(event.reason), 0);
        (void)close(fd);
        leave(&w, creator);
        ck_assert_uint_eq(open_fds(), fds);
    }
    world_close(&w);
}
END_TEST

CHECK_MAIN("handoff_refusals", an_attach_that_is_wrong_is_refused_by_name,
           a_worker_of_another_device_is_refused_with_both_names,
           a_worker_that_speaks_before_its_turn_is_refused, a_worker_of_another_user_is_refused,
           an_offer_that_is_wrong_is_refused_and_the_next_worker_makes_the_arenas,
           device_memory_is_taken_without_a_look_at_its_size,
           a_later_worker_that_counts_otherwise_or_brings_arenas_is_refused,
           an_oversize_datagram_or_a_flood_of_fds_is_refused_at_every_stage,
           garbage_is_never_accepted_and_leaves_nothing)
