/* SPDX-License-Identifier: Apache-2.0 */
// gemm on a device: cuBLASLt with a cache of measured algorithms.
//
// y[M,N] = x[M,K] w[N,K]^T in row-major terms is Y^T = W X^T in cuBLAS's column-major ones: A = w
// transposed, B = x, both with leading dimension K.
//
// An algorithm is chosen per (N, K, bucket of M, type of y): at the first use the candidates of the
// heuristic are timed on the caller's own buffers and the fastest stays.  A worker uses every
// bucket before it serves and then settles, so that no step of a request ever measures (or
// synchronises): a shape that comes later gets the heuristic's first.  What was measured goes to
// the next worker of the device (gemm_cuda_tuning), which so chooses the same at once.
//
// Deterministic: a row must not depend on its company, nor on what was fastest when this process
// started.  So every product has the same M (more rows are more products, fewer are padded), the
// algorithm is cuBLASLt's first for that shape, not the fastest measured, and none that splits K.
// M = 128 is where reading the weights still covers the arithmetic (H200: 166 rows), so a decode
// step costs hardly more; a long prompt reads the weights once for each 128 of its rows, or 1024.
//
// Numerics: bf16 in, float32 accumulation.
#include "kernels/gemm_cuda.h"

#include <cstring>
#include <new>

#include <cublasLt.h>

#include "common/clock.h"
#include "kernels/device/cuda_check.cuh"

// Like CU_TRY for cuBLAS.
#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t cublas_status_ = (call);                                                    \
        if (cublas_status_ != CUBLAS_STATUS_SUCCESS) {                                             \
            return ERR(ST_DEVICE, "%s: %s", #call, cublasLtGetStatusName(cublas_status_));         \
        }                                                                                          \
    } while (0)

namespace {

constexpr size_t kWorkspaceBytes = 64u << 20; // what NVIDIA recommends for Hopper is 32 MiB
constexpr int kCandidates = 24;
constexpr int kTimedRuns = 3;
constexpr uint64_t kChoiceUs = 60000; // then no other candidate of an entry is begun
constexpr int kEntriesMax = 256;
constexpr uint32_t kWideRows = 8 * GEMM_CUDA_FIXED_ROWS; // that read the weights once

struct Entry {
    uint32_t N, K, bucket;
    uint32_t is_y_f32;
    cublasLtMatmulAlgo_t algo;
    enum {
        UNTRIED,
        SAME_BITS,
        OTHER_BITS
    } wide; // the algorithm over kWideRows rows at once
};

// What another worker gets; bytes of an algorithm mean the same to the same library and device.
struct Tuning {
    char device[64];
    size_t library; // cublasLtGetVersion
    uint32_t sm_count;
    uint32_t is_deterministic;
    uint32_t n_entries;
    Entry entries[kEntriesMax];
};

static_assert(sizeof(Tuning) <= OPS_TUNING_MAX, "it has a place of its own in the weights arena");

size_t
tuning_bytes(const Tuning &tuning)
{
    return offsetof(Tuning, entries) + tuning.n_entries * sizeof(Entry);
}

// Descriptors live on the stack: no allocation a call.
struct Problem {
    cublasLtMatmulDescOpaque_t op;
    cublasLtMatrixLayoutOpaque_t w, x, y;
};

enum status
problem_init(const gemm_args &args, Problem *problem)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const cudaDataType_t y_type = args.is_y_f32 ? CUDA_R_32F : CUDA_R_16BF;

    CUBLAS_TRY(cublasLtMatmulDescInit(&problem->op, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute(&problem->op, CUBLASLT_MATMUL_DESC_TRANSA,
                                              &transposed, sizeof(transposed)));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&problem->w, CUDA_R_16BF, args.K, args.N, args.K));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&problem->x, CUDA_R_16BF, args.K, args.M, args.K));
    CUBLAS_TRY(cublasLtMatrixLayoutInit(&problem->y, y_type, args.N, args.M, args.N));
    return ST_OK;
}

} // namespace

struct gemm_cuda {
    bool is_settled; // nothing is measured any more
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    void *workspace;
    cudaEvent_t begin, end;
    Tuning tuning;
};

