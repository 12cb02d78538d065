/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/kv_publisher.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <zmq.h>

#include "common/list.h"
#include "common/mem.h"

#define IDENTITY_MAX  255
#define NUMBER_BYTES  8
#define NUMBER_END    UINT64_MAX /* -1 */
#define LAST_WORDS_MS 200        /* to send what is left when we stop */
/* Bytes of a frame that others send: a topic, or a number.  libzmq calls itself for every byte of a
 * topic, so a long one would overflow its stack. */
#define HEARD_MAX 4096

struct batch {
    struct list_node link;
    uint64_t number;
    uint8_t *bytes;
    size_t length;
};

struct kept {
    uint64_t number;
    zmq_msg_t payload;
};

struct kv_publisher {
    struct kv_publisher_config config;
    int event_fd; /* rings: the queue has something, or the end has come */
    atomic_bool is_stopped;
    pthread_mutex_t lock; /* over the queue */
    struct list_node queue;
    size_t queue_bytes;
    _Atomic uint64_t published, dropped, missed, replayed;
    pthread_t thread;
    bool has_thread;

    /* The thread's, once it runs: */
    void *pub, *replay;
    struct kept kept[KV_PUBLISHER_KEPT]; /* a ring */
    size_t kept_first, kept_count, kept_bytes;
};

/* --- the scheduler's side --------------------------------------------------------------------- */

static void
ring(struct kv_publisher *p)
{
    uint64_t one = 1;

    if (write(p->event_fd, &one, sizeof(one)) < 0) {
        return; /* full: it rings anyway */
    }
}

static void
batch_free(struct batch *batch)
{
    mem_free(batch->bytes);
    mem_free(batch);
}

void
kv_publisher_submit(struct kv_publisher *p, uint64_t number, uint8_t *bytes, size_t length)
{
    struct batch *batch = bytes == NULL ? NULL : mem_zalloc(1, sizeof(*batch));
    bool is_full = batch == NULL;

    if (!is_full) {
        *batch = (struct batch){.number = number, .bytes = bytes, .length = length};
        list_init(&batch->link);
        (void)pthread_mutex_lock(&p->lock);
        is_full = p->queue_bytes + length > KV_PUBLISHER_QUEUE_BYTES;
        if (!is_full) {
            p->queue_bytes += length;
            list_push_back(&p->queue, &batch->link);
        }
        (void)pthread_mutex_unlock(&p->lock);
    }
    if (is_full) {
        mem_free(bytes);
        mem_free(batch);
        atomic_fetch_add(&p->dropped, 1);
    } else {
        ring(p);
    }
}

struct kv_publisher_stats
kv_publisher_stats(const struct kv_publisher *p)
{
    return (struct kv_publisher_stats){
        .published = atomic_load(&p->published),
        .dropped = atomic_load(&p->dropped),
        .missed = atomic_load(&p->missed),
        .replayed = atomic_load(&p->replayed),
    };
}

/* --- publishing ------------------------------------------------------------------------------- */

static void
number_to_bytes(uint64_t number, uint8_t bytes[NUMBER_BYTES])
{
    for (int i = NUMBER_BYTES; i-- > 0; number >>= 8) {
        bytes[i] = (uint8_t)number;
    }
}

/* Number and payload; the payload is shared, not copied.  The frames before have been sent. */
static void
send_rest(void *socket, uint64_t number, zmq_msg_t *payload)
{
    uint8_t bytes[NUMBER_BYTES];
    zmq_msg_t share;

    number_to_bytes(number, bytes);
    (void)zmq_msg_init(&share);
    (void)zmq_msg_copy(&share, payload);
    /* Once the first frame is taken, so is the message. */
    (void)zmq_send(socket, bytes, sizeof(bytes), ZMQ_SNDMORE);
    if (zmq_msg_send(&share, socket, 0) < 0) {
        (void)zmq_msg_close(&share);
    }
}

static void
set_lossy(struct kv_publisher *p, int is_lossy)
{
    int no_drop = !is_lossy;

    (void)zmq_setsockopt(p->pub, ZMQ_XPUB_NODROP, &no_drop, sizeof(no_drop));
}

/* First so that a subscriber who is behind is noticed; then so that only he goes without. */
static void
publish(struct kv_publisher *p, uint64_t number, zmq_msg_t *payload)
{
    const char *topic = p->config.topic;

    if (zmq_send(p->pub, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT) < 0) {
        atomic_fetch_add(&p->missed, 1);
        set_lossy(p, true);
        (void)zmq_send(p->pub, topic, strlen(topic), ZMQ_SNDMORE | ZMQ_DONTWAIT);
        send_rest(p->pub, number, payload);
        set_lossy(p, false);
    } else {
        send_rest(p->pub, number, payload);
    }
    atomic_fetch_add(&p->published, 1);
}

