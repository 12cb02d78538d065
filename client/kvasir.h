/* SPDX-License-Identifier: Apache-2.0 */
/* libkvasir - answers over documents from kvasird, in C.
 *
 *   struct kvasir *client;
 *   if (kvasir_open(NULL, &client) != KVASIR_OK) { puts(kvasir_open_error()); ... }
 *   struct kvasir_document docs[] = {{.text = "Lisbon is the capital of Portugal."}};
 *   struct kvasir_message ask[] = {{"user", "What is the capital of Portugal?"}};
 *   struct kvasir_request request = {.documents = docs, .document_count = 1,
 *                                    .messages = ask, .message_count = 1, .on_chunk = print_it};
 *   if (kvasir_generate(client, &request, NULL) != KVASIR_OK) { puts(kvasir_error(client)); ... }
 *   kvasir_close(&client);
 *
 * Threads: a handle is used by one thread at a time, for one call at a time; make as many handles
 * as you like, they are cheap and share their I/O thread.  kvasir_cancel alone may be called from
 * any thread and from signal handlers while another function runs on the handle.  Nothing here
 * survives fork(): open handles in the process that uses them.
 *
 * Memory: what you pass in is only read during the call.  What you get out is borrowed until the
 * next call on the same handle, unless a function says otherwise.  Zeroed structs are good
 * defaults, and fields are only ever added at the end: initialise by name.
 *
 * Loss: if kvasird ends, dies or hangs as a process, that is noticed within 8 seconds (at once,
 * when its socket closes).  kvasir_generate then looks for the next kvasird for retry_ms and goes
 * on where the answer stopped: nothing comes twice, and no token is another one than without the
 * loss.  Other calls return KVASIR_UNAVAILABLE.  The handle stays usable: the next call connects
 * anew. */
#ifndef CLIENT_KVASIR_H
#define CLIENT_KVASIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVASIR_KEY_BYTES 32

/* The canonical gRPC codes. */
enum kvasir_code {
    KVASIR_OK = 0,
    KVASIR_CANCELLED = 1,
    KVASIR_UNKNOWN = 2,
    KVASIR_INVALID_ARGUMENT = 3, /* repeating it is useless */
    KVASIR_DEADLINE_EXCEEDED = 4,
    KVASIR_NOT_FOUND = 5,
    KVASIR_ALREADY_EXISTS = 6,
    KVASIR_PERMISSION_DENIED = 7,
    KVASIR_RESOURCE_EXHAUSTED = 8, /* full now: see kvasir_retry_after_ms */
    KVASIR_FAILED_PRECONDITION = 9,
    KVASIR_ABORTED = 10,
    KVASIR_OUT_OF_RANGE = 11, /* can never fit the context or the pool */
    KVASIR_UNIMPLEMENTED = 12,
    KVASIR_INTERNAL = 13,
    KVASIR_UNAVAILABLE = 14, /* no kvasird, or no worker: may help to retry */
    KVASIR_DATA_LOSS = 15,
    KVASIR_UNAUTHENTICATED = 16
};

/* "RESOURCE_EXHAUSTED"; for ever. */
const char *kvasir_code_name(enum kvasir_code code);

/* Version of this library, "0.1.0"; for ever. */
const char *kvasir_version(void);

/* ---- a connection ---------------------------------------------------------------------------- */

struct kvasir;

struct kvasir_options {
    const char *endpoint;    /* ZeroMQ URL; NULL: client.sock of runtime_dir */
    const char *runtime_dir; /* NULL: $KVASIR_RUNTIME_DIR, /run/kvasir, $XDG_RUNTIME_DIR/kvasir */
    uint32_t timeout_ms;     /* of every call but kvasir_generate; 0: 30 s */
    uint32_t retry_ms;       /* how long a lost answer looks for the next kvasird; 0: 30 s */
    const char *server_key;  /* over a network: kvasird's public key, or the path of its file */
    const char *secret_key;  /* over a network: path of our secret key (kvasirctl keygen) */
    uint64_t busy_us; /* an answer is waited for so long without sleeping, from token to token; 0 */
};

