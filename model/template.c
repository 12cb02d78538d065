/* SPDX-License-Identifier: Apache-2.0 */
#include "model/template.h"

#include <assert.h>
#include <string.h>

#include "common/mem.h"
#include "common/utf8.h"

enum role {
    ROLE_SYSTEM,
    ROLE_USER,
    ROLE_ASSISTANT,
    ROLES,
};

static const char *const role_names[ROLES] = {"system", "user", "assistant"};

/* The markers around a text, by its role.  All of it is markup. */
struct format {
    const char *open[ROLES], *close[ROLES];
    const char *answer;   /* after the last turn */
    bool has_system_turn; /* else the system text opens the first turn of the user */
    bool trims;           /* white space around texts is dropped */
};

static const struct format formats[] = {
    [TEMPLATE_PLAIN] =
        {
            .open = {"", "", ""},
            .close = {"", "", ""},
            .answer = "",
        },
    [TEMPLATE_CHATML] =
        {
            .open = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"},
            .close = {"<|im_end|>\n", "<|im_end|>\n", "<|im_end|>\n"},
            .answer = "<|im_start|>assistant\n",
            .has_system_turn = true,
        },
    [TEMPLATE_LLAMA3] =
        {
            .open = {"<|start_header_id|>system<|end_header_id|>\n\n",
                     "<|start_header_id|>user<|end_header_id|>\n\n",
                     "<|start_header_id|>assistant<|end_header_id|>\n\n"},
            .close = {"<|eot_id|>", "<|eot_id|>", "<|eot_id|>"},
            .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n",
            .has_system_turn = true,
            .trims = true,
        },
    [TEMPLATE_MISTRAL] =
        {
            .open = {"", "[INST] ", " "},
            .close = {"", " [/INST]", "</s>"},
            .answer = "",
        },
};

/* Mistral's since its third tokenizer: the markers are control tokens and bring no spaces. */
static const struct format mistral_control = {
    .open = {"", "[INST]", ""},
    .close = {"", "[/INST]", "</s>"},
    .answer = "",
};

static const char *const kind_names[] = {
    [TEMPLATE_PLAIN] = "plain",
    [TEMPLATE_CHATML] = "chatml",
    [TEMPLATE_LLAMA3] = "llama3",
    [TEMPLATE_MISTRAL] = "mistral",
};

#define KINDS (sizeof(kind_names) / sizeof(kind_names[0]))

#define SYSTEM_PIECES   3 /* in a preamble: marker, text, empty line */
#define DOCUMENT_PIECES 5
#define TURN_PIECES     4 /* separator, marker, text, marker */

struct span {
    const char *bytes;
    size_t length;
};

/* One rendering under way. */
struct render {
    enum template_kind kind;
    const struct format *format;
    const struct tokenizer *tokenizer;
    struct tokenizer_scratch *scratch;
    struct tokenizer_piece *pieces; /* of the segment under way; room for the largest */
    size_t piece_count;
    template_sink_fn sink;
    void *sink_arg;
};

static struct span
find_text(struct span in, const char *text)
{
    const char *at = in.length == 0 ? NULL : memmem(in.bytes, in.length, text, strlen(text));

    return at == NULL ? (struct span){NULL, 0}
                      : (struct span){at, in.length - (size_t)(at - in.bytes)};
}

enum template_kind
template_detect(const char *jinja, size_t length)
{
    static const struct {
        const char *marker;
        enum template_kind kind;
    } signs[] = {
        {"<|im_start|>", TEMPLATE_CHATML},
        {"<|start_header_id|>", TEMPLATE_LLAMA3},
        {"[INST]", TEMPLATE_MISTRAL},
    };

    for (size_t i = 0; jinja != NULL && i < sizeof(signs) / sizeof(signs[0]); i++) {
        if (find_text((struct span){jinja, length}, signs[i].marker).bytes != NULL) {
            return signs[i].kind;
        }
    }
    return TEMPLATE_PLAIN;
}

enum status
template_parse(const char *name, enum template_kind *kind_out)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(name, kind_names[i]) == 0) {
            *kind_out = (enum template_kind)i;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "template \"%.40s\": plain, chatml, llama3 and mistral are served",
               name);
}

const char *
template_name(enum template_kind kind)
{
    assert((size_t)kind < KINDS);
    return kind_names[kind];
}

/* The text of a system turn that the Jinja writes out in one string, as SmolLM2's and Qwen's do. */
static struct span
find_default_system(const struct tokenizer *tokenizer)
{
    static const char open[] = "<|im_start|>system";
    struct span rest;

    rest.bytes = tokenizer_chat_template(tokenizer, &rest.length);
    for (rest = find_text(rest, open); rest.bytes != NULL; rest = find_text(rest, open)) {
        rest.bytes += sizeof(open) - 1;
        rest.length -= sizeof(open) - 1;
        /* The line end is a real one or Jinja's escape. */
        size_t skip = rest.length > 1 && memcmp(rest.bytes, "\\n", 2) == 0 ? 2
                      : rest.length > 0 && rest.bytes[0] == '\n'           ? 1
                                                                           : 0;
        struct span text = {rest.bytes + skip, 0};

        while (text.length < rest.length - skip
               && strchr("<'\"{}\\", text.bytes[text.length]) == NULL) {
            text.length++;
        }
        struct span end = {text.bytes + text.length, rest.length - skip - text.length};
        if (skip > 0 && text.length > 0 && find_text(end, "<|im_end|>").bytes == end.bytes) {
            return text;
        }
    }
    return (struct span){NULL, 0};
}