static void
forget_oldest(struct kv_publisher *p)
{
    struct kept *oldest = &p->kept[p->kept_first];

    p->kept_bytes -= zmq_msg_size(&oldest->payload);
    (void)zmq_msg_close(&oldest->payload);
    p->kept_first = (p->kept_first + 1) % KV_PUBLISHER_KEPT;
    p->kept_count--;
}

static void
keep(struct kv_publisher *p, uint64_t number, zmq_msg_t *payload)
{
    struct kept *newest;

    if (p->kept_count == KV_PUBLISHER_KEPT) {
        forget_oldest(p);
    }
    newest = &p->kept[(p->kept_first + p->kept_count++) % KV_PUBLISHER_KEPT];
    newest->number = number;
    (void)zmq_msg_init(&newest->payload);
    (void)zmq_msg_move(&newest->payload, payload);
    p->kept_bytes += zmq_msg_size(&newest->payload);
    while (p->kept_bytes > KV_PUBLISHER_KEPT_BYTES) {
        forget_oldest(p);
    }
}

static void
free_payload(void *bytes, void *hint)
{
    (void)hint;
    mem_free(bytes);
}

static struct batch *
take(struct kv_publisher *p)
{
    struct batch *batch = NULL;

    (void)pthread_mutex_lock(&p->lock);
    if (!list_is_empty(&p->queue)) {
        batch = LIST_ENTRY(p->queue.next, struct batch, link);
        list_unlink(&batch->link);
        p->queue_bytes -= batch->length;
    }
    (void)pthread_mutex_unlock(&p->lock);
    return batch;
}

static void
publish_queue(struct kv_publisher *p)
{
    struct batch *batch;

    while ((batch = take(p)) != NULL) {
        zmq_msg_t payload;

        if (zmq_msg_init_data(&payload, batch->bytes, batch->length, free_payload, NULL) == 0) {
            batch->bytes = NULL;
            publish(p, batch->number, &payload);
            keep(p, batch->number, &payload);
            (void)zmq_msg_close(&payload);
        } else {
            atomic_fetch_add(&p->dropped, 1);
        }
        batch_free(batch);
    }
}

/* --- once more -------------------------------------------------------------------------------- */

struct question {
    uint8_t identity[IDENTITY_MAX];
    int identity_length;
    bool has_delimiter; /* a REQ puts an empty frame before what it says; a DEALER may */
    uint64_t from;
};

/* Frames of one message; at most `max` are kept, and how many there were is returned. */
static int
receive_frames(void *socket, uint8_t frames[][IDENTITY_MAX], int lengths[], int max)
{
    int count = 0, has_more = 1;
    size_t size = sizeof(has_more);

    while (has_more != 0) {
        uint8_t rest[IDENTITY_MAX];
        int length =
            zmq_recv(socket, count < max ? frames[count] : rest, IDENTITY_MAX, ZMQ_DONTWAIT);

        if (length < 0) {
            return 0;
        }
        if (count < max) {
            lengths[count] = length;
        }
        count++;
        (void)zmq_getsockopt(socket, ZMQ_RCVMORE, &has_more, &size);
    }
    return count;
}

/* False: nothing is there, or nothing that we understand. */
static bool
read_question(void *socket, bool *is_empty_out, struct question *question)
{
    uint8_t frames[3][IDENTITY_MAX];
    int lengths[3], count = receive_frames(socket, frames, lengths, 3);

    *is_empty_out = count == 0;
    if (count < 2 || count > 3 || lengths[count - 1] != NUMBER_BYTES
        || (count == 3 && lengths[1] != 0) || lengths[0] > IDENTITY_MAX) {
        return false;
    }
    *question = (struct question){.identity_length = lengths[0], .has_delimiter = count == 3};
    memcpy(question->identity, frames[0], (size_t)lengths[0]);
    for (int i = 0; i < NUMBER_BYTES; i++) {
        question->from = question->from << 8 | frames[count - 1][i];
    }
    return true;
}

/* False: whoever asked is gone, or has not read what he asked for before. */
static bool
answer(void *socket, const struct question *question, uint64_t number, zmq_msg_t *payload)
{
    if (zmq_send(socket, question->identity, (size_t)question->identity_length,
                 ZMQ_SNDMORE | ZMQ_DONTWAIT)
        < 0) {
        return false;
    }
    if (question->has_delimiter) {
        (void)zmq_send(socket, "", 0, ZMQ_SNDMORE);
    }
    send_rest(socket, number, payload);
    return true;
}

static void
answer_all(struct kv_publisher *p, const struct question *question)
{
    bool is_there = true;
    zmq_msg_t end;

    for (size_t i = 0; is_there && i < p->kept_count; i++) {
        struct kept *kept = &p->kept[(p->kept_first + i) % KV_PUBLISHER_KEPT];

        if (kept->number >= question->from) {
            is_there = answer(p->replay, question, kept->number, &kept->payload);
            p->replayed += is_there;
        }
    }
    (void)zmq_msg_init(&end);
    if (is_there) {
        (void)answer(p->replay, question, NUMBER_END, &end);
    }
    (void)zmq_msg_close(&end);
}

