/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/calls.h"

#include <string.h>

#include "common/checksum.h"
#include "common/mem.h"

struct calls {
    struct htab ids;
    struct htab names;
    struct htab keys; /* of those that have one */
    uint64_t last_id;
    uint32_t lost_count;
};

struct call_name {
    const struct address *address;
    uint64_t client_id;
};

static bool
id_equal(const struct htab_node *node, const void *key)
{
    return HTAB_ENTRY(node, const struct call, by_id)->id == *(const uint64_t *)key;
}

static bool
address_equal(const struct address *a, const struct address *b)
{
    return a->socket == b->socket && a->identity_length == b->identity_length
           && memcmp(a->identity, b->identity, a->identity_length) == 0;
}

static bool
name_equal(const struct htab_node *node, const void *key)
{
    const struct call *call = HTAB_ENTRY(node, const struct call, by_name);
    const struct call_name *name = key;

    return call->client_id == name->client_id && address_equal(&call->address, name->address);
}

struct retry_key {
    const char *tenant; /* within which keys count */
    const void *bytes;
    size_t length;
};

static bool
key_equal(const struct htab_node *node, const void *key)
{
    const struct call *call = HTAB_ENTRY(node, const struct call, by_key);
    const struct retry_key *wanted = key;

    return call->retry_key_length == wanted->length && strcmp(call->tenant, wanted->tenant) == 0
           && memcmp(call->retry_key, wanted->bytes, wanted->length) == 0;
}

static uint64_t
name_hash(const struct call_name *name)
{
    uint64_t hash = htab_mix(name->client_id + name->address->socket);

    for (uint8_t i = 0; i < name->address->identity_length; i++) {
        hash = htab_mix(hash ^ name->address->identity[i]);
    }
    return hash;
}

enum status
calls_new(struct calls **calls_out)
{
    struct calls *calls = mem_zalloc(1, sizeof(*calls));

    if (calls == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the calls");
    }
    if (htab_init(&calls->ids, id_equal) != ST_OK || htab_init(&calls->names, name_equal) != ST_OK
        || htab_init(&calls->keys, key_equal) != ST_OK) {
        calls_destroy(&calls);
        return ST_NO_MEMORY;
    }
    *calls_out = calls;
    return ST_OK;
}

struct call *
calls_any(const struct calls *calls)
{
    struct htab_node *node = htab_next(&calls->ids, NULL);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct call, by_id);
}

void
calls_destroy(struct calls **calls)
{
    struct call *call;

    if (*calls == NULL) {
        return;
    }
    while ((*calls)->ids.bucket_count > 0 && (call = calls_any(*calls)) != NULL) {
        calls_close(*calls, call);
    }
    htab_deinit(&(*calls)->ids);
    htab_deinit(&(*calls)->names);
    htab_deinit(&(*calls)->keys);
    MEM_FREE(*calls);
}

enum status
calls_open(struct calls *calls, const struct address *address, uint64_t client_id,
           struct call **call_out)
{
    struct call_name name = {.address = address, .client_id = client_id};
    struct call *call;

    if (calls_find_of(calls, address, client_id) != NULL) {
        return ERR(ST_INVALID, "request_id %llu names an open call of this client",
                   (unsigned long long)client_id);
    }
    if (calls->ids.count >= CALLS_MAX) {
        return ERR(ST_NO_MEMORY, "%zu calls are open: the limit is %d", calls->ids.count,
                   CALLS_MAX);
    }
    call = mem_zalloc(1, sizeof(*call));
    if (call == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a call");
    }
    call->id = calls->last_id + 1;
    call->address = *address;
    call->client_id = client_id;
    if (htab_insert(&calls->ids, htab_mix(call->id), &call->by_id) != ST_OK) {
        mem_free(call);
        return ST_NO_MEMORY;
    }
    if (htab_insert(&calls->names, name_hash(&name), &call->by_name) != ST_OK) {
        htab_remove(&calls->ids, &call->by_id);
        mem_free(call);
        return ST_NO_MEMORY;
    }
    calls->last_id++;
    *call_out = call;
    return ST_OK;
}

void
calls_close(struct calls *calls, struct call *call)
{
    calls->lost_count -= call->is_lost;
    htab_remove(&calls->ids, &call->by_id);
    htab_remove(&calls->names, &call->by_name);
    if (call->retry_key_length > 0) {
        htab_remove(&calls->keys, &call->by_key);
    }
    mem_free(call);
}

struct call *
calls_find(const struct calls *calls, uint64_t id)
{
    struct htab_node *node = htab_find(&calls->ids, htab_mix(id), &id);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct call, by_id);
}

struct call *
calls_find_of(const struct calls *calls, const struct address *address, uint64_t client_id)
{
    struct call_name name = {.address = address, .client_id = client_id};
    struct htab_node *node = htab_find(&calls->names, name_hash(&name), &name);

    return node == NULL ? NULL : HTAB_ENTRY(node, struct call, by_name);
}

static void
mark(struct calls *calls, struct call *call)
{
    calls->lost_count += !call->is_lost;
    call->is_lost = true;
}

uint32_t
calls_lose_connection(struct calls *calls, enum router_socket socket, int connection)
{
    uint32_t count = 0;

    for (struct htab_node *node = htab_next(&calls->ids, NULL); node != NULL;
         node = htab_next(&calls->ids, node)) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        if (call->address.socket == socket && call->address.connection == connection) {
            mark(calls, call);
            count++;
        }
    }
    return count;
}

uint32_t
calls_lose_client(struct calls *calls, const struct address *address)
{
    uint32_t count = 0;

    for (struct htab_node *node = htab_next(&calls->ids, NULL); node != NULL;
         node = htab_next(&calls->ids, node)) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        if (address_equal(&call->address, address)) {
            mark(calls, call);
            count++;
        }
    }
    return count;
}

struct call *
calls_next_lost(const struct calls *calls)
{
    if (calls->lost_count == 0) {
        return NULL;
    }
    for (struct htab_node *node = htab_next(&calls->ids, NULL); node != NULL;
         node = htab_next(&calls->ids, node)) {
        struct call *call = HTAB_ENTRY(node, struct call, by_id);

        if (call->is_lost && !call->is_in_hand) {
            return call;
        }
    }
    return NULL;
}

uint32_t
calls_count(const struct calls *calls)
{
    return (uint32_t)calls->ids.count;
}

enum status
calls_set_retry_key(struct calls *calls, struct call *call, const void *key, size_t length)
{
    struct retry_key name = {call->tenant, key, length};
    uint64_t hash = checksum64(0, key, length);
    struct htab_node *node;

    if (length == 0 || length > CALLS_RETRY_KEY_MAX) {
        return ERR(ST_INVALID, "retry_key of %zu bytes: it must have 1 to %d", length,
                   CALLS_RETRY_KEY_MAX);
    }
    node = htab_find(&calls->keys, hash, &name);
    if (node != NULL) {
        struct call *earlier = HTAB_ENTRY(node, struct call, by_key);

        htab_remove(&calls->keys, node);
        earlier->retry_key_length = 0;
        mark(calls, earlier);
    }
    TRY(htab_insert(&calls->keys, hash, &call->by_key));
    memcpy(call->retry_key, key, length);
    call->retry_key_length = (uint8_t)length;
    return ST_OK;
}