#define KVASIR_RETRY_NEVER UINT32_MAX /* as retry_ms: a loss is KVASIR_UNAVAILABLE at once */

/* Makes a handle; connects with the first call, so kvasird need not run yet.  `options` may be
 * NULL. On failure *client_out is not written and kvasir_open_error says why. */
enum kvasir_code kvasir_open(const struct kvasir_options *options, struct kvasir **client_out);

/* One line about the last failed kvasir_open of this thread; borrowed until its next failure. */
const char *kvasir_open_error(void);

/* Sets *client to NULL; NULL is fine. */
void kvasir_close(struct kvasir **client);

/* One line about why the last call failed, "" if it did not; borrowed until the next call. */
const char *kvasir_error(const struct kvasir *client);

/* When the daemon suggests to try again; 0: it did not say. */
uint32_t kvasir_retry_after_ms(const struct kvasir *client);

/* Cancels the call that runs, if one does.  From any thread, from signal handlers too.  Chunks may
 * still come until the call ends, and it may yet end whole, with KVASIR_OK. */
void kvasir_cancel(struct kvasir *client);

/* ---- generate -------------------------------------------------------------------------------- */

/* Exactly one of text, token_ids, key.  All strings are UTF-8. */
struct kvasir_document {
    const char *text;
    const uint32_t *token_ids;
    size_t token_count;
    const uint8_t *key; /* [KVASIR_KEY_BYTES], of a registered document */
    const char *id;     /* your name for it, echoed in usage; may be NULL */
    const char *title;  /* with text, in chats; may be NULL */
    const char *corpus; /* with key: of that shared corpus; NULL: the caller's own */
};

struct kvasir_message {
    const char *role; /* "system", "user", "assistant" */
    const char *content;
};

/* Zero means the default of each. */
struct kvasir_sampling {
    uint32_t max_tokens;      /* 256 */
    float temperature;        /* 0: greedy */
    uint32_t top_k;           /* 0: off */
    float top_p;              /* 0: off */
    float min_p;              /* 0: off */
    float repetition_penalty; /* 0: off */
    bool has_seed;            /* false: the daemon chooses, usage tells */
    uint64_t seed;
    const char *const *stop; /* at most 16 strings of 1 to 256 bytes */
    size_t stop_count;
    bool want_logprobs;
    uint32_t top_logprobs; /* alternatives a token, at most 20 */
};

struct kvasir_logprob {
    uint32_t token_id;
    const char *text; /* not NUL-terminated; may be part of a character */
    size_t text_bytes;
    float logprob;
    const uint32_t *top_ids; /* [top_count] */
    const float *top_logprobs;
    size_t top_count;
};

/* A piece of the answer; borrowed for the time of the callback. */
struct kvasir_chunk {
    const char *text; /* whole characters; not NUL-terminated */
    size_t text_bytes;
    const uint32_t *token_ids;
    size_t token_count;
    const struct kvasir_logprob *logprobs;
    size_t logprob_count;
};

/* Runs in the thread of kvasir_generate.  Returns true to go on, false to cancel the call; must not
 * call other functions on the handle, kvasir_cancel excepted. */
typedef bool (*kvasir_chunk_fn)(void *opaque, const struct kvasir_chunk *chunk);

/* What of earlier work a request may read. */
enum kvasir_reuse {
    KVASIR_REUSE_DEFAULT = 0,  /* the daemon's --reuse */
    KVASIR_REUSE_LAZY = 1,     /* documents encoded alone; one copy serves every place */
    KVASIR_REUSE_REENCODE = 2, /* documents encoded alone; a rotated copy for each place */
    KVASIR_REUSE_PREFIX = 3,   /* full attention; what begins at position 0 is reused */
    KVASIR_REUSE_NONE = 4      /* full attention; everything is computed again */
};