namespace {

enum status
run(gemm_cuda *gemm, const gemm_args &args, Problem &problem, const cublasLtMatmulAlgo_t *algo,
    cudaStream_t stream)
{
    const float one = 1.0f;
    const float zero = 0.0f;

    CUBLAS_TRY(cublasLtMatmul(gemm->handle, &problem.op, &one, args.w, &problem.w, args.x,
                              &problem.x, &zero, args.y, &problem.y, args.y, &problem.y, algo,
                              gemm->workspace, kWorkspaceBytes, stream));
    return ST_OK;
}

// Times one candidate on the real buffers; leaves *best_ms alone if it fails or is slower, and then
// stops early.  In a step the weights come from memory, never from L2: the workspace, which is
// larger, is written before each run, so that none finds them there.
void
try_candidate(gemm_cuda *gemm, const gemm_args &args, Problem &problem,
              const cublasLtMatmulAlgo_t &algo, cudaStream_t stream, float *best_ms, Entry *entry)
{
    float sum_ms = 0.0f;

    if (run(gemm, args, problem, &algo, stream) != ST_OK) {
        return;
    }
    for (int i = 0; i < kTimedRuns && sum_ms < *best_ms; i++) {
        float ms = 0.0f;

        if (cudaMemsetAsync(gemm->workspace, 0, kWorkspaceBytes, stream) != cudaSuccess
            || cudaEventRecord(gemm->begin, stream) != cudaSuccess
            || run(gemm, args, problem, &algo, stream) != ST_OK
            || cudaEventRecord(gemm->end, stream) != cudaSuccess
            || cudaEventSynchronize(gemm->end) != cudaSuccess
            || cudaEventElapsedTime(&ms, gemm->begin, gemm->end) != cudaSuccess) {
            return;
        }
        sum_ms += ms;
    }
    if (sum_ms < *best_ms) {
        *best_ms = sum_ms;
        entry->algo = algo;
    }
}

enum status
choose(gemm_cuda *gemm, const gemm_args &args, Problem &problem, cudaStream_t stream, Entry *entry)
{
    cublasLtMatmulHeuristicResult_t found[kCandidates];
    const uint64_t begin_us = clock_now_us();
    float best_ms = INFINITY;
    int n_found = 0;

    CUBLAS_TRY(cublasLtMatmulAlgoGetHeuristic(gemm->handle, &problem.op, &problem.w, &problem.x,
                                              &problem.y, &problem.y, gemm->preference, kCandidates,
                                              found, &n_found));
    if ((gemm->tuning.is_deterministic || gemm->is_settled) && n_found > 0) {
        entry->algo = found[0].algo;
        return ST_OK;
    }
    for (int i = 0; i < n_found && (i == 0 || clock_now_us() - begin_us < kChoiceUs); i++) {
        try_candidate(gemm, args, problem, found[i].algo, stream, &best_ms, entry);
    }
    if (best_ms == INFINITY) {
        CU_TRY(cudaStreamSynchronize(stream)); // names an error of an earlier launch
        return ERR(ST_DEVICE, "gemm %u x %u x %u: cuBLASLt has no algorithm that runs", args.M,
                   args.N, args.K);
    }
    return ST_OK;
}

// The measured algorithm for this shape, measuring it if need be.
enum status
require_entry(gemm_cuda *gemm, const gemm_args &args, Problem &problem, cudaStream_t stream,
              Entry **entry_out)
{
    const uint32_t bucket = gemm_bucket(args.M);
    Tuning &tuning = gemm->tuning;

    for (uint32_t i = 0; i < tuning.n_entries; i++) {
        Entry &entry = tuning.entries[i];
        if (entry.N == args.N && entry.K == args.K && entry.bucket == bucket
            && entry.is_y_f32 == args.is_y_f32) {
            *entry_out = &entry;
            return ST_OK;
        }
    }
    if (tuning.n_entries == kEntriesMax) {
        return ERR(ST_NO_MEMORY, "gemm: more than %d shapes", kEntriesMax);
    }
    Entry *entry = &tuning.entries[tuning.n_entries];
    *entry = {args.N, args.K, bucket, args.is_y_f32, {}, Entry::UNTRIED};
    TRY(choose(gemm, args, problem, stream, entry));
    tuning.n_entries++;
    *entry_out = entry;
    return ST_OK;
}

enum status
multiply(gemm_cuda *gemm, const gemm_args &args, Problem &problem, cudaStream_t stream)
{
    Entry *entry = NULL;
    cublasLtMatmulHeuristicResult_t checked;

    TRY(require_entry(gemm, args, problem, stream, &entry));
    const cublasLtMatmulAlgo_t *algo = &entry->algo;

    // Measured for another M of the bucket: rarely it does not serve this one; then cuBLASLt
    // chooses.
    if (cublasLtMatmulAlgoCheck(gemm->handle, &problem.op, &problem.w, &problem.x, &problem.y,
                                &problem.y, algo, &checked)
        != CUBLAS_STATUS_SUCCESS) {
        algo = NULL;
    }
    return run(gemm, args, problem, algo, stream);
}

enum status
multiply_any(gemm_cuda *gemm, const gemm_args &args, cudaStream_t stream)
{
    Problem problem;

    TRY(problem_init(args, &problem));
    return multiply(gemm, args, problem, stream);
}

// `count` words as one number that depends on each word and its place.
__global__ void
digest_kernel(const uint32_t *words, size_t count, unsigned long long *digest)
{
    unsigned long long sum = 0;

    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < count;
         i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long x = (unsigned long long)words[i] << 32 ^ i * 0x9e3779b97f4a7c15ull;

        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        sum += x ^ x >> 31;
    }
    atomicAdd(digest, sum);
}

