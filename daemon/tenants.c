/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tenants.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "common/conf.h"
#include "common/mem.h"
#include "daemon/conf_folder.h"
#include "daemon/sched.h"

struct tenants {
    size_t count;
    struct tenants_entry entries[]; /* by name */
};

struct row {
    uint64_t weight;
    char *corpora, *curates;
};

static const struct conf_option table[] = {
    {"weight", CONF_U64, "1", 1, SCHED_WEIGHT_MAX, "N", "of its share",
     offsetof(struct row, weight)},
    {"corpora", CONF_STRING, NULL, 0, 0, "NAME[,NAME...]", "shared corpora that it may cite",
     offsetof(struct row, corpora)},
    {"curates", CONF_STRING, NULL, 0, 0, "NAME[,NAME...]",
     "shared corpora that it may register documents in", offsetof(struct row, curates)},
};

/* "a, b" becomes ",a,b,", so that a name is found with its commas. */
static enum status
read_list(const char *path, const char *key, const char *text, char out[TENANT_CORPORA_BYTES])
{
    size_t length = 0;

    out[0] = '\0';
    while (text != NULL && *text != '\0') {
        size_t space = strspn(text, ", \t");
        size_t word = strcspn(text += space, ", \t");
        char name[TENANT_NAME_MAX];

        if (word == 0) {
            break;
        }
        (void)snprintf(name, sizeof(name), "%.*s", (int)word, text);
        if (word >= sizeof(name) || !tenant_is_name(name)) {
            return ERR(ST_INVALID, "%s: %s: %.64s: letters, digits, '-', '_' and '.', at most %d",
                       path, key, text, TENANT_NAME_MAX - 1);
        }
        if (length + word + 3 > TENANT_CORPORA_BYTES) {
            return ERR(ST_INVALID, "%s: %s: more than %d bytes of names", path, key,
                       TENANT_CORPORA_BYTES);
        }
        length += (size_t)snprintf(out + length, TENANT_CORPORA_BYTES - length, "%s%s,",
                                   length == 0 ? "," : "", name);
        text += word;
    }
    return ST_OK;
}

static enum status
take_file(void *arg, const char *path, const char *name)
{
    struct tenants *tenants = arg;
    struct tenants_entry *entry = &tenants->entries[tenants->count];
    struct row row = {0};
    struct conf conf = {.table = table, .count = sizeof(table) / sizeof(table[0]), .options = &row};
    enum status st;

    if (!tenant_is_name(name)) {
        return ERR(ST_INVALID,
                   "%s: a tenant's name has letters, digits, '-', '_' and '.', at most %d", path,
                   TENANT_NAME_MAX - 1);
    }
    (void)snprintf(entry->name, sizeof(entry->name), "%s", name);
    st = conf_defaults(conf);
    st = st != ST_OK ? st : conf_read_file(conf, path);
    st = st != ST_OK ? st : read_list(path, "corpora", row.corpora, entry->grant.corpora);
    st = st != ST_OK ? st : read_list(path, "curates", row.curates, entry->grant.curates);
    entry->weight = (uint32_t)row.weight;
    tenants->count += st == ST_OK;
    conf_deinit(conf);
    return st;
}

enum status
tenants_read(const char *folder, struct tenants **tenants_out)
{
    struct tenants *tenants =
        mem_zalloc(1, sizeof(*tenants) + TENANTS_MAX * sizeof(tenants->entries[0]));
    enum status st;

    if (tenants == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for tenants");
    }
    st = folder == NULL ? ST_OK : conf_folder_each(folder, TENANTS_MAX, take_file, tenants);
    if (st != ST_OK) {
        tenants_destroy(&tenants);
        return st;
    }
    *tenants_out = tenants;
    return ST_OK;
}

void
tenants_destroy(struct tenants **tenants)
{
    MEM_FREE(*tenants);
}

size_t
tenants_count(const struct tenants *tenants)
{
    return tenants->count;
}

struct tenants_entry
tenants_find(const struct tenants *tenants, const char *name)
{
    struct tenants_entry nobody = {.weight = 1, .grant = {.is_all = name[0] == '\0'}};

    for (size_t i = 0; name[0] != '\0' && i < tenants->count; i++) {
        if (strcmp(tenants->entries[i].name, name) == 0) {
            return tenants->entries[i];
        }
    }
    return nobody;
}

bool
tenant_is_granted(const struct tenant_grant *grant, const char *list, const char *corpus)
{
    char wanted[TENANT_NAME_MAX + 2];

    if (!tenant_is_name(corpus)) {
        return false;
    }
    (void)snprintf(wanted, sizeof(wanted), ",%s,", corpus);
    return grant->is_all || strstr(list, wanted) != NULL;
}

enum status
tenant_open_corpus(const struct tenant_grant *grant, const char *corpus, bool is_to_register,
                   uint8_t salt_out[TENANT_SALT_BYTES])
{
    if (grant == NULL
        || !tenant_is_granted(grant, is_to_register ? grant->curates : grant->corpora, corpus)) {
        return ERR(ST_NOT_FOUND, "corpus %.64s: there is none, or it is not %s", corpus,
                   is_to_register ? "curated by this tenant" : "granted");
    }
    tenant_corpus_salt(corpus, salt_out);
    return ST_OK;
}
