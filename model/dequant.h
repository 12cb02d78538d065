/* SPDX-License-Identifier: Apache-2.0 */
/* dequant - elements of GGUF's tensor types to float32, and float32 to bfloat16. */
#ifndef MODEL_DEQUANT_H
#define MODEL_DEQUANT_H

#include <stddef.h>
#include <stdint.h>

#include "model/gguf.h"

/* Bytes that `count` elements take; a multiple of the type's unit (32 for Q types). */
size_t dequant_bytes(enum gguf_tensor_type type, size_t count);

/* Converts `count` elements; `from` needs no alignment. */
void dequant(enum gguf_tensor_type type, const void *from, size_t count, float *to);

/* Rounds to nearest, ties to even; NaN stays NaN. */
void dequant_to_bf16(const float *from, size_t count, uint16_t *to);

#endif
