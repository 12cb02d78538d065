/* SPDX-License-Identifier: Apache-2.0 */
/* quant - float32 to elements of GGUF's tensor types: dequant's inverse, for generated models. */
#ifndef MODEL_QUANT_H
#define MODEL_QUANT_H

#include <stddef.h>

#include "model/gguf.h"

/* Converts `count` elements (a multiple of the type's unit, finite) into `to`, which is
 * dequant_bytes(type, count) long.  The same bytes on every machine. */
void quant(enum gguf_tensor_type type, const float *from, size_t count, void *to);

#endif
