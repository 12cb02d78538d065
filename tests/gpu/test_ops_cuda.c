/* SPDX-License-Identifier: Apache-2.0 */
/* Every operation of the CUDA instance against its plain twin, on the device.
 *
 * Inputs are bf16 numbers; the twin computes in float32 or wider from the same numbers.
 * Tolerances: an output rounded once to bf16 is within 2^-8 of itself; attention also rounds the
 * rotated Q (2^-9 of each product) and P (2^-9 of each term), errors that average out over keys, so
 * the relative error in the 2-norm is asked to be below 6e-3 (3.2e-3 by emulation). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "tests/support/gpu_scene.h"

START_TEST(rmsnorm_adds_and_normalises_as_its_twin)
{
    /* Small ones first: one row, of one piece; two rows a CTA, a last one alone; the widest. */
    const uint32_t shapes[][2] = {{1, 8},    {3, 576},   {515, 72},   {2, 16384},   {1, 64},
                                  {5, 1048}, {17, 4096}, {512, 4104}, {1026, 4096}, {515, 16384}};

    for (size_t i = 0; i < gpu_cases(4, sizeof(shapes) / sizeof(shapes[0])); i++) {
        for (int has_delta = 0; has_delta < 2; has_delta++) {
            uint32_t T = shapes[i][0], C = shapes[i][1];
            struct tensor x = tensor_new((size_t)T * C, true);
            struct tensor delta = tensor_new((size_t)T * C, true);
            struct tensor weight = tensor_new(C, true);
            struct tensor out = tensor_new((size_t)T * C, false);
            struct rmsnorm_args args = {
                x.host, has_delta ? delta.host : NULL, weight.host, out.host, T, C, 1e-5f};

            CHECK_OK(rmsnorm_ref(args));
            args.x = x.device;
            args.delta = has_delta ? delta.device : NULL;
            args.weight = weight.device;
            args.out = out.device;
            CHECK_OK(gpu->rmsnorm(gpu, args));
            compare_device("rmsnorm out", out.device, out.host, out.count, false, 5e-3);
            compare_device("rmsnorm x", x.device, x.host, x.count, false, 3e-3);
            tensor_free(&x);
            tensor_free(&delta);
            tensor_free(&weight);
            tensor_free(&out);
        }
    }
}
END_TEST

static void
read_row(const void *x, uint32_t row, uint32_t C, uint16_t *row_out)
{
    CHECK_OK(gpu->download(gpu, row_out, (const uint16_t *)x + (size_t)row * C, C * 2));
    CHECK_OK(gpu->finish(gpu));
}

/* args.T rows are normed, then this one, as it was before, alone: the bytes are the same. */
static void
check_row_alone(struct rmsnorm_args args, uint32_t row)
{
    const size_t bytes = (size_t)args.C * 2, at = row * bytes;
    uint16_t *got[3]; /* x as it was; x and out in company; x and out alone */

    for (int i = 0; i < 3; i++) {
        got[i] = malloc(2 * bytes);
    }
    read_row(args.x, row, args.C, got[0]);
    CHECK_OK(gpu->rmsnorm(gpu, args));
    read_row(args.x, row, args.C, got[1]);
    read_row(args.out, row, args.C, got[1] + args.C);
    args.x = (char *)args.x + at;
    args.delta = args.delta != NULL ? (const char *)args.delta + at : NULL;
    args.out = (char *)args.out + at;
    args.T = 1;
    CHECK_OK(gpu->upload(gpu, args.x, got[0], bytes));
    CHECK_OK(gpu->rmsnorm(gpu, args));
    read_row(args.x, 0, args.C, got[2]);
    read_row(args.out, 0, args.C, got[2] + args.C);
    ck_assert_msg(memcmp(got[1], got[2], 2 * bytes) == 0, "row %u of width %u", row, args.C);
    for (int i = 0; i < 3; i++) {
        free(got[i]);
    }
}

