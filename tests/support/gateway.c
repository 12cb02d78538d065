/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/gateway.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "common/clock.h"
#include "tests/support/http.h"

#define ARGS_MAX 32

struct gateway
gateway_start(const char *runtime_dir, const char *const *args)
{
    const char *all[ARGS_MAX + 1] = {"--port", "0", "--runtime-dir", runtime_dir};
    struct gateway gateway;
    size_t count = 4;

    while (args != NULL && *args != NULL && count < ARGS_MAX) {
        all[count++] = *args++;
    }
    gateway.process = process_start("./kvasir-gateway", all, NULL);
    process_wait_ready(gateway.process);
    gateway.port = process_ready_number(gateway.process, "X_PORT");
    ck_assert_uint_gt(gateway.port, 0);
    return gateway;
}

void
gateway_stop(struct gateway *gateway)
{
    process_stop(&gateway->process);
}

void
gateway_wait_health(const struct gateway *gateway, unsigned status)
{
    uint64_t limit = process_patience_until_us();
    unsigned is;

    while ((is = http_ask(gateway->port, "GET", "/health", NULL, NULL, NULL)) != status) {
        ck_assert_msg(clock_now_us() < limit, "/health stays %u, not %u", is, status);
        (void)poll(NULL, 0, 2);
    }
}

double
gateway_metric(const struct gateway *gateway, const char *name)
{
    char *body;
    char line[256];

    ck_assert_uint_eq(http_ask(gateway->port, "GET", "/metrics", NULL, NULL, &body), 200);
    (void)snprintf(line, sizeof(line), "\n%s ", name);
    const char *found = strstr(body, line);

    ck_assert_msg(found != NULL, "no metric %s", name);
    double value = strtod(found + strlen(line), NULL);

    free(body);
    return value;
}

void
gateway_wait_metric(const struct gateway *gateway, const char *name, double value)
{
    uint64_t limit = process_patience_until_us();
    double is;

    while ((is = gateway_metric(gateway, name)) < value || is > value) {
        ck_assert_msg(clock_now_us() < limit, "%s stays %g, not %g", name, is, value);
        (void)poll(NULL, 0, 2);
    }
}

struct json_object *
gateway_json(const char *body)
{
    struct json_object *root = json_tokener_parse(body);

    ck_assert_msg(root != NULL, "no JSON: %s", body);
    return root;
}

struct json_object *
gateway_at(struct json_object *root, const char *path)
{
    char copy[256];
    char *rest = copy;
    char *name;

    (void)snprintf(copy, sizeof(copy), "%s", path);
    while (root != NULL && (name = strsep(&rest, ".")) != NULL) {
        if (json_object_is_type(root, json_type_array)) {
            root = json_object_array_get_idx(root, strtoul(name, NULL, 10));
        } else if (!json_object_object_get_ex(root, name, &root)) {
            return NULL;
        }
    }
    return root;
}

const char *
gateway_text_at(struct json_object *root, const char *path)
{
    struct json_object *value = gateway_at(root, path);

    ck_assert_msg(value != NULL && json_object_is_type(value, json_type_string),
                  "no text at %s of %s", path, json_object_to_json_string(root));
    return json_object_get_string(value);
}

double
gateway_number_at(struct json_object *root, const char *path)
{
    struct json_object *value = gateway_at(root, path);

    ck_assert_msg(value != NULL
                      && (json_object_is_type(value, json_type_int)
                          || json_object_is_type(value, json_type_double)),
                  "no number at %s of %s", path, json_object_to_json_string(root));
    return json_object_get_double(value);
}
