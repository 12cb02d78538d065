/* SPDX-License-Identifier: Apache-2.0 */
/* tenants - what each tenant is granted.
 *
 * A folder with a file NAME.conf a tenant, NAME being the tenant's:
 *
 *   weight = 3                  # of its share; default 1
 *   corpora = handbook, law     # shared corpora whose documents it may cite
 *   curates = handbook          # shared corpora that it may register documents in
 *
 * Who has no file has weight 1 and nothing shared.  Callers without a tenant, who come by a local
 * socket only, may cite and curate every corpus. */
#ifndef DAEMON_TENANTS_H
#define DAEMON_TENANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/status.h"
#include "daemon/tenant.h"

#define TENANTS_MAX          4096
#define TENANT_CORPORA_BYTES 512 /* of a list of names */

/* Names, each between commas; what is granted to a caller. */
struct tenant_grant {
    bool is_all;
    char corpora[TENANT_CORPORA_BYTES], curates[TENANT_CORPORA_BYTES];
};

struct tenants_entry {
    char name[TENANT_NAME_MAX];
    uint32_t weight;
    struct tenant_grant grant;
};

struct tenants;

/* Reads the whole folder or nothing; NULL folder: nobody has a file.  ST_INVALID names the file;
 * ST_NOT_FOUND: no such folder; ST_SYSTEM; ST_NO_MEMORY. */
enum status tenants_read(const char *folder, struct tenants **tenants_out);
void tenants_destroy(struct tenants **tenants);
size_t tenants_count(const struct tenants *tenants);

/* By name; "" is nobody's, who may everything.  One without a file has an entry all the same. */
struct tenants_entry tenants_find(const struct tenants *tenants, const char *name);

/* Whether a corpus is in a list of names. */
bool tenant_is_granted(const struct tenant_grant *grant, const char *list, const char *corpus);

/* The salt of a corpus, for those who may cite it, or register documents in it.  ST_NOT_FOUND: not
 * this one, or there is none, which must not be told apart.  NULL: nothing is granted. */
enum status tenant_open_corpus(const struct tenant_grant *grant, const char *corpus,
                               bool is_to_register, uint8_t salt_out[TENANT_SALT_BYTES]);

#endif
