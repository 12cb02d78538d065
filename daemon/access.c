/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zmq.h>

#include "common/conf.h"
#include "common/mem.h"

#define SUFFIX ".conf"

struct access {
    size_t count;
    struct access_entry entries[];
};

struct row {
    char *key;
    char *role;
    char *tenant;
};

static const struct conf_option table[] = {
    {"key", CONF_STRING, NULL, 0, 0, "KEY", "public key, or the path of its file",
     offsetof(struct row, key)},
    {"role", CONF_STRING, "client", 0, 0, "ROLE", "client or admin", offsetof(struct row, role)},
    {"tenant", CONF_STRING, NULL, 0, 0, "NAME", "whose documents; default: the file's name",
     offsetof(struct row, tenant)},
};

static enum status
fill(const char *path, const struct row *row, struct access_entry *entry)
{
    const char *tenant;
    char key[CURVE_KEY_TEXT];

    if (row->key == NULL) {
        return ERR(ST_INVALID, "%s: key is missing", path);
    }
    TRY(curve_read_public(row->key, key));
    (void)zmq_z85_decode(entry->key, key);
    if (strcmp(row->role, "client") != 0 && strcmp(row->role, "admin") != 0) {
        return ERR(ST_INVALID, "%s: role %s: it must be client or admin", path, row->role);
    }
    entry->role = strcmp(row->role, "admin") == 0 ? ACCESS_ADMIN : ACCESS_CLIENT;
    if (row->tenant == NULL && entry->role == ACCESS_ADMIN) {
        return ST_OK;
    }
    tenant = row->tenant == NULL ? entry->name : row->tenant;
    if (!tenant_is_name(tenant)) {
        return ERR(ST_INVALID, "%s: tenant %s: letters, digits, '-', '_' and '.', at most %d", path,
                   tenant, TENANT_NAME_MAX - 1);
    }
    (void)snprintf(entry->tenant, sizeof(entry->tenant), "%s", tenant);
    return ST_OK;
}

static enum status
read_entry(const char *folder, const char *file, struct access_entry *entry)
{
    char path[PATH_MAX];
    struct row row = {0};
    struct conf conf = {.table = table, .count = sizeof(table) / sizeof(table[0]), .options = &row};
    size_t length = strlen(file) - strlen(SUFFIX);
    enum status st;

    if (length == 0 || length >= sizeof(entry->name)) {
        return ERR(ST_INVALID, "%s/%s: a name of 1 to %d bytes before " SUFFIX, folder, file,
                   ACCESS_NAME_MAX - 1);
    }
    (void)snprintf(entry->name, sizeof(entry->name), "%.*s", (int)length, file);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, file);
    st = conf_defaults(conf);
    st = st != ST_OK ? st : conf_read_file(conf, path);
    st = st != ST_OK ? st : fill(path, &row, entry);
    conf_deinit(conf);
    return st;
}

static int
is_entry(const struct dirent *file)
{
    size_t length = strlen(file->d_name);

    return file->d_name[0] != '.' && length > strlen(SUFFIX)
           && strcmp(file->d_name + length - strlen(SUFFIX), SUFFIX) == 0;
}

static enum status
read_all(const char *folder, struct dirent **files, size_t count, struct access *access)
{
    for (size_t i = 0; i < count; i++) {
        struct access_entry *entry = &access->entries[access->count];
        const struct access_entry *other;

        TRY(read_entry(folder, files[i]->d_name, entry));
        other = access_find_key(access, entry->key);
        if (other != NULL) {
            return ERR(ST_INVALID, "%s: %s and %s have the same key", folder, other->name,
                       entry->name);
        }
        access->count++;
    }
    return ST_OK;
}

enum status
access_read(const char *folder, struct access **access_out)
{
    struct dirent **files = NULL;
    int found = scandir(folder, &files, is_entry, alphasort);
    struct access *access = NULL;
    enum status st = ST_OK;

    if (found < 0) {
        return ERR(errno == ENOENT ? ST_NOT_FOUND : ST_SYSTEM, "%s: %s", folder, strerror(errno));
    }
    if (found > ACCESS_KEYS_MAX) {
        st = ERR(ST_INVALID, "%s: %d keys: the limit is %d", folder, found, ACCESS_KEYS_MAX);
    } else {
        access = mem_zalloc(1, sizeof(*access) + (size_t)found * sizeof(access->entries[0]));
        st = access == NULL ? ERR(ST_NO_MEMORY, "no memory for %d keys", found)
                            : read_all(folder, files, (size_t)found, access);
    }
    for (int i = 0; i < found; i++) {
        free(files[i]); /* scandir's */
    }
    free(files);
    if (st != ST_OK) {
        access_destroy(&access);
        return st;
    }
    *access_out = access;
    return ST_OK;
}

void
access_destroy(struct access **access)
{
    MEM_FREE(*access);
}

/* Keys are public: nothing is told by how long this takes. */
const struct access_entry *
access_find_key(const struct access *access, const uint8_t key[CURVE_KEY_BYTES])
{
    for (size_t i = 0; i < access->count; i++) {
        if (memcmp(access->entries[i].key, key, CURVE_KEY_BYTES) == 0) {
            return &access->entries[i];
        }
    }
    return NULL;
}

const struct access_entry *
access_find_name(const struct access *access, const char *name)
{
    for (size_t i = 0; i < access->count; i++) {
        if (strcmp(access->entries[i].name, name) == 0) {
            return &access->entries[i];
        }
    }
    return NULL;
}

size_t
access_count(const struct access *access)
{
    return access->count;
}
