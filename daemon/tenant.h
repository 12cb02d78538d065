/* SPDX-License-Identifier: Apache-2.0 */
/* tenant - whose documents: the salt that keeps tenants' documents apart.
 *
 * It goes into the key of each document, so that no tenant can tell from the time to the first
 * token what another one has asked for.  It comes from the tenant's name, which whoever knows the
 * client has established, never from the client alone. */
#ifndef DAEMON_TENANT_H
#define DAEMON_TENANT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENANT_NAME_MAX   64 /* bytes of a name, with its NUL */
#define TENANT_SALT_BYTES 32

#define TENANT_CALL_NAME_BYTES 32

/* Letters, digits, '-', '_' and '.', and not empty. */
bool tenant_is_name(const char *name);

/* SHA-256 over a domain, the tenant's name and the client's own salt (which may be empty), each
 * with its length.  Asserts that hashing works: without the salt tenants would share. */
void tenant_salt(const char *tenant, const void *salt, size_t salt_length,
                 uint8_t salt_out[TENANT_SALT_BYTES]);

/* The salt of a shared corpus: of its name, and no tenant's. */
void tenant_corpus_salt(const char *corpus, uint8_t salt_out[TENANT_SALT_BYTES]);

/* The name of a call over restarts of kvasird: SHA-256 over a domain, tenant and its retry key. */
void tenant_call_name(const char *tenant, const void *key, size_t length,
                      uint8_t name_out[TENANT_CALL_NAME_BYTES]);

#endif
