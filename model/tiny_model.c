/* SPDX-License-Identifier: Apache-2.0 */
/* Weights come from splitmix64 and a sum of uniforms, all in integers and single multiplications,
 * so that no rounding differs between machines.  Their scales make scores and logits of trained
 * size, and let the layers dominate the residual stream: otherwise a tied output would answer with
 * its own input for ever.  Rows of control and unused tokens are small in the embedding.  RMS norm
 * undoes that at the input; at the output their logits stay near 0, so they are never chosen. */
#include "model/tiny_model.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/mem.h"
#include "model/dequant.h"
#include "model/gguf_write.h"
#include "model/quant.h"

#define CONTROL_TOKENS  3u
#define BYTE_TOKENS     256u
#define TOKEN_BYTES_MAX 32u
#define SIZE_MAX_TINY   8192u /* of C, F, H * D: tiny means tiny */
#define LAYERS_MAX_TINY 64u
#define VOCAB_MAX_TINY  65536u
#define ROPE_BASE       10000.0f
#define TYPE_NORMAL     1
#define TYPE_CONTROL    3
#define TYPE_UNUSED     5
#define SMALL_ROW       0.02f

/* Byte pairs in order, learnt from this project's own documents; "_" stands for the space. */
static const char merges_text[] =
    "_ t;_ a;e r;_ s;i n;o n;e s;h e;_ c;e n;o r;_ p;i t;_ w;r e;_ f;a t;_t he;_ d;_ b;_ l;"
    "_ m;_ o;_ n;e d;n d;i s;o c;_ on;en t;l e;_ in;_ k;c t;i on;_a nd;_ e;_ re;a s;a l;_s t;"
    "r o;a r;_ is;in g;o u;a n;_ it;_ u;es t;d e;a y;i l;_o f;o l;c h;a m;c e;_ C;_t o;h at;"
    "v er;_ r;s t;e l;_ h;_n o;_c o;_d e;_ T;a d;u m;it h;e t;e m;_on e;_w ith;l oc;v i;_m a;"
    "er n;_ N;u t;_ A;er s;_d oc;_ g;q u;_c on;_ S;i d;c k;_f or;ern el;a g;_a s;_w or;i r;"
    "_t est;i g;_k ernel;i m;es s;loc k;u r;l y;_n e;u n;_s e;_ G;_a l;_b y;_t h;_w h;_p ro;"
    "_co m;_wor k;_no t;_a t;_ or;_p o;_k v;_ P;t s;s e;at ion;_ he;_a n;um ent;a b;k en;a p;"
    "_w hat;_ B;o w;i c;_b lock;u l;_t hat;ct ion;_l ay;in t;he ck;v e;u d;in e;am e;_to ken;"
    "_on ly;r u;p l;_it s;_f i;_ v;d s;_l o;_doc ument;_c h;_ H;_ D;t o;_work er;_ R;m ent;"
    "e p;a ch;_C U;_ L;o de;d er;at e;a nd;_f a;_ F;u re;k e;ag e;_e x;P U;ru ct;_CU D;"
    "_CUD A;_ en;u s;ou t;_o p;_m em;_b e;_T he;_ O;vi ce;r i;o m;_u n;_c heck;_ W;al l;"
    "_c ud;w n;t h;m d;as ir;_st ruct;_o ut;ver y;r a;p o;i f;_cud a;_ x;_ M;or t;l o;is t;"
    "er e;_t w;_a re;_a r;_ K;_ I;_st at;_s h;_o wn;_he ad;s er;c he;_kv asir;_kernel s;"
    "_de vice;or y;c u;ab le;_ne ver;ou n;ay s;_s ame;_re ad;_lay er;_e vi;_e ach;x t;i z;"
    "i de;ar t;_w r;_re f;_p r;_b u;_N o;or e;_p l;_con t;un ction;";

static const char chat_template[] =
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% endif %}";

struct tiny_model_config
tiny_model_defaults(void)
{
    return (struct tiny_model_config){
        .seed = 1,
        .L = 2,
        .C = 128,
        .H = 4,
        .Hkv = 2,
        .D = 64,
        .F = 256,
        .V = 512,
        .context_max = 8192,
        .type = GGUF_TENSOR_F32,
        .rope = TINY_MODEL_ROPE_PLAIN,
        .has_tied_embeddings = true,
    };
}

