/* SPDX-License-Identifier: Apache-2.0 */
/* gateway - the real kvasir-gateway in tests, in front of a fake daemon or a real one. */
#ifndef TESTS_SUPPORT_GATEWAY_H
#define TESTS_SUPPORT_GATEWAY_H

#include <stddef.h>

#include <json-c/json.h>

#include "tests/support/process.h"

struct gateway {
    struct process *process;
    unsigned port;
};

/* Starts it on a free port for the daemon of a runtime directory, and waits until it listens.
 * `args`: further ones, NULL-terminated; may be NULL. */
struct gateway gateway_start(const char *runtime_dir, const char *const *args);

/* It must end with status 0. */
void gateway_stop(struct gateway *gateway);

/* Waits until /health has this status. */
void gateway_wait_health(const struct gateway *gateway, unsigned status);

/* The number of a metric's line, e.g. "kvasir_http_client_aborts_total"; fails if there is none. */
double gateway_metric(const struct gateway *gateway, const char *name);
void gateway_wait_metric(const struct gateway *gateway, const char *name, double value);

/* A body that must be JSON; the caller's. */
struct json_object *gateway_json(const char *body);

/* A value of it by a path as "choices.0.message.content"; NULL if it is not there. */
struct json_object *gateway_at(struct json_object *root, const char *path);
/* Its text; fails the test if it is not there. */
const char *gateway_text_at(struct json_object *root, const char *path);
double gateway_number_at(struct json_object *root, const char *path);

#endif