START_TEST(a_row_is_normed_to_the_same_bits_in_any_company)
{
    const uint32_t T = 515, widths[] = {8, 576, 4096, 4104, 16384};

    for (size_t i = 0; i < gpu_cases(1, sizeof(widths) / sizeof(widths[0])); i++) {
        const size_t count = (size_t)T * widths[i];
        struct tensor x = tensor_new(count, true), delta = tensor_new(count, true);
        struct tensor weight = tensor_new(widths[i], true), out = tensor_new(count, false);

        for (uint32_t row = 0; row < T; row += 257) {
            const void *deltas[] = {delta.device, NULL};

            for (int k = 0; k < 2; k++) {
                check_row_alone((struct rmsnorm_args){x.device, deltas[k], weight.device,
                                                      out.device, T, widths[i], 1e-5f},
                                row);
            }
        }
        tensor_free(&x);
        tensor_free(&delta);
        tensor_free(&weight);
        tensor_free(&out);
    }
}
END_TEST

static void
check_swiglu_and_embed(uint32_t T)
{
    const uint32_t F = 1536, V = 1000;
    struct tensor gate_up = tensor_new((size_t)T * 2 * F, true);
    struct tensor out = tensor_new((size_t)T * F, false);
    struct swiglu_args args = {gate_up.host, out.host, T, F};
    struct tensor table = tensor_new((size_t)V * F, true);
    uint32_t ids[2100] = {0};

    CHECK_OK(swiglu_ref(args));
    args.gate_up = gate_up.device;
    args.out = out.device;
    CHECK_OK(gpu->swiglu(gpu, args));
    compare_device("swiglu", out.device, out.host, out.count, false, 3e-3);
    for (uint32_t t = 0; t < T; t++) {
        ids[t] = random_u32() % V;
    }
    ids[0] = 0;
    ids[1] = V - 1;
    void *device_ids = to_device(ids, sizeof(ids));
    struct embed_args embed = {
        .table = table.host, .ids = ids, .out = out.host, .T = T, .C = F, .V = V};
    CHECK_OK(embed_ref(embed));
    embed.table = table.device;
    embed.ids = device_ids;
    embed.out = out.device;
    CHECK_OK(gpu->embed(gpu, embed));
    compare_device("embed", out.device, out.host, out.count, false, 0.0);
    gpu->release(gpu, device_ids);
    tensor_free(&gate_up);
    tensor_free(&out);
    tensor_free(&table);
}

START_TEST(swiglu_and_embed_equal_their_twins)
{
    check_swiglu_and_embed(37);
    check_swiglu_and_embed(2100); /* for many rows embed has other CTAs */
}
END_TEST

START_TEST(gemm_equals_its_twin_for_every_bucket)
{
    const uint32_t Ms[] = {1, 2, 3, 8, 9, 16, 17, 100, 128, 513};

    /* Under a sanitizer one: cuBLASLt's kernels are not what it looks for. */
    for (size_t i = 0; i < gpu_cases(1, sizeof(Ms) / sizeof(Ms[0])); i++) {
        for (uint32_t is_f32 = 0; is_f32 < 2; is_f32++) {
            const uint32_t M = Ms[i], N = 960, K = 576;
            struct tensor x = tensor_new((size_t)M * K, true);
            struct tensor w = tensor_new((size_t)N * K, true);
            struct tensor y = tensor_new((size_t)M * N * 2, false); /* room for f32 */
            struct gemm_args args = {
                .x = x.host, .w = w.host, .y = y.host, .M = M, .N = N, .K = K, .is_y_f32 = is_f32};
            char what[64];

            CHECK_OK(gemm_ref(args));
            args.x = x.device;
            args.w = w.device;
            args.y = y.device;
            CHECK_OK(gpu->gemm(gpu, args));
            (void)snprintf(what, sizeof(what), "gemm M=%u %s", M, is_f32 ? "f32" : "bf16");
            compare_device(what, y.device, y.host, (size_t)M * N, is_f32, is_f32 ? 1e-5 : 3e-3);
            tensor_free(&x);
            tensor_free(&w);
            tensor_free(&y);
        }
    }
}
END_TEST

