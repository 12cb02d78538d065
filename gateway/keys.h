/* SPDX-License-Identifier: Apache-2.0 */
/* keys - API keys and the tenants they stand for.
 *
 * kvasird is told the tenant with each call, and keeps its documents apart from those of others. */
#ifndef GATEWAY_KEYS_H
#define GATEWAY_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define KEYS_MAX        4096 /* of one file */
#define KEYS_KEY_MAX    512  /* bytes of a key */
#define KEYS_TENANT_MAX 64   /* bytes of a name, with its NUL */

struct keys;

/* Lines "TENANT = KEY" (a tenant is letters, digits, '-', '_' and '.') or "TENANT = sha256:HEX" (of
 * the key); '#' begins a comment line.  A tenant may have several keys.  ST_INVALID: "FILE:LINE:
 * why"; ST_SYSTEM. */
enum status keys_read(const char *path, struct keys **keys_out);

/* One key, of the tenant "". */
enum status keys_new_single(const char *key, struct keys **keys_out);

void keys_destroy(struct keys **keys);

/* Looks in constant time for the key at hand; NULL is none.  False: nobody's. */
bool keys_find(const struct keys *keys, const char *key, char tenant_out[KEYS_TENANT_MAX]);

#endif
