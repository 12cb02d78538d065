/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/keys.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "common/mem.h"

#define LINE_BYTES_MAX 1024
#define HASH_PREFIX    "sha256:"

struct key {
    uint8_t hash[SHA256_DIGEST_LENGTH];
    char tenant[KEYS_TENANT_MAX];
};

struct keys {
    size_t count;
    struct key keys[KEYS_MAX];
};

static enum status
read_hash(const char *text, uint8_t hash_out[SHA256_DIGEST_LENGTH])
{
    size_t length = 0;

    if (strlen(text) != 2 * SHA256_DIGEST_LENGTH
        || OPENSSL_hexstr2buf_ex(hash_out, SHA256_DIGEST_LENGTH, &length, text, '\0') != 1) {
        return ERR(ST_INVALID, "a sha256: key must have %d hex digits", 2 * SHA256_DIGEST_LENGTH);
    }
    return ST_OK;
}

static enum status
add(struct keys *keys, const char *tenant, const char *key)
{
    struct key *row = &keys->keys[keys->count];

    if (keys->count == KEYS_MAX) {
        return ERR(ST_INVALID, "more than %d keys", KEYS_MAX);
    }
    if (strlen(tenant) >= KEYS_TENANT_MAX) {
        return ERR(ST_INVALID, "tenant of %zu bytes: the limit is %d", strlen(tenant),
                   KEYS_TENANT_MAX - 1);
    }
    if (key[0] == '\0' || strlen(key) > KEYS_KEY_MAX) {
        return ERR(ST_INVALID, "key of %zu bytes: it must have 1 to %d", strlen(key), KEYS_KEY_MAX);
    }
    if (strncmp(key, HASH_PREFIX, strlen(HASH_PREFIX)) == 0) {
        TRY(read_hash(key + strlen(HASH_PREFIX), row->hash));
    } else {
        (void)SHA256((const uint8_t *)key, strlen(key), row->hash);
    }
    (void)snprintf(row->tenant, sizeof(row->tenant), "%s", tenant);
    keys->count++;
    return ST_OK;
}

/* Cuts the white space around a text. */
static char *
trim(char *text)
{
    char *end = text + strlen(text);

    while (end > text && isspace((unsigned char)end[-1])) {
        *--end = '\0';
    }
    return text + strspn(text, " \t");
}

static bool
is_name(const char *text)
{
    for (; *text != '\0'; text++) {
        if (!isalnum((unsigned char)*text) && strchr("-_.", *text) == NULL) {
            return false;
        }
    }
    return true;
}

static enum status
read_line(struct keys *keys, char *line)
{
    char *text = trim(line);
    char *separator = strchr(text, '=');

    if (text[0] == '\0' || text[0] == '#') {
        return ST_OK;
    }
    if (separator == NULL) {
        return ERR(ST_INVALID, "a line must be TENANT = KEY");
    }
    *separator = '\0';
    text = trim(text);
    if (text[0] == '\0') {
        return ERR(ST_INVALID, "a key without its tenant");
    }
    if (!is_name(text)) {
        return ERR(ST_INVALID, "tenant %.64s: letters, digits, '-', '_' and '.'", text);
    }
    return add(keys, text, trim(separator + 1));
}

static enum status
read_lines(struct keys *keys, FILE *file, const char *path)
{
    char line[LINE_BYTES_MAX];

    for (unsigned number = 1; fgets(line, sizeof(line), file) != NULL; number++) {
        enum status st = strlen(line) == sizeof(line) - 1
                             ? ERR(ST_INVALID, "a line of more than %d bytes", LINE_BYTES_MAX - 2)
                             : read_line(keys, line);

        OPENSSL_cleanse(line, sizeof(line));
        if (st != ST_OK) {
            return ERR(st, "%s:%u: %s", path, number, status_detail());
        }
    }
    return ferror(file) ? ERR(ST_SYSTEM, "%s: %s", path, strerror(errno)) : ST_OK;
}

enum status
keys_read(const char *path, struct keys **keys_out)
{
    FILE *file = fopen(path, "re");
    struct keys *keys;
    enum status st;

    if (file == NULL) {
        return ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    }
    keys = mem_zalloc(1, sizeof(*keys));
    st = keys == NULL ? ERR(ST_NO_MEMORY, "no memory for keys") : read_lines(keys, file, path);
    (void)fclose(file);
    if (st == ST_OK && keys->count == 0) {
        st = ERR(ST_INVALID, "%s: no key in it", path);
    }
    if (st != ST_OK) {
        keys_destroy(&keys);
        return st;
    }
    *keys_out = keys;
    return ST_OK;
}

enum status
keys_new_single(const char *key, struct keys **keys_out)
{
    struct keys *keys = mem_zalloc(1, sizeof(*keys));
    enum status st = keys == NULL ? ERR(ST_NO_MEMORY, "no memory for keys") : add(keys, "", key);

    if (st != ST_OK) {
        keys_destroy(&keys);
        return st;
    }
    *keys_out = keys;
    return ST_OK;
}

void
keys_destroy(struct keys **keys)
{
    MEM_FREE(*keys);
}

/* Every row is looked at, whatever the earlier ones said. */
bool
keys_find(const struct keys *keys, const char *key, char tenant_out[KEYS_TENANT_MAX])
{
    uint8_t hash[SHA256_DIGEST_LENGTH];
    const struct key *found = NULL;

    if (key == NULL) {
        return false;
    }
    (void)SHA256((const uint8_t *)key, strlen(key), hash);
    for (size_t i = 0; i < keys->count; i++) {
        if (CRYPTO_memcmp(hash, keys->keys[i].hash, sizeof(hash)) == 0) {
            found = &keys->keys[i];
        }
    }
    if (found != NULL) {
        memcpy(tenant_out, found->tenant, KEYS_TENANT_MAX);
    }
    return found != NULL;
}
