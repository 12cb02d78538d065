/* SPDX-License-Identifier: Apache-2.0 */
/* docs_warm - kvasirctl's commands about documents that are kept ready. */
#ifndef CLIENT_DOCS_WARM_H
#define CLIENT_DOCS_WARM_H

#include "client/cli.h"

#define DOCS_WARM_OPTIONS "salt raw prune wait json"

/* Applies a manifest (manifest.h): what is new or changed is registered, the rest left alone. */
int docs_warm_run(const struct cli_args *args);

/* How much of the corpus is resident; with --documents each of them. */
int docs_coverage_run(const struct cli_args *args);

#endif
