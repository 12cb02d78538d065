/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ORDINAL_MAX 1023

static const struct device_kind *const kinds[] = {
    &device_cpu,
#ifdef HAVE_CUDA
    &device_cuda,
#endif
};

static const char *
kind_names(void)
{
    return sizeof(kinds) / sizeof(kinds[0]) > 1 ? "cpu, cuda[:N]" : "cpu";
}

/* What --device means: "0" is "cuda:0", so that a unit's instance can be a GPU's number. */
static const char *
spell_out(const char *text, char *space, size_t size)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0') {
        return text;
    }
    (void)snprintf(space, size, "cuda:%s", text);
    return space;
}

/* The N of "kind:N"; 0 when there is none. */
static enum status
parse_ordinal(const char *text, const char *rest, int *ordinal_out)
{
    char *end = NULL;
    long ordinal = 0;

    if (*rest == ':') {
        ordinal = strtol(rest + 1, &end, 10);
        if (end == rest + 1 || *end != '\0' || ordinal < 0 || ordinal > ORDINAL_MAX) {
            return ERR(ST_INVALID, "device %s: the number after ':' must be 0 to %d", text,
                       ORDINAL_MAX);
        }
    }
    *ordinal_out = (int)ordinal;
    return ST_OK;
}

enum status
device_open(const char *name, struct device *device_out)
{
    char space[DEVICE_NAME_MAX];
    const char *text = spell_out(name, space, sizeof(space));
    size_t length = strcspn(text, ":");

    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct device device = {.kind = kinds[i]};

        if (strlen(kinds[i]->name) != length || strncmp(text, kinds[i]->name, length) != 0) {
            continue;
        }
        TRY(parse_ordinal(text, text + length, &device.ordinal));
        TRY(kinds[i]->choose(device.ordinal));
        if (kinds[i] == &device_cpu) {
            (void)snprintf(device.name, sizeof(device.name), "cpu");
        } else {
            (void)snprintf(device.name, sizeof(device.name), "%s:%d", kinds[i]->name,
                           device.ordinal);
        }
        *device_out = device;
        return ST_OK;
    }
    return ERR(ST_INVALID, "device %s: this build has only %s", text, kind_names());
}