// Waits for the stream.  The workspace is free between two products.
enum status
digest_rows(gemm_cuda *gemm, const gemm_args &args, cudaStream_t stream, uint64_t *digest_out)
{
    const size_t words = (size_t)kWideRows * args.N * (args.is_y_f32 ? 4 : 2) / 4;

    CU_TRY(cudaMemsetAsync(gemm->workspace, 0, sizeof(*digest_out), stream));
    digest_kernel<<<512, 256, 0, stream>>>((const uint32_t *)args.y, words,
                                           (unsigned long long *)gemm->workspace);
    CU_TRY(cudaGetLastError());
    CU_TRY(cudaMemcpyAsync(digest_out, gemm->workspace, sizeof(*digest_out), cudaMemcpyDeviceToHost,
                           stream));
    CU_TRY(cudaStreamSynchronize(stream));
    return ST_OK;
}

// Rows in steps of `step`, each with the same algorithm.
enum status
multiply_steps(gemm_cuda *gemm, gemm_args args, uint32_t rows, uint32_t step,
               const cublasLtMatmulAlgo_t *algo, cudaStream_t stream)
{
    Problem problem;

    args.M = step;
    TRY(problem_init(args, &problem));
    for (uint32_t row = 0; row < rows; row += step) {
        TRY(run(gemm, args, problem, algo, stream));
        args.x = (const char *)args.x + (size_t)step * args.K * 2;
        args.y = (char *)args.y + (size_t)step * args.N * (args.is_y_f32 ? 4 : 2);
    }
    return ST_OK;
}

// Whether the algorithm gives rows the same bits kWideRows at a time.  It should, being one kernel
// that is cut by rows and columns and never along K; it is believed after it has been seen, once a
// shape, on rows that every worker has: the weights' own.
enum status
try_wide(gemm_cuda *gemm, gemm_args args, Entry *entry, cudaStream_t stream)
{
    uint64_t wide = 0, narrow = 0;

    args.x = args.w;
    entry->wide = Entry::OTHER_BITS;
    if (args.N < kWideRows
        || multiply_steps(gemm, args, kWideRows, kWideRows, &entry->algo, stream) != ST_OK) {
        return ST_OK; // it does not serve so many rows
    }
    TRY(digest_rows(gemm, args, stream, &wide));
    TRY(multiply_steps(gemm, args, kWideRows, GEMM_CUDA_FIXED_ROWS, &entry->algo, stream));
    TRY(digest_rows(gemm, args, stream, &narrow));
    entry->wide = wide == narrow ? Entry::SAME_BITS : Entry::OTHER_BITS;
    return ST_OK;
}

enum status
multiply_fixed(gemm_cuda *gemm, gemm_args args, cudaStream_t stream)
{
    uint32_t rows = args.M;
    Entry *entry = NULL;
    Problem problem;

    args.M = GEMM_CUDA_FIXED_ROWS;
    TRY(problem_init(args, &problem));
    TRY(require_entry(gemm, args, problem, stream, &entry));
    if (rows >= kWideRows && entry->wide == Entry::UNTRIED && !gemm->is_settled) {
        TRY(try_wide(gemm, args, entry, stream));
    }
    if (entry->wide == Entry::SAME_BITS) {
        const uint32_t whole = rows / kWideRows * kWideRows;

        TRY(multiply_steps(gemm, args, whole, kWideRows, &entry->algo, stream));
        args.x = (const char *)args.x + (size_t)whole * args.K * 2;
        args.y = (char *)args.y + (size_t)whole * args.N * (args.is_y_f32 ? 4 : 2);
        rows -= whole;
    }
    return multiply_steps(gemm, args, rows, GEMM_CUDA_FIXED_ROWS, &entry->algo, stream);
}

} // namespace

