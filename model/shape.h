/* SPDX-License-Identifier: Apache-2.0 */
/* shape - configs of well-known models, for dummy checkpoints: the cost of a model without its
 * files.
 */
#ifndef MODEL_SHAPE_H
#define MODEL_SHAPE_H

#include "common/status.h"
#include "model/config.h"

#define SHAPE_NAMES "llama-3.1-8b, llama-3.2-1b, smollm2-135m, tiny"

/* Fills everything but the fingerprint.  ST_INVALID lists the names. */
enum status shape_find(const char *name, struct model_config *config_out);

#endif
