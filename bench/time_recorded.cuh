/* SPDX-License-Identifier: Apache-2.0 */
// time_recorded - a kernel's time without that of its launches: a recorded graph of it over several
// sets of arguments.
#ifndef BENCH_TIME_RECORDED_CUH
#define BENCH_TIME_RECORDED_CUH

#include <algorithm>

#include "kernels/device/cuda_check.cuh"

namespace {

template <typename Args>
enum status
record(enum status (*run)(uint32_t, Args, cudaStream_t), uint32_t form, const Args *sets,
       uint32_t count, cudaStream_t stream, cudaGraphExec_t *recorded_out)
{
    cudaGraph_t graph;
    enum status st = ST_OK;

    CU_TRY(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (uint32_t i = 0; i < count && st == ST_OK; i++) {
        st = run(form, sets[i], stream);
    }
    CU_TRY(cudaStreamEndCapture(stream, &graph));
    TRY(st);
    CU_TRY(cudaGraphInstantiate(recorded_out, graph, 0));
    CU_TRY(cudaGraphDestroy(graph));
    return ST_OK;
}

// Median microseconds a call.  What it made is left to the end of a bench that fails.
template <typename Args>
enum status
time_recorded(enum status (*run)(uint32_t, Args, cudaStream_t), uint32_t form, const Args *sets,
              uint32_t count, double *us_out)
{
    constexpr int kRounds = 9;
    constexpr int kReplays = 4; // a round
    float ms[kRounds];
    cudaStream_t stream;
    cudaGraphExec_t recorded;
    cudaEvent_t begin, end;

    CU_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CU_TRY(cudaEventCreate(&begin));
    CU_TRY(cudaEventCreate(&end));
    TRY(record(run, form, sets, count, stream, &recorded));
    CU_TRY(cudaGraphLaunch(recorded, stream)); // the first one is slower
    for (int r = 0; r < kRounds; r++) {
        CU_TRY(cudaEventRecord(begin, stream));
        for (int k = 0; k < kReplays; k++) {
            CU_TRY(cudaGraphLaunch(recorded, stream));
        }
        CU_TRY(cudaEventRecord(end, stream));
        CU_TRY(cudaEventSynchronize(end));
        CU_TRY(cudaEventElapsedTime(&ms[r], begin, end));
    }
    std::sort(ms, ms + kRounds);
    *us_out = (double)ms[kRounds / 2] * 1e3 / (kReplays * count);
    CU_TRY(cudaGraphExecDestroy(recorded));
    CU_TRY(cudaEventDestroy(begin));
    CU_TRY(cudaEventDestroy(end));
    CU_TRY(cudaStreamDestroy(stream));
    return ST_OK;
}

} // namespace

#endif
