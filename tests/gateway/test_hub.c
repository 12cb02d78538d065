/* SPDX-License-Identifier: Apache-2.0 */
/* Many answers at once over the loss of kvasird: all of them go on, as far as what is kept of their
 * requests may reach. */
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/hub.h"
#include "kvasir/v1/rag.pb-c.h"
#include "proto/endpoints.h"
#include "tests/support/check_main.h"
#include "tests/support/fake_daemon.h"

#define CALLS    1100 /* more than a socket queues (client/dealer.c) */
#define BATCH    500
#define RETRY_MS 600000
#define PAUSE_MS 100 /* nobody is there: all try once at the least */

struct counts {
    atomic_uint begun, ended;
};

struct rig {
    char dir[32];
    struct fake_daemon *daemon;
    struct hub *hub;
    struct counts counts;
    atomic_uint losses;
};

static void
count_reply(void *opaque, const struct hub_reply *reply)
{
    struct counts *counts = opaque;

    atomic_fetch_add(reply->is_last ? &counts->ended : &counts->begun, 1);
}

static void
count_loss(void *opaque, struct hub *hub, bool is_connected)
{
    struct rig *rig = opaque;

    (void)hub;
    atomic_fetch_add(&rig->losses, !is_connected);
}

static void
wait_for(atomic_uint *value, unsigned at_least)
{
    while (atomic_load(value) < at_least) {
        (void)poll(NULL, 0, 1);
    }
}

static void
setup(struct rig *rig, size_t retry_bytes_max)
{
    char url[ENDPOINT_URL_MAX];

    *rig = (struct rig){.dir = "/tmp/kvasir-hub.XXXXXX"};
    ck_assert_ptr_nonnull(mkdtemp(rig->dir));
    rig->daemon = fake_daemon_start(rig->dir);
    ck_assert_int_eq(endpoint_url(rig->dir, ENDPOINT_CLIENT, url), ST_OK);
    ck_assert_int_eq(hub_new(&(struct hub_config){.url = url,
                                                  .retry_ms = RETRY_MS,
                                                  .retry_bytes_max = retry_bytes_max,
                                                  .on_connection = count_loss,
                                                  .opaque = rig},
                             &rig->hub),
                     ST_OK);
    while (!hub_is_connected(rig->hub)) {
        (void)poll(NULL, 0, 1);
    }
}

static void
teardown(struct rig *rig)
{
    hub_destroy(&rig->hub);
    fake_daemon_stop(&rig->daemon);
    for (int i = 0; i < 2; i++) {
        char path[64];

        (void)snprintf(path, sizeof(path), "%s/%s.sock", rig->dir, i == 0 ? "client" : "admin");
        ck_assert_int_eq(unlink(path), 0);
    }
    ck_assert_int_eq(rmdir(rig->dir), 0);
}

/* One that gets a chunk and then nothing. */
static void
call(struct rig *rig)
{
    Kvasir__V1__GenerateRequest request = KVASIR__V1__GENERATE_REQUEST__INIT;
    uint64_t id;

    request.query = (char *)(uintptr_t) "deaf";
    ck_assert_int_eq(hub_call(rig->hub,
                              &(struct hub_call){.method = METHOD_GENERATE,
                                                 .request = &request.base,
                                                 .on_reply = count_reply,
                                                 .opaque = &rig->counts},
                              &id),
                     ST_OK);
}

/* kvasird is gone for a while. */
static void
restart(struct rig *rig)
{
    fake_daemon_stop(&rig->daemon);
    wait_for(&rig->losses, 1);
    (void)poll(NULL, 0, PAUSE_MS);
    rig->daemon = fake_daemon_start(rig->dir);
}

START_TEST(more_answers_than_a_socket_queues_go_on_over_a_restart)
{
    struct rig rig;

    setup(&rig, HUB_RETRY_BYTES_MAX);
    for (unsigned i = 0; i < CALLS; i++) {
        call(&rig);
        if (i % BATCH == 0) {
            wait_for(&rig.counts.begun, i);
        }
    }
    wait_for(&rig.counts.begun, CALLS);
    restart(&rig);
    while (fake_daemon_calls(rig.daemon) < CALLS) {
        ck_assert_uint_eq(atomic_load(&rig.counts.ended), 0);
        (void)poll(NULL, 0, 1);
    }
    wait_for(&rig.counts.begun, 2 * CALLS);
    ck_assert_uint_eq(atomic_load(&rig.counts.ended), 0);
    teardown(&rig);
    ck_assert_uint_eq(atomic_load(&rig.counts.ended), CALLS);
}
END_TEST

START_TEST(a_request_beyond_what_is_kept_ends_with_the_loss_and_the_others_go_on)
{
    struct rig rig;

    setup(&rig, 1000); /* a request takes a few dozen bytes, in a buffer that is larger */
    for (unsigned i = 0; i < 100; i++) {
        call(&rig);
    }
    wait_for(&rig.counts.begun, 100);
    restart(&rig);
    wait_for(&rig.counts.ended, 1);
    while (fake_daemon_calls(rig.daemon) == 0) {
        (void)poll(NULL, 0, 1);
    }
    wait_for(&rig.counts.begun, 101);
    unsigned ended = atomic_load(&rig.counts.ended);

    ck_assert_uint_ge(ended, 80);
    ck_assert_uint_lt(ended, 100);
    wait_for(&rig.counts.begun, 200 - ended);
    teardown(&rig);
    ck_assert_uint_eq(atomic_load(&rig.counts.ended), 100);
}
END_TEST

CHECK_MAIN("hub", more_answers_than_a_socket_queues_go_on_over_a_restart,
           a_request_beyond_what_is_kept_ends_with_the_loss_and_the_others_go_on)
