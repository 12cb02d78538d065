/* SPDX-License-Identifier: Apache-2.0 */
#include "kvpool/dockey.h"

#include <string.h>

#include <openssl/evp.h>

#define IDS_PER_CHUNK 256 /* token ids brought to little-endian at a time; 1 KiB of stack */

static const char domain_pool[] = "kvasir-pool";
static const char domain_document[] = "kvasir-document";
static const char domain_at[] = "kvasir-document-at";
static const char domain_turn[] = "kvasir-turn";
static const char domain_behind[] = "kvasir-document-behind";

/* A hash in the making; once something failed, the rest is skipped and `finish` says so. */
struct hasher {
    EVP_MD_CTX *context;
    int is_good;
};

static void
put_le32(uint8_t *out, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        out[i] = (uint8_t)(value >> (8 * i));
    }
}

static void
add_bytes(struct hasher *hasher, const void *bytes, size_t length)
{
    hasher->is_good = hasher->is_good && EVP_DigestUpdate(hasher->context, bytes, length) == 1;
}

static void
add_length(struct hasher *hasher, uint64_t length)
{
    uint8_t prefix[8];

    put_le32(prefix, (uint32_t)length);
    put_le32(prefix + 4, (uint32_t)(length >> 32));
    add_bytes(hasher, prefix, sizeof(prefix));
}

static void
add_field(struct hasher *hasher, const void *bytes, size_t length)
{
    add_length(hasher, length);
    add_bytes(hasher, bytes, length);
}

static void
add_u32(struct hasher *hasher, uint32_t value)
{
    uint8_t bytes[4];

    put_le32(bytes, value);
    add_field(hasher, bytes, sizeof(bytes));
}

static void
add_ids(struct hasher *hasher, const uint32_t *ids, size_t id_count)
{
    uint8_t chunk[4 * IDS_PER_CHUNK];

    add_length(hasher, 4 * (uint64_t)id_count);
    while (id_count > 0) {
        size_t n = id_count < IDS_PER_CHUNK ? id_count : IDS_PER_CHUNK;

        for (size_t i = 0; i < n; i++) {
            put_le32(&chunk[4 * i], ids[i]);
        }
        add_bytes(hasher, chunk, 4 * n);
        ids += n;
        id_count -= n;
    }
}

static struct hasher
start(const char *domain)
{
    struct hasher hasher = {.context = EVP_MD_CTX_new()};

    hasher.is_good =
        hasher.context != NULL && EVP_DigestInit_ex(hasher.context, EVP_sha256(), NULL) == 1;
    add_field(&hasher, domain, strlen(domain));
    return hasher;
}

static enum status
finish(struct hasher *hasher, uint8_t hash_out[32])
{
    uint8_t hash[EVP_MAX_MD_SIZE];
    unsigned length = 0;

    hasher->is_good =
        hasher->is_good && EVP_DigestFinal_ex(hasher->context, hash, &length) == 1 && length == 32;
    EVP_MD_CTX_free(hasher->context);
    hasher->context = NULL;
    if (!hasher->is_good) {
        return ERR(ST_NO_MEMORY, "SHA-256: libcrypto gave up");
    }
    memcpy(hash_out, hash, 32);
    return ST_OK;
}

enum status
pool_fingerprint(const struct pool_identity *identity, uint8_t fingerprint_out[32])
{
    struct hasher hasher = start(domain_pool);

    add_field(&hasher, identity->checkpoint, sizeof(identity->checkpoint));
    add_field(&hasher, identity->tokenizer, sizeof(identity->tokenizer));
    add_u32(&hasher, identity->kv_type);
    add_u32(&hasher, identity->kv_layout);
    add_u32(&hasher, identity->block_tokens);
    return finish(&hasher, fingerprint_out);
}

enum status
dockey_compute(const uint8_t fingerprint[32], const void *salt, size_t salt_length,
               const uint32_t *ids, size_t id_count, struct dockey *key_out)
{
    struct hasher hasher = start(domain_document);

    add_field(&hasher, fingerprint, 32);
    add_field(&hasher, salt, salt_length);
    add_ids(&hasher, ids, id_count);
    return finish(&hasher, key_out->bytes);
}

enum status
dockey_at(const struct dockey *document, uint64_t offset, struct dockey *key_out)
{
    struct hasher hasher = start(domain_at);
    uint8_t bytes[8];

    put_le32(bytes, (uint32_t)offset);
    put_le32(bytes + 4, (uint32_t)(offset >> 32));
    add_field(&hasher, document->bytes, DOCKEY_BYTES);
    add_field(&hasher, bytes, sizeof(bytes));
    return finish(&hasher, key_out->bytes);
}

enum status
dockey_behind(const struct dockey *before, const struct dockey *document, struct dockey *key_out)
{
    struct hasher hasher = start(domain_behind);

    add_field(&hasher, before->bytes, DOCKEY_BYTES);
    add_field(&hasher, document->bytes, DOCKEY_BYTES);
    return finish(&hasher, key_out->bytes);
}

enum status
dockey_turn(const struct dockey *before, const uint32_t *ids, size_t id_count,
            struct dockey *key_out)
{
    struct hasher hasher = start(domain_turn);

    add_field(&hasher, before->bytes, DOCKEY_BYTES);
    add_ids(&hasher, ids, id_count);
    return finish(&hasher, key_out->bytes);
}

void
dockey_hex(const struct dockey *key, size_t bytes, char *out)
{
    static const char digits[] = "0123456789abcdef";

    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = digits[key->bytes[i] >> 4];
        out[2 * i + 1] = digits[key->bytes[i] & 15];
    }
    out[2 * bytes] = '\0';
}
