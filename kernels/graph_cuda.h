/* SPDX-License-Identifier: Apache-2.0 */
/* graph_cuda - a small cache of recorded CUDA graphs, by key.
 *
 * One a stream.  A key is recorded at its second coming and replayed from then on; the one that was
 * used longest ago makes room. */
#ifndef KERNELS_GRAPH_CUDA_H
#define KERNELS_GRAPH_CUDA_H

#include "common/status.h"
#include "kernels/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct graph_cuda;

#define GRAPH_COUNTS 2

enum status graph_cuda_new(struct graph_cuda **graphs_out);
void graph_cuda_destroy(struct graph_cuda **graphs);

/* As ops.graph_begin and graph_end; `counts` belong to the key; `stream` is a cudaStream_t. */
enum status graph_cuda_begin(struct graph_cuda *graphs, const uint8_t key[OPS_GRAPH_KEY_BYTES],
                             const uint32_t counts[GRAPH_COUNTS], void *stream,
                             enum ops_graph *found_out);
enum status graph_cuda_end(struct graph_cuda *graphs, void *stream);

#ifdef __cplusplus
}
#endif
#endif
