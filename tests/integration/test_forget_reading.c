/* SPDX-License-Identifier: Apache-2.0 */
/* Documents.Forget while messages that came before it are still in a tokeniser thread, which waits
 * at a failpoint until it is let go. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/rpc.h"
#include "proto/endpoints.h"
#include "tests/support/asking.h"
#include "tests/support/check_main.h"
#include "tests/support/kv_memory.h"

#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"

static char folder[] = "/tmp/kvasir-fifo.XXXXXX";
static char fifo[64], fifo_env[96], places_env[96];

/* Whose tokeniser threads wait at the `time`-th message of a method. */
static struct host *
start(enum method_id method, int time)
{
    static const char *const args[] = {"--check-pool", "--tokenizer-threads", "2", NULL};
    static const char *const env[] = {fifo_env, places_env, NULL};

    memcpy(folder + strlen(folder) - 6, "XXXXXX", 6);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    (void)snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
    ck_assert_int_eq(mkfifo(fifo, S_IRUSR | S_IWUSR), 0);
    (void)snprintf(fifo_env, sizeof(fifo_env), "KVASIR_FAILPOINT_FIFO=%s", fifo);
    (void)snprintf(places_env, sizeof(places_env), "KVASIR_FAILPOINTS=message_read=wait@%d:%d",
                   time, (int)method);
    return host_start(&(struct host_options){.workers = 1, .daemon_args = args, .daemon_env = env});
}

static void
stop(struct host **host)
{
    host_stop(host);
    (void)unlink(fifo);
    (void)rmdir(folder);
}

