/* SPDX-License-Identifier: Apache-2.0 */
/* keys - API keys and the tenants they stand for.
 *
 * A tenant's documents have a salt of their own, so that no tenant can tell from the time to the
 * first token what another one has asked for; the salt comes from the tenant's name, not from the
 * client. */
#ifndef GATEWAY_KEYS_H
#define GATEWAY_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"

#define KEYS_MAX        4096 /* of one file */
#define KEYS_KEY_MAX    512  /* bytes of a key */
#define KEYS_TENANT_MAX 64   /* bytes of a name, with its NUL */
#define KEYS_SALT_BYTES 32

struct keys;

/* Lines "TENANT = KEY" or "TENANT = sha256:HEX" (of the key); '#' begins a comment line.  A tenant
 * may have several keys.  ST_INVALID: "FILE:LINE: why"; ST_SYSTEM. */
enum status keys_read(const char *path, struct keys **keys_out);

/* One key, of the tenant "". */
enum status keys_new_single(const char *key, struct keys **keys_out);

void keys_destroy(struct keys **keys);

/* Looks in constant time for the key at hand; NULL is none.  False: nobody's. */
bool keys_find(const struct keys *keys, const char *key, char tenant_out[KEYS_TENANT_MAX]);

/* The salt of a tenant's documents; a client's own cache_salt goes in as well (NULL: none).
 * False: there is neither, so there is no salt.  Asserts that hashing works. */
bool keys_salt(const char *tenant, const char *cache_salt, uint8_t salt_out[KEYS_SALT_BYTES]);

#endif
