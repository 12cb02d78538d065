/* SPDX-License-Identifier: Apache-2.0 */
/* access - who may speak to kvasird over a network: public keys, what each may do, and for whom.
 *
 * A folder with a file NAME.conf a key:
 *
 *   key = Z85 of the public key, or the path of its file
 *   role = client            # or admin, who may use operators' methods as well
 *   tenant = acme            # default: NAME for a client, nobody for an admin
 *
 * Documents are a tenant's own: kvasird derives the salt of their keys from the tenant's name, so
 * no client can name another's. */
#ifndef DAEMON_ACCESS_H
#define DAEMON_ACCESS_H

#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/tenant.h"
#include "proto/curve.h"

#define ACCESS_KEYS_MAX 4096
#define ACCESS_NAME_MAX 64 /* with the NUL */

enum access_role {
    ACCESS_CLIENT,
    ACCESS_ADMIN,
};

struct access_entry {
    char name[ACCESS_NAME_MAX];
    uint8_t key[CURVE_KEY_BYTES];
    enum access_role role;
    char tenant[TENANT_NAME_MAX];
};

struct access;

/* Reads the whole folder or nothing.  ST_INVALID names file and key, also of a key that is there
 * twice; ST_NOT_FOUND: no such folder; ST_SYSTEM; ST_NO_MEMORY. */
enum status access_read(const char *folder, struct access **access_out);
void access_destroy(struct access **access);

/* Borrowed; NULL: nobody's. */
const struct access_entry *access_find_key(const struct access *access,
                                           const uint8_t key[CURVE_KEY_BYTES]);
const struct access_entry *access_find_name(const struct access *access, const char *name);

size_t access_count(const struct access *access);

#endif
