/* SPDX-License-Identifier: Apache-2.0 */
/* json_read - single values of a request: checked against type and range, refused by name. */
#ifndef GATEWAY_JSON_READ_H
#define GATEWAY_JSON_READ_H

#include <stdbool.h>
#include <stdint.h>

#include <json-c/json.h>

#include "gateway/refusal.h"

/* False: refused.  `name` is the field's; strings are borrowed from the value. */
bool json_read_bool(struct json_object *value, const char *name, bool *out,
                    struct refusal *refusal);
bool json_read_u32(struct json_object *value, const char *name, uint32_t min, uint32_t max,
                   uint32_t *out, struct refusal *refusal);
bool json_read_float(struct json_object *value, const char *name, double min, double max,
                     float *out, struct refusal *refusal);
/* A string without NUL, since the wire's strings have none. */
bool json_read_string(struct json_object *value, const char *name, char **out,
                      struct refusal *refusal);

#endif