static void
answer_questions(struct kv_publisher *p)
{
    bool is_empty = p->replay == NULL;
    struct question question;

    while (!is_empty) {
        if (read_question(p->replay, &is_empty, &question)) {
            answer_all(p, &question);
        }
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

static void *
run(void *arg)
{
    struct kv_publisher *p = arg;
    zmq_pollitem_t items[2] = {{.fd = p->event_fd, .events = ZMQ_POLLIN},
                               {.socket = p->replay, .events = ZMQ_POLLIN}};
    uint64_t rings;

    while (!atomic_load(&p->is_stopped)) {
        if (zmq_poll(items, p->replay == NULL ? 1 : 2, -1) < 0 && errno != EINTR) {
            break; /* the context ends */
        }
        while (read(p->event_fd, &rings, sizeof(rings)) > 0) {
        }
        publish_queue(p);
        answer_questions(p);
    }
    publish_queue(p);
    return NULL;
}

/* --- life ------------------------------------------------------------------------------------- */

enum status
kv_publisher_new(const struct kv_publisher_config *config, struct kv_publisher **publisher_out)
{
    struct kv_publisher *p = mem_zalloc(1, sizeof(*p));

    if (p == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for the publisher of KV events");
    }
    p->config = *config;
    list_init(&p->queue);
    (void)pthread_mutex_init(&p->lock, NULL);
    p->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (p->event_fd < 0) {
        enum status st = ERR(ST_SYSTEM, "eventfd: %s", strerror(errno));

        kv_publisher_destroy(&p);
        return st;
    }
    *publisher_out = p;
    return ST_OK;
}

/* vLLM's rule, so that one setting serves both: what many may connect to is bound. */
static bool
is_to_bind(const char *url)
{
    return strchr(url, '*') != NULL || strstr(url, "::") != NULL || strncmp(url, "ipc://", 6) == 0
           || strncmp(url, "inproc://", 9) == 0;
}

static enum status
open_socket(void *context, int type, const char *url, bool binds, void **socket_out)
{
    int hwm = type == ZMQ_PUB ? KV_PUBLISHER_HWM : KV_PUBLISHER_KEPT + 1, on = 1;
    int linger = LAST_WORDS_MS;
    int64_t heard_max = HEARD_MAX; /* or whoever may connect could fill our memory */
    int option = type == ZMQ_PUB ? ZMQ_XPUB_NODROP : ZMQ_ROUTER_MANDATORY;

    *socket_out = zmq_socket(context, type);
    if (*socket_out == NULL || zmq_setsockopt(*socket_out, ZMQ_SNDHWM, &hwm, sizeof(hwm)) != 0
        || zmq_setsockopt(*socket_out, ZMQ_LINGER, &linger, sizeof(linger)) != 0
        || zmq_setsockopt(*socket_out, ZMQ_MAXMSGSIZE, &heard_max, sizeof(heard_max)) != 0
        || zmq_setsockopt(*socket_out, option, &on, sizeof(on)) != 0
        || (binds ? zmq_bind(*socket_out, url) : zmq_connect(*socket_out, url)) != 0) {
        return ERR(ST_SYSTEM, "KV events at %s: %s", url, zmq_strerror(errno));
    }
    return ST_OK;
}

enum status
kv_publisher_start(struct kv_publisher *p, void *context)
{
    const char *url = p->config.url, *replay_url = p->config.replay_url;
    int error;

    TRY(open_socket(context, ZMQ_PUB, url, is_to_bind(url), &p->pub));
    if (replay_url != NULL) {
        TRY(open_socket(context, ZMQ_ROUTER, replay_url, true, &p->replay));
    }
    error = pthread_create(&p->thread, NULL, run, p);
    p->has_thread = error == 0;
    return error == 0 ? ST_OK : ERR(ST_SYSTEM, "thread of KV events: %s", strerror(error));
}

void
kv_publisher_stop(struct kv_publisher *p)
{
    if (p->has_thread) {
        atomic_store(&p->is_stopped, true);
        ring(p);
        (void)pthread_join(p->thread, NULL);
        p->has_thread = false;
    }
    if (p->pub != NULL) {
        (void)zmq_close(p->pub);
        p->pub = NULL;
    }
    if (p->replay != NULL) {
        (void)zmq_close(p->replay);
        p->replay = NULL;
    }
}

void
kv_publisher_destroy(struct kv_publisher **publisher)
{
    struct kv_publisher *p = *publisher;
    struct batch *batch;

    if (p == NULL) {
        return;
    }
    kv_publisher_stop(p);
    while ((batch = take(p)) != NULL) {
        batch_free(batch);
    }
    while (p->kept_count > 0) {
        forget_oldest(p);
    }
    if (p->event_fd >= 0) {
        (void)close(p->event_fd);
    }
    (void)pthread_mutex_destroy(&p->lock);
    MEM_FREE(*publisher);
}