/* With messages: a chat; the daemon renders them and the documents with the model's template.
 * Without: raw; documents, then query, as they are. */
struct kvasir_request {
    const struct kvasir_document *documents;
    size_t document_count;
    const struct kvasir_message *messages;
    size_t message_count;
    const char *query;         /* raw only; this or query_ids */
    const uint32_t *query_ids; /* raw only */
    size_t query_id_count;
    bool add_bos; /* raw only: begin with the tokenizer's BOS */
    struct kvasir_sampling sampling;
    const void *salt; /* isolates cached documents between tenants; at most 64 bytes */
    size_t salt_bytes;
    bool has_priority;        /* false: 50 */
    uint32_t priority;        /* 0 lowest .. 100 */
    bool ignore_end;          /* max_tokens whatever comes: benchmarks */
    uint32_t timeout_ms;      /* 0: the daemon's default */
    kvasir_chunk_fn on_chunk; /* may be NULL */
    void *opaque;
    enum kvasir_reuse reuse;
    bool has_keep_turn; /* false: chats do */
    bool keep_turn;     /* keep this turn's KV for a follow-up, and look for earlier turns */
};

enum kvasir_finish {
    KVASIR_FINISH_NONE = 0,
    KVASIR_FINISH_STOP = 1,   /* end token or stop string */
    KVASIR_FINISH_LENGTH = 2, /* max_tokens */
    KVASIR_FINISH_CANCELLED = 3
};

struct kvasir_document_usage {
    uint32_t index;     /* in the request */
    const char *id;     /* yours, or "" */
    const uint8_t *key; /* [KVASIR_KEY_BYTES], or NULL */
    uint32_t tokens;
    uint32_t tokens_reused;
    const char *miss_reason; /* "hit", "cold", "evicted", "copied", ... */
};

/* The way to the first token, in microseconds of CLOCK_MONOTONIC (Trace in rag.proto); 0: unknown.
 */
struct kvasir_trace {
    uint64_t arrived_us, read_us, assigned_us; /* kvasird */
    uint64_t heard_us, begun_us, ended_us;     /* the worker */
    uint64_t returned_us, sent_us;             /* kvasird */
};

struct kvasir_usage {
    enum kvasir_finish finish;
    uint32_t prompt_tokens;
    uint32_t query_tokens;
    uint32_t completion_tokens;
    uint32_t tokens_reused; /* document tokens read, not built */
    uint32_t tokens_built;
    uint32_t tokens_padded;
    uint64_t queue_us;
    uint64_t ttft_us; /* arrival at the daemon to first token sent */
    uint64_t total_us;
    uint32_t worker;
    uint32_t preemptions;
    uint64_t seed;
    const struct kvasir_document_usage *documents;
    size_t document_count;
    uint32_t tokens_copied;      /* of tokens_reused: through a copy made for this request */
    uint32_t turn_tokens_reused; /* own tokens read from an earlier turn, not computed */
    enum kvasir_reuse reuse;     /* the mode it ran in */
    struct kvasir_trace trace;
    uint32_t tokens_loaded; /* of tokens_reused: from the host tier, for this request */
};

/* Generates an answer, chunk by chunk.  *usage_out (may be NULL) is written with KVASIR_OK and, if
 * the daemon still told it, with KVASIR_CANCELLED (else finish is NONE). */
enum kvasir_code kvasir_generate(struct kvasir *client, const struct kvasir_request *request,
                                 struct kvasir_usage *usage_out);

/* ---- documents ------------------------------------------------------------------------------- */

/* Token ids of a text.  `parse_special`: special tokens in it count as such. */
enum kvasir_code kvasir_tokenize(struct kvasir *client, const char *text, bool parse_special,
                                 const uint32_t **ids_out, size_t *count_out);

/* What a raw request with these documents would find resident; changes nothing. */
enum kvasir_code kvasir_probe(struct kvasir *client, const struct kvasir_document *documents,
                              size_t count, const void *salt, size_t salt_bytes,
                              const struct kvasir_document_usage **usage_out, size_t *count_out);