static struct span
trim(struct span text)
{
    while (text.length > 0 && memchr(" \t\r\n\v\f", text.bytes[0], 6) != NULL) {
        text.bytes++;
        text.length--;
    }
    while (text.length > 0 && memchr(" \t\r\n\v\f", text.bytes[text.length - 1], 6) != NULL) {
        text.length--;
    }
    return text;
}

static void
add_piece(struct render *render, const char *text, size_t length, bool is_markup)
{
    if (length > 0) {
        render->pieces[render->piece_count++] = (struct tokenizer_piece){text, length, is_markup};
    }
}

static void
add_markup(struct render *render, const char *text)
{
    add_piece(render, text, strlen(text), true);
}

static void
add_text(struct render *render, struct span text)
{
    text = render->format->trims ? trim(text) : text;
    add_piece(render, text.bytes, text.length, false);
}

/* Encodes the pieces gathered and gives their ids to the sink. */
static enum status
send_segment(struct render *render, enum template_segment_kind kind, size_t document_index)
{
    const uint32_t *ids;
    size_t count;

    TRY(tokenizer_encode_pieces(render->tokenizer, render->scratch, render->pieces,
                                render->piece_count, &ids, &count));
    render->piece_count = 0;
    return render->sink(render->sink_arg, kind, document_index, ids, count);
}

/* The preamble, with the BOS that no text spells. */
static enum status
send_preamble(struct render *render)
{
    bool has_bos = tokenizer_adds_bos(render->tokenizer);
    const uint32_t *ids;
    size_t count;

    TRY(tokenizer_encode_pieces(render->tokenizer, render->scratch, render->pieces,
                                render->piece_count, &ids, &count));
    render->piece_count = 0;
    if (!has_bos) {
        return count == 0 ? ST_OK
                          : render->sink(render->sink_arg, TEMPLATE_PREAMBLE, 0, ids, count);
    }
    uint32_t *with_bos = mem_zalloc(count + 1, sizeof(with_bos[0]));
    if (with_bos == NULL) {
        return ERR(ST_NO_MEMORY, "preamble of %zu tokens", count);
    }
    with_bos[0] = tokenizer_bos(render->tokenizer);
    memcpy(with_bos + 1, ids, count * sizeof(ids[0]));
    enum status st = render->sink(render->sink_arg, TEMPLATE_PREAMBLE, 0, with_bos, count + 1);
    mem_free(with_bos);
    return st;
}

/* Sends the preamble; *is_open_out: it leaves a turn open for the documents and the query. */
static enum status
render_preamble(struct render *render, struct span system, bool has_documents, bool *is_open_out)
{
    const struct format *format = render->format;
    bool is_mistral = render->kind == TEMPLATE_MISTRAL;

    system = format->trims ? trim(system) : system;
    *is_open_out = is_mistral || (format->has_system_turn && (system.length > 0 || has_documents));
    if (is_mistral) {
        /* The marker's space belongs to the text after it; what is tokenised alone brings its
         * own. */
        size_t length = system.length > 0 ? strlen(format->open[ROLE_USER]) : strlen("[INST]");

        add_piece(render, format->open[ROLE_USER], length, true);
    } else if (*is_open_out) {
        add_markup(render, format->open[ROLE_SYSTEM]);
    }
    add_text(render, system);
    if (system.length > 0 && (has_documents || !format->has_system_turn)) {
        add_markup(render, "\n\n");
    }
    return send_preamble(render);
}

static void
add_document(struct render *render, const struct template_document *document)
{
    if (document->title != NULL && document->title_length > 0) {
        add_piece(render, "Title: ", strlen("Title: "), false);
        add_piece(render, document->title, document->title_length, false);
        add_piece(render, "\n", 1, false);
    }
    add_piece(render, document->text, document->text_length, false);
    add_piece(render, "\n\n", 2, false);
}

static enum status
render_query(struct render *render, const struct template_message *messages, size_t count,
             bool is_open)
{
    const struct format *format = render->format;
    bool is_first = true;

    if (is_open && format->has_system_turn) {
        add_markup(render, format->close[ROLE_SYSTEM]);
    }
    for (size_t i = 0; i < count; i++) {
        enum role role =
            strcmp(messages[i].role, role_names[ROLE_USER]) == 0 ? ROLE_USER : ROLE_ASSISTANT;

        if (render->kind == TEMPLATE_PLAIN && !is_first) {
            add_markup(render, "\n\n");
        }
        if (!is_first || render->kind != TEMPLATE_MISTRAL) {
            add_markup(render, format->open[role]); /* Mistral's first stands in the preamble */
        }
        add_text(render, (struct span){messages[i].content, messages[i].content_length});
        add_markup(render, format->close[role]);
        is_first = false;
    }
    add_markup(render, format->answer);
    return send_segment(render, TEMPLATE_QUERY, 0);
}