/* A product of few rows and, on the host, the bits of one row alone. */
static void
check_few_rows(uint32_t M, uint32_t N, uint32_t K, uint32_t is_f32)
{
    const size_t row_bytes = (size_t)N * (is_f32 ? 4 : 2);
    struct tensor x = tensor_new((size_t)M * K, true);
    struct tensor w = tensor_new((size_t)N * K, true);
    struct tensor y = tensor_new((size_t)M * N * 2, false); /* room for f32 */
    struct gemm_args args = {
        .x = x.host, .w = w.host, .y = y.host, .M = M, .N = N, .K = K, .is_y_f32 = is_f32};
    uint8_t *rows = malloc(row_bytes * M);
    uint8_t *alone = malloc(row_bytes);
    char what[64];

    memset(rows, 0xff, row_bytes * M); /* NaN */
    CHECK_OK(gemm_ref(args));
    args = (struct gemm_args){
        .x = x.device, .w = w.device, .y = y.device, .M = M, .N = N, .K = K, .is_y_f32 = is_f32};
    CHECK_OK(gpu->upload(gpu, y.device, rows, row_bytes * M));
    CHECK_OK(gpu->gemm(gpu, args));
    CHECK_OK(gpu->download(gpu, rows, y.device, row_bytes * M));
    (void)snprintf(what, sizeof(what), "gemm %u x %u x %u %s", M, N, K, is_f32 ? "f32" : "bf16");
    compare_device(what, y.device, y.host, (size_t)M * N, is_f32, is_f32 ? 1e-5 : 3e-3);

    args.x = (const uint16_t *)x.device + (size_t)(M - 1) * K;
    args.M = 1;
    CHECK_OK(gpu->gemm(gpu, args));
    CHECK_OK(gpu->download(gpu, alone, y.device, row_bytes));
    CHECK_OK(gpu->finish(gpu));
    ck_assert_msg(memcmp(alone, rows + (M - 1) * row_bytes, row_bytes) == 0,
                  "%s: the last row alone has other bits", what);
    free(alone);
    free(rows);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&y);
}

START_TEST(few_rows_equal_their_twin_and_keep_their_bits_in_any_company)
{
    /* Fewer tiles than multiprocessors, many; pieces of K that are short, alone, many. */
    const struct {
        uint32_t N, K;
    } shapes[] = {{24, 32}, {1096, 1056}, {3200, 576}, {2120, 4096}, {128, 14336}};
    const uint32_t Ms[] = {2, 1};

    for (size_t i = 0; i < gpu_cases(2, sizeof(shapes) / sizeof(shapes[0])); i++) {
        for (size_t k = 0; k < gpu_cases(1, sizeof(Ms) / sizeof(Ms[0])); k++) {
            check_few_rows(Ms[k], shapes[i].N, shapes[i].K, k % 2);
            check_few_rows(Ms[k], shapes[i].N, shapes[i].K, 1 - k % 2);
        }
    }
}
END_TEST

/* --- attention ------------------------------------------------------------------------------- */

START_TEST(prefill_equals_its_twin_for_every_head_layout_and_block_size)
{
    for (size_t i = 0; i < gpu_cases(2, HEADS); i++) {
        for (uint32_t P = 16; P <= gpu_cases(16, 64); P *= 2) {
            const uint32_t docs[] = {1, P - 1, P, P + 1, 0, 150, 64, 257};
            struct scene s;
            char what[96];

            scene_begin(&s, P, heads[i].H, heads[i].Hkv, heads[i].D, 97);
            use_gpu_for(&s);
            scene_add_seq(&s, docs, 8, 0, 40, 40);         /* a query over documents */
            scene_add_seq(&s, NULL, 0, 0, 300, 300);       /* a document under construction */
            scene_add_seq(&s, docs, 3, 70000, 33, 5);      /* a later chunk, far offsets */
            scene_add_seq(&s, docs, 1, 2147483000u, 2, 2); /* offsets near 2^31 */
            scene_add_seq(&s, NULL, 0, 0, 1, 1);
            scene_upload(&s);
            (void)snprintf(what, sizeof(what), "prefill P=%u H=%u/%u D=%u", P, heads[i].H,
                           heads[i].Hkv, heads[i].D);
            check_prefill(&s, what);
            scene_free(&s);
        }
    }
}
END_TEST

START_TEST(a_short_query_over_long_documents_is_split_and_still_right)
{
    const uint32_t docs[] = {4096, 3000, 129, 4096, 1};
    struct scene s;

    scene_begin_llama(&s, 400);
    use_gpu_for(&s);
    scene_add_seq(&s, docs, 5, 0, 64, 64);
    scene_upload(&s);
    check_prefill(&s, "prefill 64 x 11k, split");
    scene_free(&s);
}
END_TEST