static enum status
open_handles(gemm_cuda *gemm)
{
    const size_t bytes = kWorkspaceBytes;
    const uint32_t reductions = gemm->tuning.is_deterministic ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                              : CUBLASLT_REDUCTION_SCHEME_MASK;

    CUBLAS_TRY(cublasLtCreate(&gemm->handle));
    CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&gemm->preference));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(
        gemm->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof(bytes)));
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(gemm->preference,
                                                    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &reductions, sizeof(reductions)));
    CU_TRY(cudaEventCreate(&gemm->begin));
    CU_TRY(cudaEventCreate(&gemm->end));
    CU_TRY(cudaMalloc(&gemm->workspace, kWorkspaceBytes));
    return ST_OK;
}

// What the choices are good for; `earlier` are taken if they are of the same.
static enum status
open_tuning(gemm_cuda *gemm, const void *earlier, size_t bytes)
{
    Tuning &tuning = gemm->tuning;
    Tuning found = {};
    cudaDeviceProp device;
    int ordinal = 0;

    CU_TRY(cudaGetDevice(&ordinal));
    CU_TRY(cudaGetDeviceProperties(&device, ordinal));
    (void)snprintf(tuning.device, sizeof(tuning.device), "%.63s", device.name);
    tuning.sm_count = (uint32_t)device.multiProcessorCount;
    tuning.library = cublasLtGetVersion();
    if (bytes > 0 && bytes <= sizeof(found)) {
        memcpy(&found, earlier, bytes);
    }
    if (memcmp(&found, &tuning, offsetof(Tuning, n_entries)) == 0 && bytes == tuning_bytes(found)) {
        tuning = found;
    }
    return ST_OK;
}

extern "C" enum status
gemm_cuda_new(bool is_deterministic, const void *tuning, size_t bytes, struct gemm_cuda **gemm_out)
{
    gemm_cuda *gemm = new (std::nothrow) gemm_cuda();

    if (gemm == NULL) {
        return ERR(ST_NO_MEMORY, "gemm state");
    }
    gemm->tuning.is_deterministic = is_deterministic;
    enum status st = open_handles(gemm);

    if (st == ST_OK) {
        st = open_tuning(gemm, tuning, bytes);
    }
    if (st != ST_OK) {
        gemm_cuda_destroy(&gemm);
        return st;
    }
    *gemm_out = gemm;
    return ST_OK;
}

extern "C" void
gemm_cuda_destroy(struct gemm_cuda **gemm_in)
{
    gemm_cuda *gemm = *gemm_in;

    if (gemm == NULL) {
        return;
    }
    // Cleanup goes on whatever fails: a device error has been reported by the call that met it.
    if (gemm->workspace != NULL) {
        (void)cudaFree(gemm->workspace);
    }
    if (gemm->begin != NULL) {
        (void)cudaEventDestroy(gemm->begin);
    }
    if (gemm->end != NULL) {
        (void)cudaEventDestroy(gemm->end);
    }
    if (gemm->preference != NULL) {
        (void)cublasLtMatmulPreferenceDestroy(gemm->preference);
    }
    if (gemm->handle != NULL) {
        (void)cublasLtDestroy(gemm->handle);
    }
    delete gemm;
    *gemm_in = NULL;
}

extern "C" void
gemm_cuda_settle(struct gemm_cuda *gemm)
{
    gemm->is_settled = true;
}

extern "C" const void *
gemm_cuda_tuning(const struct gemm_cuda *gemm, size_t *bytes_out)
{
    *bytes_out = tuning_bytes(gemm->tuning);
    return &gemm->tuning;
}

extern "C" enum status
gemm_cuda_run(struct gemm_cuda *gemm, struct gemm_args args, void *stream)
{
    if (args.M == 0) {
        return ST_OK;
    }
    if (args.K % 8 != 0 || args.N % 8 != 0) {
        return ERR(ST_INVALID, "gemm: N %u and K %u must be multiples of 8", args.N, args.K);
    }
    return gemm->tuning.is_deterministic ? multiply_fixed(gemm, args, (cudaStream_t)stream)
                                         : multiply_any(gemm, args, (cudaStream_t)stream);
}
