/* SPDX-License-Identifier: Apache-2.0 */
/* Key files and the folder of those who may come: read whole or refused by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zmq.h>

#include "daemon/access.h"
#include "tests/support/check_main.h"

#define KEY_A "Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID" /* of ZeroMQ RFC 26's examples */
#define KEY_B "rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7"

static char dir[32];

static const char *
put(const char *name, const char *text)
{
    static char path[64];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

static void
setup(void)
{
    (void)snprintf(dir, sizeof(dir), "/tmp/kvasir-access-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void
drop(const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(a_folder_of_keys_says_who_may_do_what_for_whom)
{
    struct access *access = NULL;
    uint8_t key[CURVE_KEY_BYTES];
    const struct access_entry *entry;

    setup();
    (void)put("alice.conf", "# of the web shop\nkey = " KEY_A "\ntenant = shop\n");
    (void)put("root.conf", "key = " KEY_B "\nrole = admin\n");
    (void)put("notes.txt", "not a key");
    ck_assert_int_eq(access_read(dir, &access), ST_OK);
    ck_assert_uint_eq(access_count(access), 2);
    (void)zmq_z85_decode(key, KEY_A);
    entry = access_find_key(access, key);
    ck_assert_ptr_nonnull(entry);
    ck_assert_str_eq(entry->name, "alice");
    ck_assert_str_eq(entry->tenant, "shop");
    ck_assert_int_eq(entry->role, ACCESS_CLIENT);
    entry = access_find_name(access, "root");
    ck_assert_int_eq(entry->role, ACCESS_ADMIN);
    ck_assert_str_eq(entry->tenant, ""); /* an operator sees all */
    key[0] ^= 1;
    ck_assert_ptr_null(access_find_key(access, key));
    ck_assert_ptr_null(access_find_name(access, "bob"));
    access_destroy(&access);
    drop("alice.conf");
    drop("root.conf");
    drop("notes.txt");
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(one_wrong_file_refuses_the_folder_and_is_named)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"role = client\n", "bad.conf: key is missing"},
        {"key = " KEY_A "x\n", "bad.conf: key " KEY_A "x: No such file"}, /* no key, so a path */
        {"key = " KEY_B "\nrole = king\n", "role king: it must be client or admin"},
        {"key = " KEY_B "\ntenant = a/b\n", "tenant a/b: letters, digits"},
        {"key = " KEY_A "\n", "alice and bad have the same key"},
        {"key = " KEY_B "\nrank = 1\n", "rank"},
    };
    struct access *access = NULL;

    setup();
    (void)put("alice.conf", "key = " KEY_A "\n");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        (void)put("bad.conf", cases[i].text);
        ck_assert_int_ne(access_read(dir, &access), ST_OK);
        ck_assert_msg(strstr(status_detail(), cases[i].why) != NULL, "%s", status_detail());
        ck_assert_ptr_null(access);
    }
    ck_assert_int_eq(access_read("/nowhere", &access), ST_NOT_FOUND);
    drop("alice.conf");
    drop("bad.conf");
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(a_secret_that_others_may_read_is_refused)
{
    char key[CURVE_KEY_TEXT], again[CURVE_KEY_TEXT], public_key[CURVE_KEY_TEXT], path[64];

    setup();
    (void)snprintf(path, sizeof(path), "%s/me", dir);
    ck_assert_int_eq(curve_write_pair(path, public_key), ST_OK);
    ck_assert_int_eq(curve_read_secret(path, key), ST_OK);
    ck_assert_int_eq(zmq_curve_public(again, key), 0);
    ck_assert_str_eq(again, public_key);
    ck_assert_int_eq(curve_write_pair(path, again), ST_INVALID); /* nothing is overwritten */
    ck_assert_int_eq(chmod(path, 0640), 0);
    ck_assert_int_eq(curve_read_secret(path, key), ST_INVALID);
    ck_assert_msg(strstr(status_detail(), "mode 640") != NULL, "%s", status_detail());
    ck_assert_int_eq(curve_read_public(put("junk", "\n# nothing\nshort\n"), key), ST_INVALID);
    drop("me");
    drop("me.pub");
    drop("junk");
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(a_tenants_salt_is_of_its_name_and_the_clients_own)
{
    uint8_t a[TENANT_SALT_BYTES], b[TENANT_SALT_BYTES];

    tenant_salt("shop", NULL, 0, a);
    tenant_salt("shop", "", 0, b);
    ck_assert_int_eq(memcmp(a, b, sizeof(a)), 0);
    tenant_salt("shop", "x", 1, b);
    ck_assert_int_ne(memcmp(a, b, sizeof(a)), 0);
    tenant_salt("shopx", NULL, 0, a); /* lengths go in: no other split of the same bytes */
    ck_assert_int_ne(memcmp(a, b, sizeof(a)), 0);
    ck_assert(tenant_is_name("shop-1.eu_x"));
    ck_assert(!tenant_is_name("") && !tenant_is_name("a b") && !tenant_is_name("\xc3\xa4"));
}
END_TEST

CHECK_MAIN("access", a_folder_of_keys_says_who_may_do_what_for_whom,
           one_wrong_file_refuses_the_folder_and_is_named, a_secret_that_others_may_read_is_refused,
           a_tenants_salt_is_of_its_name_and_the_clients_own)