enum status
tiny_model_parse_type(const char *text, enum gguf_tensor_type *type_out)
{
    static const struct {
        const char *name;
        enum gguf_tensor_type type;
    } types[] = {{"f32", GGUF_TENSOR_F32},   {"f16", GGUF_TENSOR_F16},
                 {"bf16", GGUF_TENSOR_BF16}, {"q8_0", GGUF_TENSOR_Q8_0},
                 {"q4_0", GGUF_TENSOR_Q4_0}, {"q4_1", GGUF_TENSOR_Q4_1}};

    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (strcmp(text, types[i].name) == 0) {
            *type_out = types[i].type;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "type \"%s\": not f32, f16, bf16, q8_0, q4_0 or q4_1", text);
}

enum status
tiny_model_parse_rope(const char *text, enum tiny_model_rope *rope_out)
{
    static const char *const names[] = {"plain", "linear", "freqs"};

    for (size_t i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *rope_out = (enum tiny_model_rope)i;
            return ST_OK;
        }
    }
    return ERR(ST_INVALID, "rope \"%s\": not plain, linear or freqs", text);
}

static enum status
check_size(const char *name, uint32_t value, uint32_t min, uint32_t max, uint32_t unit)
{
    if (value < min || value > max || value % unit != 0) {
        return ERR(ST_INVALID,
                   "%s of %" PRIu32 ": not a multiple of %" PRIu32 " from %" PRIu32 " to %" PRIu32,
                   name, value, unit, min, max);
    }
    return ST_OK;
}

static enum status
check_config(const struct tiny_model_config *config)
{
    TRY(check_size("layers", config->L, 1, LAYERS_MAX_TINY, 1));
    TRY(check_size("width", config->C, 32, SIZE_MAX_TINY, 32));
    TRY(check_size("ffn", config->F, 32, SIZE_MAX_TINY, 32));
    TRY(check_size("heads", config->H, 1, 256, 1));
    TRY(check_size("kv-heads", config->Hkv, 1, config->H, 1));
    TRY(check_size("head-dim", config->D, 2, 256, 2));
    TRY(check_size("heads times head-dim", config->H * config->D, 32, SIZE_MAX_TINY, 32));
    TRY(check_size("vocab", config->V, TINY_MODEL_VOCAB_MIN, VOCAB_MAX_TINY, 1));
    TRY(check_size("context", config->context_max, 1, 1u << 24, 1));
    return check_size("heads", config->H, 1, 256, config->Hkv);
}

/* -- Tokenizer ----------------------------------------------------------------------------- */

struct vocabulary {
    const char **tokens; /* [V], into text */
    int32_t *types;      /* [V] */
    const char **merges; /* [n_merges], into text */
    char *text;          /* V * TOKEN_BYTES_MAX for tokens, as much for merges */
    uint32_t n_merges;
};

static void
free_vocabulary(struct vocabulary *v)
{
    mem_free(v->tokens);
    mem_free(v->types);
    mem_free(v->merges);
    mem_free(v->text);
}

/* The code point that byte-level BPE writes for a byte: itself where it prints, else 256 and up. */
static uint32_t
byte_symbol(uint32_t byte)
{
    uint32_t next = 256;

    for (uint32_t b = 0; b <= byte; b++) {
        bool prints = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;

        if (b == byte) {
            return prints ? b : next;
        }
        next += !prints;
    }
    return 0;
}

/* Writes byte `byte`'s symbol as UTF-8 (two bytes are enough: symbols end at 323). */
static size_t
put_symbol(char *to, uint32_t byte)
{
    uint32_t code = byte_symbol(byte);

    if (code < 128) {
        to[0] = (char)code;
        return 1;
    }
    to[0] = (char)(0xc0 | code >> 6);
    to[1] = (char)(0x80 | (code & 63));
    return 2;
}

/* Turns the merge at *at into its text ("left right") and the token that it makes; steps on. */
static void
expand_merge(const char **at, char *merge, char *token)
{
    for (; **at != ';'; (*at)++) {
        if (**at == ' ') {
            *merge++ = ' ';
        } else {
            uint32_t byte = **at == '_' ? ' ' : (uint8_t) * *at;

            merge += put_symbol(merge, byte);
            token += put_symbol(token, byte);
        }
    }
    *merge = '\0';
    *token = '\0';
    (*at)++;
}