START_TEST(decode_equals_its_twin_for_every_head_layout_and_block_size)
{
    for (size_t i = 0; i < gpu_cases(2, HEADS); i++) {
        for (uint32_t P = 16; P <= gpu_cases(16, 64); P *= 2) {
            const uint32_t docs[] = {1, P - 1, P, P + 1, 0, 150, 1024, 1025, 2500};
            struct scene s;
            char what[96];

            scene_begin(&s, P, heads[i].H, heads[i].Hkv, heads[i].D, 97);
            use_gpu_for(&s);
            for (uint32_t n = 0; n <= 9; n += 3) {
                scene_add_seq(&s, docs, n, n * 30000, 1 + n * 7, 1);
            }
            scene_add_seq(&s, docs, 2, 2147483000u, 12, 1);
            scene_upload(&s);
            (void)snprintf(what, sizeof(what), "decode P=%u H=%u/%u D=%u", P, heads[i].H,
                           heads[i].Hkv, heads[i].D);
            check_decode(&s, what);
            scene_free(&s);
        }
    }
}
END_TEST

START_TEST(decode_over_many_short_documents_and_few_long_ones_is_right)
{
    static const uint32_t lengths[] = {128, 128, 100, 1, 64, 150, 33, 4096};
    uint32_t docs[100];
    struct scene s;

    scene_begin_llama(&s, 400);
    use_gpu_for(&s);
    for (uint32_t i = 0; i < 100; i++) {
        docs[i] = lengths[i % 7];
    }
    docs[50] = 4096;
    scene_add_seq(&s, docs, 100, 0, 12, 1);
    scene_add_seq(&s, docs, 3, 0, 70, 1);
    scene_add_seq(&s, docs + 50, 1, 0, 1, 1);
    scene_upload(&s);
    check_decode(&s, "decode over 100 documents");
    scene_free(&s);
}
END_TEST

static void
poison_slot(const struct kv_layout *layout, char *block, uint32_t slot)
{
    const uint16_t nan = 0x7fc0;

    for (uint32_t x = 0; x < layout->L * 2 * layout->Hkv * layout->D; x++) {
        uint32_t d = x % layout->D, head = x / layout->D % layout->Hkv;
        uint32_t part = x / layout->D / layout->Hkv;

        memcpy(block
                   + kv_layout_offset(layout, part / 2, part % 2 ? KV_PART_V : KV_PART_K, head,
                                      slot, d),
               &nan, sizeof(nan));
    }
}

START_TEST(garbage_behind_a_documents_end_never_reaches_the_output)
{
    const uint32_t docs[] = {5, 37, 64};
    struct scene s;

    scene_begin_llama(&s, 97);
    use_gpu_for(&s);
    scene_add_seq(&s, docs, 3, 0, 9, 9);
    /* Every segment gets blocks of its own, then all slots past its tokens become NaN. */
    for (uint32_t i = 0; i < s.n_ids; i++) {
        s.ids[i] = i;
    }
    for (uint32_t g = 0; g < s.n_segs; g++) {
        const struct attn_segment *seg = &s.segs[g];
        uint32_t end = (seg->n_tokens + 31) / 32 * 32;
        for (uint32_t t = seg->n_tokens; t < end; t++) {
            char *block =
                (char *)s.kv + s.ids[seg->block_first + t / 32] * kv_layout_block_bytes(&s.layout);
            poison_slot(&s.layout, block, t % 32);
        }
    }
    scene_upload(&s);
    check_prefill(&s, "prefill over poisoned tails");
    s.seqs[0].n_rows = 1;
    s.seqs[0].pos_first += 8;
    CHECK_OK(gpu->upload(gpu, s.d_seqs, s.seqs, sizeof(s.seqs)));
    check_decode(&s, "decode over poisoned tails");
    scene_free(&s);
}
END_TEST

