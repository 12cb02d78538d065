/* SPDX-License-Identifier: Apache-2.0 */
/* gateway_fixture - a gateway in front of a fake daemon, in a folder of their own. */
#ifndef TESTS_SUPPORT_GATEWAY_FIXTURE_H
#define TESTS_SUPPORT_GATEWAY_FIXTURE_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <check.h>

#include "tests/support/fake_daemon.h"
#include "tests/support/gateway.h"
#include "tests/support/http.h"

struct gateway_fixture {
    char dir[64];
    struct fake_daemon *daemon;
    struct gateway gateway;
};

/* `args` of the gateway, NULL-terminated; may be NULL. */
static inline void
gateway_setup(struct gateway_fixture *f, const char *const *args)
{
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/kvasir-gateway-%s", "XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(f->dir));
    f->daemon = fake_daemon_start(f->dir);
    f->gateway = gateway_start(f->dir, args);
    gateway_wait_health(&f->gateway, 200);
}

static inline void
gateway_teardown(struct gateway_fixture *f)
{
    static const char *const names[] = {"client.sock", "admin.sock"};
    char path[128];

    gateway_stop(&f->gateway);
    if (f->daemon != NULL) {
        fake_daemon_stop(&f->daemon);
    }
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", f->dir, names[i]);
        (void)unlink(path);
    }
    ck_assert_int_eq(rmdir(f->dir), 0);
}

#endif