static enum status
make_vocabulary(uint32_t V, struct vocabulary *v)
{
    static const char *const control[CONTROL_TOKENS] = {"<|endoftext|>", "<|im_start|>",
                                                        "<|im_end|>"};
    const char *at = merges_text;

    *v = (struct vocabulary){
        .tokens = mem_zalloc(V, sizeof(v->tokens[0])),
        .types = mem_zalloc(V, sizeof(v->types[0])),
        .merges = mem_zalloc(V, sizeof(v->merges[0])),
        .text = mem_zalloc(2 * (size_t)V, TOKEN_BYTES_MAX),
    };
    if (v->tokens == NULL || v->types == NULL || v->merges == NULL || v->text == NULL) {
        return ERR(ST_NO_MEMORY, "a vocabulary of %" PRIu32, V);
    }
    for (uint32_t id = 0; id < V; id++) {
        char *token = v->text + (size_t)id * TOKEN_BYTES_MAX;
        char *merge = v->text + ((size_t)V + id) * TOKEN_BYTES_MAX;

        v->tokens[id] = token;
        v->types[id] = TYPE_NORMAL;
        if (id < CONTROL_TOKENS) {
            v->tokens[id] = control[id];
            v->types[id] = TYPE_CONTROL;
        } else if (id < TINY_MODEL_VOCAB_MIN) {
            (void)put_symbol(token, id - CONTROL_TOKENS);
        } else if (*at != '\0') {
            expand_merge(&at, merge, token);
            v->merges[v->n_merges++] = merge;
        } else {
            (void)snprintf(token, TOKEN_BYTES_MAX, "<|unused_%" PRIu32 "|>", id);
            v->types[id] = TYPE_UNUSED;
        }
    }
    return ST_OK;
}