/* The thread has come there. */
static int
hold(void)
{
    int fd = open(fifo, O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

/* A call in a thread of its own. */
struct calling {
    pthread_t thread;
    struct rpc *rpc;
    enum method_id method;
    const ProtobufCMessage *request, *reply; /* borrowed until its end */
    enum rpc_code code;
};

static void *
run(void *opaque)
{
    struct calling *calling = opaque;

    calling->code = rpc_call(
        calling->rpc, &(struct rpc_call){.method = calling->method, .request = calling->request},
        &calling->reply);
    return NULL;
}

static void
begin_call(struct host *host, struct calling *calling, enum method_id method,
           const ProtobufCMessage *request)
{
    char url[256];

    (void)snprintf(url, sizeof(url), "ipc://%s/" ENDPOINT_CLIENT, host_dir(host));
    *calling = (struct calling){.method = method, .request = request};
    ck_assert_int_eq(rpc_open(url, &calling->rpc), ST_OK);
    ck_assert_int_eq(pthread_create(&calling->thread, NULL, run, calling), 0);
}

static void
await_call(struct calling *calling)
{
    ck_assert_int_eq(pthread_join(calling->thread, NULL), 0);
    ck_assert_msg(calling->code == RPC_OK, "%s", rpc_message(calling->rpc));
}

static char document_name[] = "paper", document_text[] = "What nobody is to know any more.";

static void
begin_register(struct host *host, struct calling *calling)
{
    static Kvasir__V1__Segment segment;
    static Kvasir__V1__RegisterRequest request;

    kvasir__v1__segment__init(&segment);
    kvasir__v1__register_request__init(&request);
    segment.text = document_text;
    segment.id = document_name;
    request.document = &segment;
    begin_call(host, calling, METHOD_REGISTER, &request.base);
}

static void
register_document(struct host *host, uint8_t key_out[KVASIR_KEY_BYTES])
{
    struct calling calling;

    begin_register(host, &calling);
    await_call(&calling);
    memcpy(key_out, ((const Kvasir__V1__RegisterReply *)calling.reply)->key.data, KVASIR_KEY_BYTES);
    rpc_close(&calling.rpc);
}

/* By its key, or NULL: by its name. */
static void
begin_forget(struct host *host, uint8_t *key, bool abort, struct calling *calling)
{
    static Kvasir__V1__ForgetRequest request;

    kvasir__v1__forget_request__init(&request);
    request.has_key = key != NULL;
    request.key = (ProtobufCBinaryData){.data = key, .len = key == NULL ? 0 : KVASIR_KEY_BYTES};
    request.id = key == NULL ? document_name : NULL;
    request.has_abort = true;
    request.abort = abort;
    begin_call(host, calling, METHOD_FORGET, &request.base);
}

static void
end_forget(struct calling *calling, uint32_t texts, uint32_t waited, uint32_t aborted)
{
    await_call(calling);
    const Kvasir__V1__ForgetReply *reply = (const Kvasir__V1__ForgetReply *)calling->reply;

    ck_assert_uint_eq(reply->texts, texts);
    ck_assert_uint_eq(reply->readers_waited, waited);
    ck_assert_uint_eq(reply->readers_aborted, aborted);
    rpc_close(&calling->rpc);
}

static enum kvasir_code
ask_by_key(struct host *host, const uint8_t *key)
{
    static const uint32_t query[] = {70, 71};
    const struct kvasir_document document = {.key = key};
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    struct kvasir *client;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    enum kvasir_code code = kvasir_generate(client,
                                            &(struct kvasir_request){.documents = &document,
                                                                     .document_count = 1,
                                                                     .query_ids = query,
                                                                     .query_id_count = 2,
                                                                     .sampling = {.max_tokens = 4}},
                                            NULL);

    kvasir_close(&client);
    return code;
}

START_TEST(a_register_that_came_before_registers_nothing_afterwards)
{
    struct host *host = start(METHOD_REGISTER, 2);
    struct calling second, forget;
    uint8_t key[KVASIR_KEY_BYTES];

    register_document(host, key);
    ck_assert_int_eq(ask_by_key(host, key), KVASIR_OK);
    begin_register(host, &second);
    int held = hold();

    begin_forget(host, key, false, &forget);
    host_wait_exactly(host, "documents", 0);
    host_wait_at_least(host, "blocks_erased", 2); /* its own, and the answer's */
    ck_assert_uint_eq(host_counter(host, "docs_being_forgotten"), 1); /* not told */
    ck_assert_int_eq(ask_by_key(host, key), KVASIR_NOT_FOUND);
    (void)close(held);
    await_call(&second);
    ck_assert_mem_eq(((const Kvasir__V1__RegisterReply *)second.reply)->key.data, key, sizeof(key));
    rpc_close(&second.rpc);
    end_forget(&forget, 3, 0, 0); /* key and name, and what came after */
    ck_assert_uint_eq(host_counter(host, "documents_registered"), 0);
    ck_assert_int_eq(ask_by_key(host, key), KVASIR_NOT_FOUND);
    register_document(host, key); /* and one that comes after it does */
    ck_assert_int_eq(ask_by_key(host, key), KVASIR_OK);
    stop(&host);
}
END_TEST

START_TEST(a_name_that_is_still_being_given_is_waited_for)
{
    struct host *host = start(METHOD_REGISTER, 1);
    struct calling first, forget;

    begin_register(host, &first);
    int held = hold();

    begin_forget(host, NULL, false, &forget);
    host_wait_exactly(host, "docs_being_forgotten", 1);
    (void)close(held);
    await_call(&first);
    rpc_close(&first.rpc);
    end_forget(&forget, 2, 0, 0);
    ck_assert_uint_eq(host_counter(host, "documents_registered"), 0);
    ck_assert_uint_eq(host_counter(host, "docs_being_forgotten"), 0);
    stop(&host);
}
END_TEST

static const struct asking_doc document = {96, 1};
static const struct question question = {.docs = &document, .doc_count = 1, .query_seed = 7};

/* The key of the only document. */
static void
only_key(struct host *host, uint8_t key_out[KVASIR_KEY_BYTES])
{
    struct kvasir_options options = {.runtime_dir = host_dir(host)};
    const struct kvasir_document_info *infos;
    struct kvasir *client;
    uint64_t total;
    size_t count;

    ck_assert_int_eq(kvasir_open(&options, &client), KVASIR_OK);
    ck_assert_int_eq(kvasir_list(client, 10, NULL, &infos, &count, &total), KVASIR_OK);
    ck_assert_uint_eq(count, 1);
    memcpy(key_out, infos[0].key, KVASIR_KEY_BYTES);
    kvasir_close(&client);
}

/* A second request of the same document is being read; it ends as `answer_out` says. */
static void
forget_while_one_is_read(bool abort, struct answer *alone_out, struct answer *answer_out)
{
    struct host *host = start(METHOD_GENERATE, 2);
    struct calling forget;
    struct kv_memory memory;
    uint8_t key[KVASIR_KEY_BYTES];

    ask_ok(host, &question, alone_out);
    only_key(host, key);
    struct asking *asking = asking_start(host, &question);
    int held = hold();

    begin_forget(host, key, abort, &forget);
    host_wait_exactly(host, "documents", 0);
    host_wait_at_least(host, "blocks_erased", 4);
    ck_assert_uint_eq(host_counter(host, "docs_being_forgotten"), 1); /* not told */
    (void)close(held);
    asking_end(&asking, answer_out);
    end_forget(&forget, 0, !abort, abort);
    kv_memory_map(&memory, process_pid(host_worker(host, 0)), host_counter(host, "block_count"));
    ck_assert_uint_eq(kv_memory_written(&memory), 0);
    kv_memory_unmap(&memory);
    ck_assert_uint_eq(host_counter(host, "documents"), 0);
    stop(&host);
}

START_TEST(a_request_that_came_before_is_waited_for_and_what_it_built_goes)
{
    static struct answer alone, answer;

    forget_while_one_is_read(false, &alone, &answer);
    answer_assert_same(&alone, &answer);
    ck_assert_uint_eq(answer.tokens_built, 96); /* it did not find the other one's */
}
END_TEST

START_TEST(with_abort_it_ends_and_builds_nothing)
{
    static struct answer alone, answer;

    forget_while_one_is_read(true, &alone, &answer);
    ck_assert_int_eq(answer.code, KVASIR_CANCELLED);
    ck_assert_str_eq(answer.message, "a document of it was forgotten");
}
END_TEST

CHECK_MAIN("forget_reading", a_register_that_came_before_registers_nothing_afterwards,
           a_name_that_is_still_being_given_is_waited_for,
           a_request_that_came_before_is_waited_for_and_what_it_built_goes,
           with_abort_it_ends_and_builds_nothing)