START_TEST(rope_append_writes_what_its_twin_writes)
{
    for (uint32_t D = 64; D <= 128; D *= 2) {
        const uint32_t H = 9, Hkv = 3, T = 70, n_blocks = 8;
        struct kv_layout layout = {32, 2, Hkv, D, KV_BF16, KV_LAYOUT_CK8};
        size_t bytes = kv_layout_block_bytes(&layout) * n_blocks;
        struct tensor qkv = tensor_new((size_t)T * (H + 2 * Hkv) * D, true);
        struct tensor q = tensor_new((size_t)T * H * D, false);
        uint16_t *kv = calloc(1, bytes);
        uint32_t block[70], slot[70], pos[70];
        double inv_freq[64];

        for (uint32_t t = 0; t < T; t++) {
            pos[t] = t < 35 ? t : 100000 + t;
            block[t] = 7 - t / 32;
            slot[t] = t % 32;
        }
        for (uint32_t i = 0; i < D / 2; i++) {
            inv_freq[i] = pow(10000.0, -2.0 * i / D);
        }
        struct rope_append_args args = {.qkv = qkv.host,
                                        .q_out = q.host,
                                        .kv = kv,
                                        .layout = layout,
                                        .layer = 1,
                                        .n_blocks = n_blocks,
                                        .row_block = block,
                                        .row_slot = slot,
                                        .row_pos = pos,
                                        .inv_freq = inv_freq,
                                        .rope_scale = 1.0f,
                                        .T = T,
                                        .H = H};
        CHECK_OK(rope_append_ref(args));
        void *d_kv;
        CHECK_OK(gpu->alloc(gpu, bytes, &d_kv));
        args.qkv = qkv.device;
        args.q_out = q.device;
        args.kv = d_kv;
        args.row_block = to_device(block, sizeof(block));
        args.row_slot = to_device(slot, sizeof(slot));
        args.row_pos = to_device(pos, sizeof(pos));
        args.inv_freq = to_device(inv_freq, sizeof(inv_freq));
        CHECK_OK(gpu->rope_append(gpu, args));
        compare_device("rope_append q", q.device, q.host, q.count, false, 0.0);
        float *want = malloc(bytes / 2 * sizeof(*want));
        for (size_t i = 0; i < bytes / 2; i++) {
            want[i] = from_bf16(kv[i]);
        }
        compare_device("rope_append kv", d_kv, want, bytes / 2, false, 1e-4);
        free(want);
        free(kv);
        release_all((const void *[]){d_kv, args.row_block, args.row_slot, args.row_pos,
                                     args.inv_freq, NULL});
        tensor_free(&qkv);
        tensor_free(&q);
    }
}
END_TEST

START_TEST(rope_copy_writes_what_its_twin_writes)
{
    for (uint32_t D = 64; D <= 128; D *= 2) {
        const uint32_t n_blocks = 7;
        struct kv_layout layout = {32, 3, 5, D, KV_BF16, KV_LAYOUT_CK8};
        size_t bytes = kv_layout_block_bytes(&layout) * n_blocks;
        struct tensor kv = tensor_new(bytes / 2, true);
        uint16_t *halves = malloc(bytes);
        float *want = malloc(bytes / 2 * sizeof(*want));
        uint32_t from[3] = {6, 0, 3}, to[3] = {1, 5, 2}, turn[3] = {0, 77, 130000};
        double inv_freq[64];

        for (uint32_t i = 0; i < D / 2; i++) {
            inv_freq[i] = pow(500000.0, -2.0 * i / D);
        }
        for (size_t i = 0; i < bytes / 2; i++) {
            halves[i] = to_bf16(kv.host[i]);
        }
        struct rope_copy_args args = {.kv = halves,
                                      .layout = layout,
                                      .n_blocks = n_blocks,
                                      .from = from,
                                      .to = to,
                                      .turn = turn,
                                      .inv_freq = inv_freq,
                                      .N = 3};
        CHECK_OK(rope_copy_ref(args));
        for (size_t i = 0; i < bytes / 2; i++) {
            want[i] = from_bf16(halves[i]);
        }
        args.kv = kv.device;
        args.from = to_device(from, sizeof(from));
        args.to = to_device(to, sizeof(to));
        args.turn = to_device(turn, sizeof(turn));
        args.inv_freq = to_device(inv_freq, sizeof(inv_freq));
        CHECK_OK(gpu->rope_copy(gpu, args));
        compare_device("rope_copy kv", kv.device, want, bytes / 2, false, 1e-4);
        release_all((const void *[]){args.from, args.to, args.turn, args.inv_freq, NULL});
        free(want);
        free(halves);
        tensor_free(&kv);
    }
}
END_TEST

/* --- sampling -------------------------------------------------------------------------------- */

