/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/access.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <zmq.h>

#include "common/conf.h"
#include "common/mem.h"
#include "daemon/conf_folder.h"

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
    if (curve_read_public(row->key, key) != ST_OK) {
        return ERR(ST_INVALID, "%s: key %s", path, status_detail());
    }
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
read_entry(const char *path, const char *name, struct access_entry *entry)
{
    struct row row = {0};
    struct conf conf = {.table = table, .count = sizeof(table) / sizeof(table[0]), .options = &row};
    enum status st;

    if (strlen(name) >= sizeof(entry->name)) {
        return ERR(ST_INVALID, "%s: a name of 1 to %d bytes before .conf", path,
                   ACCESS_NAME_MAX - 1);
    }
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    st = conf_defaults(conf);
    st = st != ST_OK ? st : conf_read_file(conf, path);
    st = st != ST_OK ? st : fill(path, &row, entry);
    conf_deinit(conf);
    return st;
}

static enum status
take_file(void *arg, const char *path, const char *name)
{
    struct access *access = arg;
    struct access_entry *entry = &access->entries[access->count];
    const struct access_entry *other;

    TRY(read_entry(path, name, entry));
    other = access_find_key(access, entry->key);
    if (other != NULL) {
        return ERR(ST_INVALID, "%s: %s and %s have the same key", path, other->name, entry->name);
    }
    access->count++;
    return ST_OK;
}

enum status
access_read(const char *folder, struct access **access_out)
{
    struct access *access =
        mem_zalloc(1, sizeof(*access) + ACCESS_KEYS_MAX * sizeof(access->entries[0]));
    enum status st = access == NULL ? ERR(ST_NO_MEMORY, "no memory for keys")
                                    : conf_folder_each(folder, ACCESS_KEYS_MAX, take_file, access);

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
