/* SPDX-License-Identifier: Apache-2.0 */
/* What one worker built, another reads: both map the same arena. */
#include "tests/support/asking.h"
#include "tests/support/check_main.h"

START_TEST(a_document_built_by_one_worker_is_read_by_the_other)
{
    struct host *host = host_start(&(struct host_options){.workers = 2});
    const struct asking_doc docs[] = {{40, 1}, {64, 2}, {7, 3}};
    struct question question = {.docs = docs, .doc_count = 3};
    pid_t pids[2] = {process_pid(host_worker(host, 0)), process_pid(host_worker(host, 1))};
    struct answer built, read;

    host_drain(host, host_worker_by_pid(host, pids[1]).worker, false);
    ask_ok(host, &question, &built);
    ck_assert_uint_eq(built.tokens_built, 111);
    ck_assert_uint_eq(host_worker_by_pid(host, pids[0]).docs_built, 3);

    host_drain(host, host_worker_by_pid(host, pids[1]).worker, true);
    host_drain(host, host_worker_by_pid(host, pids[0]).worker, false);
    ask_ok(host, &question, &read);
    ck_assert_uint_eq(read.tokens_built, 0);
    ck_assert_uint_eq(read.tokens_reused, 111);
    struct host_worker_info reader = host_worker_by_pid(host, pids[1]);
    ck_assert_uint_eq(read.worker, reader.worker);
    ck_assert_uint_eq(reader.docs_built, 0);
    ck_assert_uint_eq(reader.docs_read, 3);
    ck_assert_uint_eq(reader.docs_read_foreign, 3);
    answer_assert_same(&built, &read);
    host_stop(&host);
}
END_TEST

START_TEST(documents_outlive_the_worker_that_built_them)
{
    struct host *host = host_start(&(struct host_options){.workers = 1});
    const struct asking_doc docs[] = {{40, 1}, {64, 2}};
    struct question question = {.docs = docs, .doc_count = 2};
    struct answer before, after;

    ask_ok(host, &question, &before);
    host_kill_worker(host, 0);
    host_wait_exactly(host, "workers_ready", 0);
    (void)host_add_worker(host);
    ask_ok(host, &question, &after);
    ck_assert_uint_eq(after.tokens_built, 0);
    ck_assert_uint_eq(after.docs_hit, 2);
    answer_assert_same(&before, &after);
    host_stop(&host);
}
END_TEST

CHECK_MAIN("two_workers", a_document_built_by_one_worker_is_read_by_the_other,
           documents_outlive_the_worker_that_built_them)