/* Tokenises a document and remembers it under the key that is returned.  `is_chat`: rendered as in
 * a chat.  tokens_out may be NULL. */
enum kvasir_code kvasir_register(struct kvasir *client, const struct kvasir_document *document,
                                 bool is_chat, const void *salt, size_t salt_bytes,
                                 uint8_t key_out[KVASIR_KEY_BYTES], uint32_t *tokens_out);

struct kvasir_document_info {
    uint8_t key[KVASIR_KEY_BYTES];
    uint32_t tokens;
    uint32_t tokens_resident;
    uint32_t blocks;
    uint32_t references;
    uint32_t pins;
    uint64_t hits;
    char state[16]; /* absent, building, sealed, partial, quarantined; host: only there */
};

/* What is known of a document.  KVASIR_NOT_FOUND: nothing, or it is another tenant's. */
enum kvasir_code kvasir_get(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES],
                            struct kvasir_document_info *info_out);

/* At most `limit` documents (0: 1000), by "hits" (NULL), "tokens" or "saved", the largest first;
 * total_out may be NULL. */
enum kvasir_code kvasir_list(struct kvasir *client, uint32_t limit, const char *order,
                             const struct kvasir_document_info **infos_out, size_t *count_out,
                             uint64_t *total_out);

/* A pinned document is never evicted; pins are counted.  The second ends by itself. */
enum kvasir_code kvasir_pin(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES]);
enum kvasir_code kvasir_pin_for(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES],
                                uint64_t ttl_ms);
enum kvasir_code kvasir_unpin(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES]);

/* Builds its KV now, before anyone asks. */
enum kvasir_code kvasir_warm(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES]);

/* Drops its KV and its registration; returns when every copy has been overwritten. */
enum kvasir_code kvasir_forget(struct kvasir *client, const uint8_t key[KVASIR_KEY_BYTES]);

/* How a document is to be kept ready.  Zeroed but for the weight is a good default. */
struct kvasir_wish {
    double weight;       /* how often it will be asked for, in any unit; above 0 */
    const char *version; /* yours; may be NULL */
    bool is_pinned;      /* never evicted, once it is there */
    uint64_t pin_ttl_ms; /* 0: for ever */
};

/* Registers a document that is encoded in idle time, by weight and benefit, and kept where there is
 * room.  Under an id that is known the new text takes the old one's place; *is_unchanged_out (may
 * be NULL) says that it was the same.  `salt` as in kvasir_register. */
enum kvasir_code kvasir_keep(struct kvasir *client, const struct kvasir_document *document,
                             bool is_chat, const void *salt, size_t salt_bytes,
                             const struct kvasir_wish *wish, uint8_t key_out[KVASIR_KEY_BYTES],
                             bool *is_unchanged_out);

/* How much of what is to be kept is resident. */
struct kvasir_coverage {
    uint64_t documents, tokens;
    uint64_t documents_resident, tokens_resident;
    uint64_t documents_waiting, tokens_waiting;
    uint64_t documents_pinned, documents_without_room;
    double tokens_per_s; /* of late, while encoding; 0: not measured yet */
    uint64_t eta_ms;     /* of tokens_waiting in idle time; 0 likewise */
};

enum kvasir_code kvasir_coverage(struct kvasir *client, struct kvasir_coverage *coverage_out);

/* ---- health ---------------------------------------------------------------------------------- */

struct kvasir_health {
    bool is_serving;     /* at least one worker is ready */
    const char *detail;  /* why not */
    const char *version; /* the daemon's */
    uint32_t protocol;
};

/* KVASIR_OK whenever kvasird answers, also while it does not serve. */
enum kvasir_code kvasir_health(struct kvasir *client, struct kvasir_health *health_out);

#ifdef __cplusplus
}
#endif
#endif