static void
fill_params(struct sample_params *params, uint32_t R, const uint32_t *history,
            const struct sample_adjust *adjusts, const uint32_t *allowed)
{
    for (uint32_t r = 0; r < R; r++) {
        params[r] = (struct sample_params){.temperature = r % 4 == 0 ? 0.0f : 0.3f * (float)(r % 4),
                                           .top_k = r % 3 == 0 ? 50 : 0,
                                           .top_p = r % 5 == 0 ? 0.9f : 1.0f,
                                           .min_p = r % 7 == 0 ? 0.02f : 0.0f,
                                           .repetition_penalty = r % 2 ? 1.0f : 1.3f,
                                           .seed = 1000 + r,
                                           .counter = r,
                                           .history = history,
                                           .n_history = 8,
                                           .adjusts = adjusts,
                                           .n_adjusts = r % 4 == 3 ? 3 : 0,
                                           .allowed = r % 5 == 1 ? allowed : NULL,
                                           .n_logprobs = r % 6};
    }
}

START_TEST(sampling_agrees_with_its_twin)
{
    const uint32_t V = (uint32_t)gpu_cases(3001, 49152), R = (uint32_t)gpu_cases(7, 64);
    float *logits = malloc((size_t)R * V * sizeof(*logits));
    uint32_t history[8] = {5, 5, 100, V - 1, 7, 7, 7, 0};
    const struct sample_adjust adjusts[3] = {{5, 3.0f}, {V - 1, -2.5f}, {17, -INFINITY}};
    uint32_t *allowed = malloc((V + 31) / 32 * sizeof(*allowed));
    struct sample_params params[64];
    struct sample_result want[64], got[64];
    void *workspace, *d_results;
    float *host_workspace = malloc(sample_workspace_bytes(R, V));
    uint32_t differ = 0;

    for (size_t i = 0; i < (size_t)R * V; i++) {
        logits[i] = (float)(random_u32() % 1000000) / 50000.0f - 10.0f;
    }
    for (uint32_t i = 0; i < (V + 31) / 32; i++) {
        allowed[i] = random_u32() & random_u32();
    }
    fill_params(params, R, history, adjusts, allowed);
    CHECK_OK(sample_ref((struct sample_args){logits, params, want, host_workspace, R, V}));
    void *d_history = to_device(history, sizeof(history));
    void *d_adjusts = to_device(adjusts, sizeof(adjusts));
    void *d_allowed = to_device(allowed, (V + 31) / 32 * sizeof(*allowed));
    for (uint32_t r = 0; r < R; r++) {
        params[r].history = d_history;
        params[r].adjusts = d_adjusts;
        params[r].allowed = params[r].allowed == NULL ? NULL : d_allowed;
    }
    void *d_logits = to_device(logits, (size_t)R * V * sizeof(*logits));
    void *d_params = to_device(params, sizeof(params));
    CHECK_OK(gpu->alloc(gpu, sizeof(got), &d_results));
    CHECK_OK(gpu->alloc(gpu, sample_workspace_bytes(R, V), &workspace));
    CHECK_OK(
        gpu->sample(gpu, (struct sample_args){d_logits, d_params, d_results, workspace, R, V}));
    CHECK_OK(gpu->download(gpu, got, d_results, sizeof(got)));
    CHECK_OK(gpu->finish(gpu));
    for (uint32_t r = 0; r < R; r++) {
        differ += got[r].id != want[r].id;
        if (got[r].id == want[r].id) {
            ck_assert_float_eq_tol(got[r].logprob, want[r].logprob, 1e-4f);
        }
        ck_assert_uint_eq(got[r].n_top, want[r].n_top);
        for (uint32_t i = 0; i < got[r].n_top; i++) {
            ck_assert_uint_eq(got[r].top_ids[i], want[r].top_ids[i]);
        }
        if (params[r].temperature == 0.0f) {
            ck_assert_uint_eq(got[r].id, want[r].id);
        }
    }
    printf("sampling: %u of %u draws differ\n", differ, R);
    /* u lands within 2^-32 * V of a boundary between two ids with probability below 1e-4 a draw. */
    ck_assert_uint_le(differ, 1);
    logits[3] = NAN;
    CHECK_OK(gpu->upload(gpu, d_logits, logits, 4 * sizeof(*logits)));
    CHECK_OK(
        gpu->sample(gpu, (struct sample_args){d_logits, d_params, d_results, workspace, R, V}));
    CHECK_OK(gpu->download(gpu, got, d_results, sizeof(got)));
    CHECK_OK(gpu->finish(gpu));
    ck_assert_uint_eq(got[0].id, SAMPLE_REFUSED);
    release_all((const void *[]){d_history, d_adjusts, d_allowed, d_logits, d_params, d_results,
                                 workspace, NULL});
    free(allowed);
    free(logits);
    free(host_workspace);
}
END_TEST

