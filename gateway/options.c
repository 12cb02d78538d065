/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/options.h"

#include <stddef.h>
#include <string.h>

#include "common/log.h"
#include "proto/wire.h"

#define TIMEOUT_MAX (24ull * 3600 * 1000)
#define AT(field)   offsetof(struct options, field)

static const struct conf_option table[] = {
    {"host", CONF_STRING, "127.0.0.1", 0, 0, "ADDRESS", "to listen on; 0.0.0.0 or :: for all",
     AT(host)},
    {"port", CONF_U64, "8000", 0, 65535, "N", "to listen on; 0: any free one, named in the log",
     AT(port)},
    {"runtime-dir", CONF_STRING, NULL, 0, 0, "DIR",
     "of kvasird; default $KVASIR_RUNTIME_DIR, /run/kvasir or $XDG_RUNTIME_DIR/kvasir",
     AT(runtime_dir)},
    {"endpoint", CONF_STRING, NULL, 0, 0, "URL", "of kvasird, instead of its runtime directory",
     AT(endpoint)},
    {"served-model-name", CONF_STRING, NULL, 0, 0, "NAME[,NAME...]",
     "what clients call the model; default the checkpoint's own name", AT(served_model_name)},
    {"api-key", CONF_STRING, NULL, 0, 0, "KEY", "that clients must send", AT(api_key)},
    {"api-keys", CONF_STRING, NULL, 0, 0, "FILE",
     "lines of TENANT = KEY or TENANT = sha256:HEX; read again on SIGHUP", AT(api_keys)},
    {"tls-cert", CONF_STRING, NULL, 0, 0, "FILE", "PEM, with its chain; then HTTPS is spoken",
     AT(tls_cert)},
    {"tls-key", CONF_STRING, NULL, 0, 0, "FILE", "PEM, of the certificate", AT(tls_key)},
    {"threads", CONF_U64, "2", 1, 64, "N", "that read and write HTTP", AT(threads)},
    {"max-connections", CONF_U64, "4096", 1, 65536, "N", "open at once; more are not accepted",
     AT(max_connections)},
    {"max-connections-per-ip", CONF_U64, "0", 0, 65536, "N", "of one address; 0: no limit",
     AT(max_connections_per_ip)},
    {"max-body", CONF_SIZE, "16MiB", 1024, WIRE_CLIENT_BYTES_MAX, "BYTES", "of a request",
     AT(max_body)},
    {"max-bodies", CONF_SIZE, "1GiB", 65536, 0, "BYTES",
     "of all requests that are being read, and of what their values take meanwhile; more are "
     "refused for now",
     AT(max_bodies)},
    {"max-header", CONF_SIZE, "32KiB", 4096, 1u << 20, "BYTES",
     "of a request's line and headers, and of what is written at once", AT(max_header)},
    {"read-timeout", CONF_DURATION, "30s", 1, TIMEOUT_MAX, "TIME",
     "for the headers of a request, and again for its body", AT(read_timeout)},
    {"idle-timeout", CONF_DURATION, "75s", 1000, TIMEOUT_MAX, "TIME",
     "for a connection on which nothing moves", AT(idle_timeout)},
    {"request-timeout", CONF_DURATION, "10min", 1, TIMEOUT_MAX, "TIME", "for an answer",
     AT(request_timeout)},
    {"ping-interval", CONF_DURATION, "15s", 1, TIMEOUT_MAX, "TIME",
     "of silence after which a stream gets a comment, so that proxies keep it", AT(ping_interval)},
    {"drain-timeout", CONF_DURATION, "30s", 0, TIMEOUT_MAX, "TIME",
     "for open answers when the gateway is told to stop", AT(drain_timeout)},
    {"retry", CONF_DURATION, "30s", 0, TIMEOUT_MAX, "TIME",
     "how long an answer whose kvasird is gone looks for the next one", AT(retry)},
    {"max-choices", CONF_U64, "16", 1, 128, "N", "answers of one request: n times prompts",
     AT(max_choices)},
    {"default-temperature", CONF_F64, "1", 0, 100, "T", "for requests that name none",
     AT(default_temperature)},
    {"metrics-compat", CONF_STRING, "none", 0, 0, "NAME",
     "further names for the metrics: none, or vllm", AT(metrics_compat)},
    {"log-level", CONF_STRING, "info", 0, 0, "LEVEL", "error, warn, info, debug or trace",
     AT(log_level)},
};

struct conf
options_conf(struct options *options)
{
    return (struct conf){
        .table = table,
        .count = sizeof(table) / sizeof(table[0]),
        .options = options,
    };
}

enum status
options_check(const struct options *o)
{
    if ((o->tls_cert == NULL) != (o->tls_key == NULL)) {
        return ERR(ST_INVALID, "tls-cert and tls-key: one needs the other");
    }
    if (o->api_key != NULL && o->api_keys != NULL) {
        return ERR(ST_INVALID, "api-key and api-keys: only one of them can be given");
    }
    if (o->endpoint != NULL && o->runtime_dir != NULL) {
        return ERR(ST_INVALID, "endpoint and runtime-dir: only one of them can be given");
    }
    if (strcmp(o->metrics_compat, "none") != 0 && strcmp(o->metrics_compat, "vllm") != 0) {
        return ERR(ST_INVALID, "metrics-compat %s: it must be none or vllm", o->metrics_compat);
    }
    return log_level_check(o->log_level);
}

enum status
options_read(int argc, char **argv, struct options *options)
{
    return conf_read(options_conf(options), argc, argv);
}

void
options_deinit(struct options *options)
{
    conf_deinit(options_conf(options));
}
