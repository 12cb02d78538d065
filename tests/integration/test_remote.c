/* SPDX-License-Identifier: Apache-2.0 */
/* Over a network: keys say who comes, what it may do, and whose documents it sees.  The network is
 * a socket of this machine, which CURVE does not know from another. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/rpc.h"
#include "proto/curve.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

#define CALLS_MAX 100000 /* until a signal has been read */

static const char *const people[] = {"alice", "bob", "root", "stranger"};

struct net {
    char dir[32];
    char url[64], secret[64], server_key[64], grants[64];
    struct host *host;
};

static const char *
path_in(const struct net *net, const char *name, const char *suffix)
{
    static char paths[4][96];
    static unsigned next;
    char *path = paths[next++ % 4];

    (void)snprintf(path, sizeof(paths[0]), "%s/%s%s", net->dir, name, suffix);
    return path;
}

static void
admit(const struct net *net, const char *name, const char *role)
{
    FILE *file = fopen(path_in(net, name, ".conf"), "w");

    ck_assert_ptr_nonnull(file);
    (void)fprintf(file, "key = %s\nrole = %s\n", path_in(net, name, ".pub"), role);
    ck_assert_int_eq(fclose(file), 0);
}

static void
grant(const struct net *net, const char *name, const char *lines)
{
    FILE *file = fopen(path_in(net, name, ""), "w");

    ck_assert_ptr_nonnull(file);
    (void)fputs(lines, file);
    ck_assert_int_eq(fclose(file), 0);
}

/* With what each tenant is granted, and further options; NULL: none. */
static struct net
net_open_with(const char *grants, const char *const *further)
{
    struct net net = {.dir = "/tmp/kvasir-net-XXXXXX"};
    char key[CURVE_KEY_TEXT];

    ck_assert_ptr_nonnull(mkdtemp(net.dir));
    (void)snprintf(net.url, sizeof(net.url), "ipc://%s/net", net.dir);
    (void)snprintf(net.secret, sizeof(net.secret), "%s/server", net.dir);
    (void)snprintf(net.server_key, sizeof(net.server_key), "%s/server.pub", net.dir);
    ck_assert_int_eq(curve_write_pair(net.secret, key), ST_OK);
    for (size_t i = 0; i < sizeof(people) / sizeof(people[0]); i++) {
        ck_assert_int_eq(curve_write_pair(path_in(&net, people[i], ""), key), ST_OK);
    }
    admit(&net, "alice", "client");
    admit(&net, "bob", "client");
    admit(&net, "root", "admin");
    (void)snprintf(net.grants, sizeof(net.grants), "%s/grants", net.dir);
    ck_assert_int_eq(mkdir(net.grants, 0700), 0);
    grant(&net, "grants/alice.conf", grants);
    grant(&net, "grants/bob.conf", grants);
    const char *args[12] = {"--listen",        net.url, "--curve-secret", net.secret,
                            "--curve-clients", net.dir, "--tenants",      net.grants};

    for (size_t i = 0; further != NULL && further[i] != NULL; i++) {
        args[8 + i] = further[i];
    }
    net.host = host_start(&(struct host_options){.workers = 1, .daemon_args = args});
    return net;
}

static struct net
net_open(void)
{
    return net_open_with("", NULL);
}

static void
net_close(struct net *net)
{
    host_stop(&net->host);
    for (size_t i = 0; i < sizeof(people) / sizeof(people[0]); i++) {
        (void)unlink(path_in(net, people[i], ""));
        (void)unlink(path_in(net, people[i], ".pub"));
        (void)unlink(path_in(net, people[i], ".conf"));
    }
    (void)unlink(path_in(net, "grants/alice", ".conf"));
    (void)unlink(path_in(net, "grants/bob", ".conf"));
    ck_assert_int_eq(rmdir(net->grants), 0);
    (void)unlink(net->secret);
    (void)unlink(net->server_key);
    (void)unlink(path_in(net, "net", ""));
    ck_assert_int_eq(rmdir(net->dir), 0);
}

