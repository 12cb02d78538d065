/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/graph_cuda.h"

#include <assert.h>
#include <string.h>

#include <cuda_runtime.h>

#include "common/mem.h"
#include "kernels/device/cuda_check.cuh"

#define GRAPHS_MAX 64 /* some 300 nodes each */

struct entry {
    uint8_t key[OPS_GRAPH_KEY_BYTES];
    uint32_t counts[GRAPH_COUNTS];
    uint64_t last_use; /* 0: the entry is free */
    cudaGraphExec_t graph;
};

struct graph_cuda {
    struct entry entries[GRAPHS_MAX];
    struct entry *recording;
    uint64_t uses;
};

enum status
graph_cuda_new(struct graph_cuda **graphs_out)
{
    struct graph_cuda *graphs = mem_zalloc(1, sizeof(*graphs));

    if (graphs == NULL) {
        return ERR(ST_NO_MEMORY, "cache of graphs");
    }
    *graphs_out = graphs;
    return ST_OK;
}

static void
forget(struct entry *entry)
{
    if (entry->graph != NULL) {
        /* A failure has been reported by the call that met it; the entry is gone either way. */
        (void)cudaGraphExecDestroy(entry->graph);
    }
    *entry = (struct entry){0};
}

void
graph_cuda_destroy(struct graph_cuda **graphs)
{
    if (*graphs == NULL) {
        return;
    }
    for (size_t i = 0; i < GRAPHS_MAX; i++) {
        forget(&(*graphs)->entries[i]);
    }
    MEM_FREE(*graphs);
}

/* The entry of the key, or one made for it. */
static struct entry *
require_entry(struct graph_cuda *graphs, const uint8_t key[OPS_GRAPH_KEY_BYTES],
              const uint32_t counts[GRAPH_COUNTS], bool *is_new_out)
{
    struct entry *oldest = &graphs->entries[0];

    for (size_t i = 0; i < GRAPHS_MAX; i++) {
        struct entry *entry = &graphs->entries[i];

        if (entry->last_use > 0 && memcmp(entry->key, key, sizeof(entry->key)) == 0
            && memcmp(entry->counts, counts, sizeof(entry->counts)) == 0) {
            *is_new_out = false;
            return entry;
        }
        if (entry->last_use < oldest->last_use) {
            oldest = entry;
        }
    }
    forget(oldest);
    memcpy(oldest->key, key, sizeof(oldest->key));
    memcpy(oldest->counts, counts, sizeof(oldest->counts));
    *is_new_out = true;
    return oldest;
}

enum status
graph_cuda_begin(struct graph_cuda *graphs, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                 const uint32_t counts[GRAPH_COUNTS], void *stream, enum ops_graph *found_out)
{
    bool is_new;
    struct entry *entry = require_entry(graphs, key, counts, &is_new);

    assert(graphs->recording == NULL);
    entry->last_use = ++graphs->uses;
    if (is_new) {
        *found_out = OPS_GRAPH_NONE;
    } else if (entry->graph != NULL) {
        CU_TRY(cudaGraphLaunch(entry->graph, (cudaStream_t)stream));
        *found_out = OPS_GRAPH_REPLAYED;
    } else {
        CU_TRY(cudaStreamBeginCapture((cudaStream_t)stream, cudaStreamCaptureModeThreadLocal));
        graphs->recording = entry;
        *found_out = OPS_GRAPH_RECORDING;
    }
    return ST_OK;
}

enum status
graph_cuda_end(struct graph_cuda *graphs, void *stream)
{
    struct entry *entry = graphs->recording;
    cudaGraph_t graph;
    cudaError_t error;

    assert(entry != NULL);
    graphs->recording = NULL;
    CU_TRY(cudaStreamEndCapture((cudaStream_t)stream, &graph));
    error = cudaGraphInstantiate(&entry->graph, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess) {
        entry->graph = NULL;
        return ERR(ST_DEVICE, "cudaGraphInstantiate: %s", cudaGetErrorName(error));
    }
    CU_TRY(cudaGraphLaunch(entry->graph, (cudaStream_t)stream));
    return ST_OK;
}
