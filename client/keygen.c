/* SPDX-License-Identifier: Apache-2.0 */
#include "client/keygen.h"

#include <stdio.h>

#include "proto/curve.h"

int
keygen_run(const struct cli_args *args)
{
    char public_key[CURVE_KEY_TEXT];
    const char *path = args->operands[0];
    enum status st = curve_write_pair(path, public_key);

    if (st != ST_OK) {
        return cli_fail(args, st);
    }
    if (cli_has(args, "json")) {
        printf("{" CLI_SCHEMA ",\"public_key\":\"%s\"}\n", public_key);
    } else {
        printf("%s\n", public_key);
    }
    return CLI_OK;
}
