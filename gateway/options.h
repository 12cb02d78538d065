/* SPDX-License-Identifier: Apache-2.0 */
/* options - what kvasir-gateway can be told. */
#ifndef GATEWAY_OPTIONS_H
#define GATEWAY_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "common/conf.h"
#include "common/status.h"

struct options {
    char *host, *runtime_dir, *endpoint, *served_model_name, *api_key, *api_keys, *tls_cert,
        *tls_key, *metrics_compat, *log_level;
    uint64_t port, threads, max_connections, max_connections_per_ip, max_body, max_header;
    uint64_t max_bodies;
    uint64_t read_timeout, idle_timeout, request_timeout, ping_interval, drain_timeout;
    uint64_t max_choices, retry;
    double default_temperature;
};

struct conf options_conf(struct options *options);

/* Defaults, then --config, then the command line. */
enum status options_read(int argc, char **argv, struct options *options);
enum status options_check(const struct options *options);
void options_deinit(struct options *options);

#endif
