/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include <openssl/evp.h>

#define SALT_DOMAIN   "kvasir tenant salt"
#define CORPUS_DOMAIN "kvasir corpus salt"
#define CALL_DOMAIN   "kvasir call"

bool
tenant_is_name(const char *name)
{
    size_t length = strlen(name);

    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)name[i]) && strchr("-_.", name[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < TENANT_NAME_MAX;
}

static bool
hash_field(EVP_MD_CTX *hash, const void *bytes, size_t length)
{
    uint64_t prefix = length;

    return EVP_DigestUpdate(hash, &prefix, sizeof(prefix)) == 1
           && EVP_DigestUpdate(hash, bytes, length) == 1;
}

/* Of a domain, a tenant's name and something of its own. */
static void
hash_of_tenant(const char *domain, const char *tenant, const void *bytes, size_t length,
               uint8_t hash_out[32])
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_ok = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1
                 && hash_field(hash, domain, strlen(domain))
                 && hash_field(hash, tenant, strlen(tenant))
                 && hash_field(hash, length == 0 ? "" : bytes, length)
                 && EVP_DigestFinal_ex(hash, hash_out, NULL) == 1;

    EVP_MD_CTX_free(hash);
    assert(is_ok);
    (void)is_ok;
}

void
tenant_salt(const char *tenant, const void *salt, size_t salt_length,
            uint8_t salt_out[TENANT_SALT_BYTES])
{
    hash_of_tenant(SALT_DOMAIN, tenant, salt, salt_length, salt_out);
}

void
tenant_corpus_salt(const char *corpus, uint8_t salt_out[TENANT_SALT_BYTES])
{
    hash_of_tenant(CORPUS_DOMAIN, corpus, NULL, 0, salt_out);
}

void
tenant_call_name(const char *tenant, const void *key, size_t length,
                 uint8_t name_out[TENANT_CALL_NAME_BYTES])
{
    hash_of_tenant(CALL_DOMAIN, tenant, key, length, name_out);
}