static struct kvasir *
come_as(const struct net *net, const char *name)
{
    struct kvasir *client = NULL;
    struct kvasir_options options = {
        .endpoint = net->url, .server_key = net->server_key, .secret_key = path_in(net, name, "")};

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    return client;
}

/* Asks over one document; returns how many of its tokens were there already. */
static uint32_t
ask_over(struct kvasir *client, const char *text)
{
    const struct kvasir_document document = {.text = text};
    struct kvasir_request request = {
        .documents = &document, .document_count = 1, .query = "what", .sampling.max_tokens = 2};
    struct kvasir_usage usage;

    ck_assert_msg(kvasir_generate(client, &request, &usage) == KVASIR_OK, "%s",
                  kvasir_error(client));
    return usage.documents[0].tokens_reused;
}

START_TEST(a_tenants_documents_are_its_own)
{
    static const char text[] = "The harbour of Lisbon closes at nine in winter.";
    struct net net = net_open();
    struct kvasir *alice = come_as(&net, "alice"), *bob = come_as(&net, "bob");
    const struct kvasir_document document = {.text = text, .id = "harbour"};
    const struct kvasir_document_info *list;
    struct kvasir_document_info info;
    uint8_t of_alice[KVASIR_KEY_BYTES], of_bob[KVASIR_KEY_BYTES];
    size_t count;

    ck_assert_int_eq(kvasir_register(alice, &document, false, NULL, 0, of_alice, NULL), KVASIR_OK);
    ck_assert_uint_eq(ask_over(alice, text), 0);
    ck_assert_uint_gt(ask_over(alice, text), 0);

    /* The same words of another: nothing is there, nothing can be named, nothing is listed. */
    ck_assert_uint_eq(ask_over(bob, text), 0);
    ck_assert_int_eq(kvasir_get(bob, of_alice, &info), KVASIR_NOT_FOUND);
    ck_assert_int_eq(kvasir_forget(bob, of_alice), KVASIR_NOT_FOUND);
    ck_assert_int_eq(kvasir_list(bob, 0, NULL, &list, &count, NULL), KVASIR_OK);
    ck_assert_uint_eq(count, 0);
    ck_assert_int_eq(kvasir_register(bob, &document, false, NULL, 0, of_bob, NULL), KVASIR_OK);
    ck_assert_int_ne(memcmp(of_alice, of_bob, sizeof(of_bob)), 0);
    ck_assert_int_eq(kvasir_list(bob, 0, NULL, &list, &count, NULL), KVASIR_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(memcmp(list[0].key, of_bob, sizeof(of_bob)), 0);
    ck_assert_int_eq(kvasir_get(alice, of_alice, &info), KVASIR_OK);
    ck_assert_str_eq(info.state, "sealed");
    kvasir_close(&alice);
    kvasir_close(&bob);
    net_close(&net);
}
END_TEST

/* What a tenant learns of a document by asking whether it is there. */
static const char *
probe(struct kvasir *client, const uint8_t *key)
{
    const struct kvasir_document document = {.key = key, .corpus = "law"};
    const struct kvasir_document_usage *usage;
    size_t count;

    ck_assert_msg(kvasir_probe(client, &document, 1, NULL, 0, &usage, &count) == KVASIR_OK, "%s",
                  kvasir_error(client));
    ck_assert_uint_eq(count, 1);
    ck_assert((usage[0].tokens_reused > 0) == (strcmp(usage[0].miss_reason, "hit") == 0));
    return usage[0].miss_reason;
}

static void
ask_law(struct kvasir *client, const uint8_t *key)
{
    const struct kvasir_document document = {.key = key, .corpus = "law"};
    struct kvasir_request request = {
        .documents = &document, .document_count = 1, .query = "what", .sampling.max_tokens = 2};

    ck_assert_msg(kvasir_generate(client, &request, NULL) == KVASIR_OK, "%s", kvasir_error(client));
}

START_TEST(whether_others_have_used_a_shared_document_is_not_told)
{
    static const char text[] = "Who finds a lost purse brings it to the mayor.";
    static const char *const args[] = {"--isolation", "constant-time", NULL};
    struct net net = net_open_with("corpora = law\ncurates = law\n", args);
    struct kvasir *alice = come_as(&net, "alice"), *bob = come_as(&net, "bob");
    const struct kvasir_document document = {.text = text, .corpus = "law"};
    uint8_t key[KVASIR_KEY_BYTES];

    ck_assert_msg(kvasir_register(alice, &document, false, NULL, 0, key, NULL) == KVASIR_OK, "%s",
                  kvasir_error(alice));
    ck_assert_str_eq(probe(bob, key), "cold");
    ask_law(alice, key);
    ck_assert_str_eq(probe(alice, key), "hit");
    ck_assert_str_eq(probe(bob, key), "cold"); /* though it is there */
    ask_law(bob, key);
    ck_assert_str_eq(probe(bob, key), "hit");
    ck_assert_uint_eq(host_counter(net.host, "builds_sealed"), 1);
    kvasir_close(&alice);
    kvasir_close(&bob);
    net_close(&net);
}
END_TEST

START_TEST(who_is_not_known_is_not_let_in)
{
    struct net net = net_open();
    struct kvasir *stranger = come_as(&net, "stranger"), *naked = NULL;
    struct kvasir_options options = {.endpoint = net.url};
    struct kvasir_health health;

    ck_assert_int_eq(kvasir_health(stranger, &health), KVASIR_UNAUTHENTICATED);
    ck_assert_int_eq(kvasir_open(&options, &naked), KVASIR_OK);
    ck_assert_int_eq(kvasir_health(naked, &health), KVASIR_UNAVAILABLE); /* speaks without CURVE */
    ck_assert_msg(strstr(kvasir_error(naked), "wants keys") != NULL, "%s", kvasir_error(naked));
    kvasir_close(&stranger);
    kvasir_close(&naked);
    net_close(&net);
}
END_TEST

static enum rpc_code
ask_for_workers(const struct net *net, const char *name)
{
    struct rpc *rpc = NULL;
    const ProtobufCMessage *reply;

    ck_assert_int_eq(rpc_open(net->url, &rpc), ST_OK);
    ck_assert_int_eq(rpc_use_keys(rpc, net->server_key, path_in(net, name, "")), ST_OK);
    enum rpc_code code = rpc_call(rpc, &(struct rpc_call){.method = METHOD_WORKERS}, &reply);

    rpc_close(&rpc);
    return code;
}

START_TEST(operators_methods_need_a_key_of_that_role)
{
    struct net net = net_open();

    ck_assert_int_eq(ask_for_workers(&net, "alice"), RPC_PERMISSION_DENIED);
    ck_assert_int_eq(ask_for_workers(&net, "root"), RPC_OK);
    net_close(&net);
}
END_TEST

START_TEST(a_key_that_was_taken_back_is_refused_over_its_open_connection)
{
    struct net net = net_open();
    struct kvasir *alice = come_as(&net, "alice"), *bob = come_as(&net, "bob");
    enum kvasir_code code = KVASIR_OK;
    struct kvasir_health health;

    ck_assert_int_eq(kvasir_health(alice, &health), KVASIR_OK);
    ck_assert_int_eq(unlink(path_in(&net, "alice", ".conf")), 0);
    process_signal(host_daemon(net.host), SIGHUP);
    for (int i = 0; i < CALLS_MAX && code == KVASIR_OK; i++) {
        code = kvasir_health(alice, &health);
    }
    ck_assert_int_eq(code, KVASIR_UNAUTHENTICATED);
    ck_assert_int_eq(kvasir_health(bob, &health), KVASIR_OK);
    kvasir_close(&alice);
    kvasir_close(&bob);
    net_close(&net);
}
END_TEST

CHECK_MAIN("remote", a_tenants_documents_are_its_own,
           whether_others_have_used_a_shared_document_is_not_told, who_is_not_known_is_not_let_in,
           operators_methods_need_a_key_of_that_role,
           a_key_that_was_taken_back_is_refused_over_its_open_connection)