/* Copies `bytes` to the device and back, from and to pinned memory or not, beside small parts whose
 * order matters: of two that go to one place the later one stays, and what comes back is what went
 * before it. */
static void
there_and_back(const char *host, char *back, char *device, size_t at, size_t bytes)
{
    memset(back, 0x55, at + bytes + 4);
    CHECK_OK(gpu->upload(gpu, device + at, host, bytes));
    CHECK_OK(gpu->upload(gpu, device + at, host + 4, bytes)); /* the one that counts */
    CHECK_OK(gpu->download(gpu, back + at, device + at, bytes));
    CHECK_OK(gpu->fill(gpu, device + at, 0, bytes)); /* after that */
    CHECK_OK(gpu->finish(gpu));
    ck_assert(memcmp(back + at, host + 4, bytes) == 0);
    ck_assert_int_eq(back[at + bytes], 0x55);
    CHECK_OK(gpu->download(gpu, back + at, device + at, bytes));
    CHECK_OK(gpu->mark(gpu));
    CHECK_OK(gpu->wait(gpu));
    ck_assert_int_eq(back[at], 0);
    ck_assert(memcmp(back + at, back + at + 1, bytes - 1) == 0);
}

START_TEST(copies_of_any_size_and_place_arrive_whole_and_in_order)
{
    static const size_t sizes[] = {4,     8,       20,         4096,           4100,
                                   65536, 1000004, (1u << 20), (1u << 20) + 4, 3};
    const size_t room = (1u << 20) + 64;
    void *pinned[2], *device;
    char *pageable[2] = {malloc(room), malloc(room)};

    CHECK_OK(gpu->alloc_host(gpu, room, &pinned[0]));
    CHECK_OK(gpu->alloc_host(gpu, room, &pinned[1]));
    CHECK_OK(gpu->alloc(gpu, room, &device));
    for (size_t i = 0; i < room; i++) {
        ((char *)pinned[0])[i] = pageable[0][i] = (char)random_u32();
    }
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (size_t at = 0; at < 24; at += 4) {
            there_and_back(pinned[0], pinned[1], device, at, sizes[i]);
        }
        there_and_back(pageable[0], pageable[1], device, 4, sizes[i]);
        there_and_back(pageable[0], pinned[1], device, 16, sizes[i]);
    }
    /* More parts than one launch takes. */
    for (size_t i = 0; i < 50; i++) {
        CHECK_OK(gpu->upload(gpu, (char *)device + 40 * i, (char *)pinned[0] + 44 * i, 40));
    }
    CHECK_OK(gpu->download(gpu, pinned[1], device, 50 * 40));
    CHECK_OK(gpu->finish(gpu));
    for (size_t i = 0; i < 50; i++) {
        ck_assert_mem_eq((char *)pinned[1] + 40 * i, (char *)pinned[0] + 44 * i, 40);
    }
    gpu->release_host(gpu, pinned[0]);
    gpu->release_host(gpu, pinned[1]);
    gpu->release(gpu, device);
    free(pageable[0]);
    free(pageable[1]);
}
END_TEST

GPU_MAIN("ops_cuda", gpu_open(), copies_of_any_size_and_place_arrive_whole_and_in_order,
         rmsnorm_adds_and_normalises_as_its_twin, a_row_is_normed_to_the_same_bits_in_any_company,
         swiglu_and_embed_equal_their_twins, gemm_equals_its_twin_for_every_bucket,
         few_rows_equal_their_twin_and_keep_their_bits_in_any_company,
         rope_append_writes_what_its_twin_writes, rope_copy_writes_what_its_twin_writes,
         sampling_agrees_with_its_twin,
         prefill_equals_its_twin_for_every_head_layout_and_block_size,
         a_short_query_over_long_documents_is_split_and_still_right,
         decode_equals_its_twin_for_every_head_layout_and_block_size,
         decode_over_many_short_documents_and_few_long_ones_is_right,
         garbage_behind_a_documents_end_never_reaches_the_output)
