/* SPDX-License-Identifier: Apache-2.0 */
/* kvasird's options: as they are, and as they would be. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl.h"
#include "kvasir/v1/admin.pb-c.h"

static int
print_config(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    (void)rpc;
    return ctl_print_rows(args, reply, "entries", "name,value");
}

int
ctl_run_config_show(const struct cli_args *args)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_CONFIG}, print_config);
}

#define TEXT_BYTES_MAX (256u << 10) /* of a file of options; an admin call takes no more */

static int
print_changes(const struct cli_args *args, struct rpc *rpc, const ProtobufCMessage *reply)
{
    const Kvasir__V1__ReloadReply *reload = (const void *)reply;

    (void)rpc;
    if (reload->n_changes == 0) {
        printf("nothing changes\n");
        return CLI_OK;
    }
    return ctl_print_rows(args, reply, "changes", "name,from,to,effect");
}

/* The whole file with a zero behind it; ours to free. */
static enum status
read_text(const char *path, char **text_out)
{
    FILE *file = fopen(path, "re");
    char *text = malloc(TEXT_BYTES_MAX + 1);
    size_t length = file == NULL || text == NULL ? 0 : fread(text, 1, TEXT_BYTES_MAX + 1, file);
    enum status st = ST_OK;

    if (file == NULL || ferror(file) != 0) {
        st = ERR(ST_SYSTEM, "%s: %s", path, strerror(errno));
    } else if (text == NULL) {
        st = ERR(ST_NO_MEMORY, "no memory for %s", path);
    } else if (length > TEXT_BYTES_MAX) {
        st = ERR(ST_INVALID, "%s: longer than %u bytes", path, TEXT_BYTES_MAX);
    } else if (memchr(text, '\0', length) != NULL) {
        st = ERR(ST_INVALID, "%s: a byte of it is NUL", path);
    } else {
        text[length] = '\0';
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (st != ST_OK) {
        free(text);
        return st;
    }
    *text_out = text;
    return ST_OK;
}

static int
reload(const struct cli_args *args, Kvasir__V1__ReloadRequest *request)
{
    return ctl_view(args, (struct rpc_call){.method = METHOD_RELOAD, .request = &request->base},
                    print_changes);
}

int
ctl_run_config_check(const struct cli_args *args)
{
    Kvasir__V1__ReloadRequest request = KVASIR__V1__RELOAD_REQUEST__INIT;
    int code;

    request.has_dry_run = request.dry_run = true;
    if (args->operand_count > 0) {
        if (read_text(args->operands[0], &request.text) != ST_OK) {
            return ctl_bad_input(args);
        }
        request.name = args->operands[0];
    }
    code = reload(args, &request);
    free(request.text);
    return code;
}

int
ctl_run_config_reload(const struct cli_args *args)
{
    Kvasir__V1__ReloadRequest request = KVASIR__V1__RELOAD_REQUEST__INIT;

    return reload(args, &request);
}
