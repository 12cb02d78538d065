/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/registry.h"

#include <string.h>

#include <openssl/evp.h>

static const char DOMAIN[] = "kvasir-document-name";

static bool
hash_field(EVP_MD_CTX *hash, const void *bytes, size_t length)
{
    uint64_t prefix = length;

    return EVP_DigestUpdate(hash, &prefix, sizeof(prefix)) == 1
           && EVP_DigestUpdate(hash, bytes, length) == 1;
}

/* SHA-256 over domain, salt and id, each with its length. */
enum status
registry_name(const struct registry_scope *scope, const char *id, struct dockey *name_out)
{
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    bool is_ok = hash != NULL && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) == 1
                 && hash_field(hash, DOMAIN, strlen(DOMAIN))
                 && hash_field(hash, scope->salt == NULL ? "" : scope->salt, scope->salt_length)
                 && hash_field(hash, id, strlen(id))
                 && EVP_DigestFinal_ex(hash, name_out->bytes, NULL) == 1;

    EVP_MD_CTX_free(hash);
    return is_ok ? ST_OK : ERR(ST_NO_MEMORY, "no memory to hash a name");
}

enum status
registry_put(struct memo *memo, const struct dockey *name, const struct dockey *key,
             struct tokens *tokens)
{
    TRY(memo_put(memo, MEMO_DOCUMENT, key, tokens));
    if (memcmp(name, key, sizeof(*name)) == 0) {
        return ST_OK;
    }
    (void)memo_forget(memo, MEMO_DOCUMENT, name); /* putting only refreshes what is there */
    return memo_put_alias(memo, MEMO_DOCUMENT, name, key, tokens);
}

uint32_t
registry_forget(struct memo *memo, const struct dockey *key)
{
    return memo_forget_aliases(memo, MEMO_DOCUMENT, key);
}

static enum status
not_found(const struct dockey *key)
{
    char hex[2 * 8 + 1];

    dockey_hex(key, 8, hex);
    return ERR(ST_NOT_FOUND, "document_key %s...: not registered, or forgotten since", hex);
}

static enum status
compute(const struct registry_scope *scope, struct tokens *tokens, struct dockey *key_out)
{
    return tokens_key(tokens, scope->pool_fingerprint, scope->salt, scope->salt_length, key_out);
}

enum status
registry_find(struct memo *memo, const struct registry_scope *scope, const struct dockey *key,
              struct tokens **tokens_out)
{
    struct tokens *tokens = memo_find(memo, MEMO_DOCUMENT, key);
    struct dockey own;
    enum status st;

    if (tokens == NULL) {
        return not_found(key);
    }
    st = compute(scope, tokens, &own);
    if (st == ST_OK && memcmp(own.bytes, key->bytes, DOCKEY_BYTES) != 0) {
        st = not_found(key);
    }
    if (st != ST_OK) {
        tokens_release(&tokens);
        return st;
    }
    *tokens_out = tokens;
    return ST_OK;
}

enum status
registry_find_id(struct memo *memo, const struct registry_scope *scope, const char *id,
                 struct dockey *key_out, struct tokens **tokens_out)
{
    struct tokens *tokens;
    struct dockey name;
    enum status st;

    TRY(registry_name(scope, id, &name));
    tokens = memo_find(memo, MEMO_DOCUMENT, &name);
    if (tokens == NULL) {
        return ERR(ST_NOT_FOUND, "document id %.64s: not registered, or forgotten since", id);
    }
    st = compute(scope, tokens, key_out);
    tokens_release(&tokens);
    TRY(st);
    st = registry_find(memo, scope, key_out, tokens_out);
    return st == ST_NOT_FOUND
               ? ERR(ST_NOT_FOUND, "document id %.64s: not registered, or forgotten since", id)
               : st;
}