static void
write_tokenizer(struct gguf_writer *w, uint32_t V, const struct vocabulary *v)
{
    gguf_write_key_string(w, "tokenizer.ggml.model", "gpt2");
    gguf_write_key_string(w, "tokenizer.ggml.pre", "smollm");
    gguf_write_key_strings(w, "tokenizer.ggml.tokens", v->tokens, V);
    gguf_write_key_i32s(w, "tokenizer.ggml.token_type", v->types, V);
    gguf_write_key_strings(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    gguf_write_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    gguf_write_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    gguf_write_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    gguf_write_key_u32(w, "tokenizer.ggml.padding_token_id", 2);
    gguf_write_key_bool(w, "tokenizer.ggml.add_bos_token", false);
    gguf_write_key_bool(w, "tokenizer.ggml.add_space_prefix", false);
    gguf_write_key_string(w, "tokenizer.chat_template", chat_template);
}

static void
write_hyperparameters(struct gguf_writer *w, const struct tiny_model_config *config)
{
    gguf_write_key_string(w, "general.architecture", "llama");
    gguf_write_key_string(w, "general.type", "model");
    gguf_write_key_string(w, "general.name", "Kvasir tiny");
    gguf_write_key_u32(w, "llama.block_count", config->L);
    gguf_write_key_u32(w, "llama.context_length", config->context_max);
    gguf_write_key_u32(w, "llama.embedding_length", config->C);
    gguf_write_key_u32(w, "llama.feed_forward_length", config->F);
    gguf_write_key_u32(w, "llama.attention.head_count", config->H);
    gguf_write_key_u32(w, "llama.attention.head_count_kv", config->Hkv);
    gguf_write_key_u32(w, "llama.attention.key_length", config->D);
    gguf_write_key_u32(w, "llama.attention.value_length", config->D);
    gguf_write_key_f32(w, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_write_key_u32(w, "llama.rope.dimension_count", config->D);
    gguf_write_key_f32(w, "llama.rope.freq_base", ROPE_BASE);
    gguf_write_key_u32(w, "llama.vocab_size", config->V);
    if (config->rope == TINY_MODEL_ROPE_LINEAR) {
        gguf_write_key_string(w, "llama.rope.scaling.type", "linear");
        gguf_write_key_f32(w, "llama.rope.scaling.factor", 4.0f);
    }
    gguf_write_key_u32(w, "general.quantization_version", 2);
}

/* -- Weights ------------------------------------------------------------------------------- */

enum filling {
    FILL_NORM,      /* around 1 */
    FILL_EMBEDDING, /* small, rows of odd tokens smaller */
    FILL_MATRIX,    /* unit variance in, `gain` out */
    FILL_DIVISORS,  /* from 1 up to 8 */
};

struct tensor {
    char name[64];
    enum filling filling;
    uint32_t rows; /* 0: a vector */
    uint32_t cols;
    float gain;
};

static uint64_t
splitmix64(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Nearly normal with variance 1: four 16-bit uniforms added, an integer until the last step. */
static float
draw(uint64_t *state)
{
    uint64_t x = splitmix64(state);
    int32_t sum =
        (int32_t)((x & 0xffff) + (x >> 16 & 0xffff) + (x >> 32 & 0xffff) + (x >> 48)) - 2 * 0xffff;

    return (float)sum * (1.0f / 37837.2f); /* 65536 * sqrt(4 / 12) */
}

static void
fill_row(const struct tensor *tensor, uint32_t row, const struct vocabulary *v, uint64_t *state,
         float *out)
{
    float scale = tensor->gain;

    if (tensor->filling == FILL_MATRIX) {
        scale = tensor->gain / sqrtf((float)tensor->cols); /* sqrtf is exact by IEEE 754 */
    } else if (tensor->filling == FILL_EMBEDDING && v->types[row] != TYPE_NORMAL) {
        scale = tensor->gain * SMALL_ROW;
    }
    for (uint32_t i = 0; i < tensor->cols; i++) {
        out[i] = draw(state) * scale;
        if (tensor->filling == FILL_NORM) {
            out[i] += 1.0f;
        } else if (tensor->filling == FILL_DIVISORS) {
            out[i] = 1.0f + 7.0f * (float)i / (float)tensor->cols;
        }
    }
}

static enum status
write_data(struct gguf_writer *w, const struct tiny_model_config *config,
           const struct tensor *tensors, size_t count, const struct vocabulary *v)
{
    uint64_t state = config->seed;
    float *row = mem_zalloc(SIZE_MAX_TINY, sizeof(*row));
    uint8_t *packed = mem_zalloc(SIZE_MAX_TINY, sizeof(*row));
    enum status st = ST_OK;

    if (row == NULL || packed == NULL) {
        st = ERR(ST_NO_MEMORY, "a row of weights");
    }
    for (size_t i = 0; i < count && st == ST_OK; i++) {
        enum gguf_tensor_type type = tensors[i].rows == 0 ? GGUF_TENSOR_F32 : config->type;
        size_t row_bytes = dequant_bytes(type, tensors[i].cols);
        uint32_t rows = tensors[i].rows == 0 ? 1 : tensors[i].rows;

        gguf_write_data(w, NULL, 0); /* aligns */
        for (uint32_t r = 0; r < rows; r++) {
            fill_row(&tensors[i], r, v, &state, row);
            quant(type, row, tensors[i].cols, packed);
            gguf_write_bytes(w, packed, row_bytes);
        }
        gguf_write_data(w, NULL, 0);
    }
    mem_free(row);
    mem_free(packed);
    return st;
}

static struct tensor
layer_tensor(uint32_t layer, const char *name, enum filling filling, uint32_t rows, uint32_t cols,
             float gain)
{
    struct tensor tensor = {.filling = filling, .rows = rows, .cols = cols, .gain = gain};

    (void)snprintf(tensor.name, sizeof(tensor.name), "blk.%" PRIu32 ".%s.weight", layer, name);
    return tensor;
}

#define LAYER_TENSORS 9
#define MODEL_TENSORS 4 /* at most */

static size_t
list_tensors(const struct tiny_model_config *c, struct tensor *out)
{
    uint32_t q = c->H * c->D;
    uint32_t kv = c->Hkv * c->D;
    size_t n = 0;

    out[n++] = (struct tensor){"token_embd.weight", FILL_EMBEDDING, c->V, c->C, 0.15f};
    for (uint32_t l = 0; l < c->L; l++) {
        out[n++] = layer_tensor(l, "attn_norm", FILL_NORM, 0, c->C, 0.1f);
        out[n++] = layer_tensor(l, "attn_q", FILL_MATRIX, q, c->C, 1.5f);
        out[n++] = layer_tensor(l, "attn_k", FILL_MATRIX, kv, c->C, 1.5f);
        out[n++] = layer_tensor(l, "attn_v", FILL_MATRIX, kv, c->C, 1.0f);
        out[n++] = layer_tensor(l, "attn_output", FILL_MATRIX, c->C, q, 2.0f);
        out[n++] = layer_tensor(l, "ffn_norm", FILL_NORM, 0, c->C, 0.1f);
        out[n++] = layer_tensor(l, "ffn_gate", FILL_MATRIX, c->F, c->C, 1.0f);
        out[n++] = layer_tensor(l, "ffn_up", FILL_MATRIX, c->F, c->C, 1.0f);
        out[n++] = layer_tensor(l, "ffn_down", FILL_MATRIX, c->C, c->F, 1.5f);
    }
    out[n++] = (struct tensor){"output_norm.weight", FILL_NORM, 0, c->C, 0.1f};
    if (!c->has_tied_embeddings) {
        out[n++] = (struct tensor){"output.weight", FILL_EMBEDDING, c->V, c->C, 0.15f};
    }
    if (c->rope == TINY_MODEL_ROPE_FREQS) {
        out[n++] = (struct tensor){"rope_freqs.weight", FILL_DIVISORS, 0, c->D / 2, 0.0f};
    }
    return n;
}

static void
describe(struct gguf_writer *w, const struct tensor *tensor, enum gguf_tensor_type matrix_type)
{
    bool is_vector = tensor->rows == 0;
    enum gguf_tensor_type type = is_vector ? GGUF_TENSOR_F32 : matrix_type;
    uint64_t dims[2] = {tensor->cols, tensor->rows};
    size_t rows = is_vector ? 1 : tensor->rows;

    gguf_write_tensor(w, tensor->name, type, is_vector ? 1 : 2, dims,
                      rows * dequant_bytes(type, tensor->cols));
}

enum status
tiny_model_make(const struct tiny_model_config *config, void **bytes_out, size_t *length_out)
{
    struct gguf_writer writer = {0};
    struct vocabulary vocabulary = {0};
    struct tensor *tensors = NULL;
    enum status st;
    size_t count;

    TRY(check_config(config));
    st = make_vocabulary(config->V, &vocabulary);
    if (st != ST_OK) {
        goto done;
    }
    tensors = mem_zalloc((size_t)config->L * LAYER_TENSORS + MODEL_TENSORS, sizeof(*tensors));
    if (tensors == NULL) {
        st = ERR(ST_NO_MEMORY, "a list of tensors");
        goto done;
    }
    count = list_tensors(config, tensors);
    write_hyperparameters(&writer, config);
    write_tokenizer(&writer, config->V, &vocabulary);
    for (size_t i = 0; i < count; i++) {
        describe(&writer, &tensors[i], config->type);
    }
    st = write_data(&writer, config, tensors, count, &vocabulary);
    if (st == ST_OK) {
        st = gguf_write_finish(&writer);
    }
    if (st == ST_OK) {
        *bytes_out = writer.bytes; /* ours no more */
        *length_out = writer.length;
        writer.bytes = NULL;
    }

done:
    gguf_write_deinit(&writer);
    free_vocabulary(&vocabulary);
    mem_free(tensors);
    return st;
}

enum status
tiny_model_write(const struct tiny_model_config *config, const char *path)
{
    enum status st = ST_OK;
    void *bytes;
    size_t length;
    FILE *file;

    TRY(tiny_model_make(config, &bytes, &length));
    file = fopen(path, "wb");
    if (file == NULL) {
        st = ERR(ST_SYSTEM, "%s: cannot create: %s", path, strerror(errno));
    } else {
        bool is_written = fwrite(bytes, 1, length, file) == length;

        if (fclose(file) != 0 || !is_written) {
            st = ERR(ST_SYSTEM, "%s: cannot write: %s", path, strerror(errno));
        }
    }
    mem_free(bytes);
    return st;
}
