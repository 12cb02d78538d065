/* SPDX-License-Identifier: Apache-2.0 */
/* keygen - kvasirctl keygen: a key pair for speaking over a network; needs no kvasird. */
#ifndef CLIENT_KEYGEN_H
#define CLIENT_KEYGEN_H

#include "client/cli.h"

int keygen_run(const struct cli_args *args);

#endif
