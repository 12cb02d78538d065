/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenant.h"

#include <assert.h>
#include <ctype.h>
#include <string.h>

#include <openssl/evp.h>

#define SALT_DOMAIN "kvasir tenant salt"

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

void
tenant_salt(const char *tenant, const void *salt, size_t salt_length,
            uint8_t salt_out[TENANT_SALT_BYTES])
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_ok = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1
                 && hash_field(hash, SALT_DOMAIN, strlen(SALT_DOMAIN))
                 && hash_field(hash, tenant, strlen(tenant))
                 && hash_field(hash, salt_length == 0 ? "" : salt, salt_length)
                 && EVP_DigestFinal_ex(hash, salt_out, NULL) == 1;

    EVP_MD_CTX_free(hash);
    assert(is_ok);
    (void)is_ok;
}
