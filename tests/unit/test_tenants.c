/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of tenants say, and what is wrong with some. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/tenants.h"
#include "tests/support/check_main.h"

static char dir[] = "/tmp/kvasir-tenants-XXXXXX";

static void
write_file(const char *name, const char *text)
{
    char path[128];
    FILE *file;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void
remove_file(const char *name)
{
    char path[128];

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    ck_assert_int_eq(unlink(path), 0);
}

START_TEST(a_file_a_tenant_says_its_share_and_its_corpora)
{
    struct tenants *tenants = NULL;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    write_file("acme.conf", "weight = 3\ncorpora = law, handbook\ncurates = handbook\n");
    write_file("zeta.conf", "");
    ck_assert_int_eq(tenants_read(dir, &tenants), ST_OK);
    ck_assert_uint_eq(tenants_count(tenants), 2);
    struct tenants_entry acme = tenants_find(tenants, "acme");

    ck_assert_uint_eq(acme.weight, 3);
    ck_assert(tenant_is_granted(&acme.grant, acme.grant.corpora, "law"));
    ck_assert(tenant_is_granted(&acme.grant, acme.grant.corpora, "handbook"));
    ck_assert(!tenant_is_granted(&acme.grant, acme.grant.corpora, "hand"));
    ck_assert(!tenant_is_granted(&acme.grant, acme.grant.corpora, "law,handbook"));
    ck_assert(!tenant_is_granted(&acme.grant, acme.grant.corpora, ""));
    ck_assert(!tenant_is_granted(&acme.grant, acme.grant.curates, "law"));
    struct tenants_entry stranger = tenants_find(tenants, "stranger");

    ck_assert_uint_eq(stranger.weight, 1);
    ck_assert(!tenant_is_granted(&stranger.grant, stranger.grant.corpora, "law"));
    struct tenants_entry nobody = tenants_find(tenants, "");

    ck_assert(tenant_is_granted(&nobody.grant, nobody.grant.corpora, "law"));
    tenants_destroy(&tenants);
    remove_file("acme.conf");
    remove_file("zeta.conf");
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(what_is_wrong_is_refused_by_name)
{
    static const char *const wrong[] = {"weight = 0\n", "weight = 1001\n", "corpora = a/b\n",
                                        "shares = 1\n"};
    struct tenants *tenants = NULL;

    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        write_file("acme.conf", wrong[i]);
        ck_assert_int_ne(tenants_read(dir, &tenants), ST_OK);
        ck_assert_ptr_nonnull(strstr(status_detail(), "acme.conf"));
        ck_assert_ptr_null(tenants);
    }
    remove_file("acme.conf");
    ck_assert_int_eq(rmdir(dir), 0);
    ck_assert_int_eq(tenants_read("/nowhere", &tenants), ST_NOT_FOUND);
    ck_assert_int_eq(tenants_read(NULL, &tenants), ST_OK);
    ck_assert_uint_eq(tenants_count(tenants), 0);
    tenants_destroy(&tenants);
}
END_TEST

CHECK_MAIN("tenants", a_file_a_tenant_says_its_share_and_its_corpora,
           what_is_wrong_is_refused_by_name)