static enum status
check_messages(const struct template_message *messages, size_t count)
{
    bool has_user = false;

    for (size_t i = 0; i < count; i++) {
        const char *role = messages[i].role;
        bool is_user = strcmp(role, role_names[ROLE_USER]) == 0;
        bool is_system = strcmp(role, role_names[ROLE_SYSTEM]) == 0;

        if (!is_user && !is_system && strcmp(role, role_names[ROLE_ASSISTANT]) != 0) {
            return ERR(ST_INVALID, "messages[%zu]: role \"%.40s\" is not system, user or assistant",
                       i, role);
        }
        if (is_system && i > 0) {
            return ERR(ST_INVALID, "messages[%zu]: a system message must be the first", i);
        }
        size_t good = utf8_check(messages[i].content, messages[i].content_length);
        if (good < messages[i].content_length) {
            return ERR(ST_INVALID, "messages[%zu]: text is not UTF-8 at byte %zu", i, good);
        }
        has_user = has_user || is_user;
    }
    return has_user ? ST_OK : ERR(ST_INVALID, "messages: none of the %zu is of role user", count);
}

static enum status
check_document(const struct template_document *document)
{
    size_t title_length = document->title == NULL ? 0 : document->title_length;
    size_t good = utf8_check(document->title, title_length);

    if (good < title_length) {
        return ERR(ST_INVALID, "title is not UTF-8 at byte %zu", good);
    }
    good = utf8_check(document->text, document->text_length);
    if (good < document->text_length) {
        return ERR(ST_INVALID, "text is not UTF-8 at byte %zu", good);
    }
    return ST_OK;
}

/* Renders everything into pieces for which there is room. */
static enum status
render_all(struct render *render, const struct template_message *messages, size_t message_count,
           const struct template_document *documents, size_t document_count)
{
    bool has_system = strcmp(messages[0].role, role_names[ROLE_SYSTEM]) == 0;
    struct span system = {messages[0].content, messages[0].content_length};
    bool is_open;

    if (!has_system) {
        system = render->kind == TEMPLATE_CHATML ? find_default_system(render->tokenizer)
                                                 : (struct span){NULL, 0};
    }
    TRY(render_preamble(render, system, document_count > 0, &is_open));
    for (size_t i = 0; i < document_count; i++) {
        enum status st = check_document(&documents[i]);

        if (st == ST_OK) {
            add_document(render, &documents[i]);
            st = send_segment(render, TEMPLATE_DOCUMENT, i);
        }
        if (st != ST_OK) {
            return ERR(st, "documents[%zu]: %s", i, status_detail());
        }
    }
    return render_query(render, messages + has_system, message_count - has_system, is_open);
}

enum status
template_render_chat(enum template_kind kind, const struct tokenizer *tokenizer,
                     struct tokenizer_scratch *scratch, const struct template_message *messages,
                     size_t message_count, const struct template_document *documents,
                     size_t document_count, template_sink_fn sink, void *sink_arg)
{
    bool has_control = tokenizer_is_control(tokenizer, tokenizer_find(tokenizer, "[INST]"));
    struct render render = {
        .kind = kind,
        .format = kind == TEMPLATE_MISTRAL && has_control ? &mistral_control : &formats[kind],
        .tokenizer = tokenizer,
        .scratch = scratch,
        .sink = sink,
        .sink_arg = sink_arg,
    };
    size_t room;

    assert((size_t)kind < KINDS);
    if (message_count > TEMPLATE_MESSAGES_MAX) {
        return ERR(ST_INVALID, "%zu messages; at most %d are served", message_count,
                   TEMPLATE_MESSAGES_MAX);
    }
    TRY(check_messages(messages, message_count));
    room = message_count * TURN_PIECES + SYSTEM_PIECES + DOCUMENT_PIECES;
    render.pieces = mem_zalloc(room, sizeof(render.pieces[0]));
    if (render.pieces == NULL) {
        return ERR(ST_NO_MEMORY, "template: %zu messages", message_count);
    }
    enum status st = render_all(&render, messages, message_count, documents, document_count);
    mem_free(render.pieces);
    return st;
}

enum status
template_encode_document(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                         const struct template_document *document, const uint32_t **ids_out,
                         size_t *count_out)
{
    struct tokenizer_piece pieces[DOCUMENT_PIECES];
    struct render render = {.pieces = pieces};

    TRY(check_document(document));
    add_document(&render, document);
    return tokenizer_encode_pieces(tokenizer, scratch, pieces, render.piece_count, ids_out,
                                   count_out);
}

enum status
template_encode_raw(const struct tokenizer *tokenizer, struct tokenizer_scratch *scratch,
                    const char *text, size_t length, const uint32_t **ids_out, size_t *count_out)
{
    return tokenizer_encode(tokenizer, scratch, text, length, false, ids_out, count_out);
}
