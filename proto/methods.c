/* SPDX-License-Identifier: Apache-2.0 */
#include "proto/methods.h"

#include <assert.h>
#include <string.h>

#include "kvasir/v1/admin.pb-c.h"
#include "kvasir/v1/documents.pb-c.h"
#include "kvasir/v1/health.pb-c.h"
#include "kvasir/v1/rag.pb-c.h"
#include "kvasir/v1/wire.pb-c.h"

#define METHOD_ROW(constant, path, request, reply, is_stream, is_admin)                            \
    {constant,  path,    &kvasir__v1__##request##__descriptor, &kvasir__v1__##reply##__descriptor, \
     is_stream, is_admin},
static const struct method methods[METHOD_COUNT] = {METHODS(METHOD_ROW)};

const struct method *
method_get(enum method_id id)
{
    assert(id < METHOD_COUNT);
    return &methods[id];
}

const struct method *
method_find(const char *path)
{
    for (size_t i = 0; i < METHOD_COUNT; i++) {
        if (strcmp(methods[i].path, path) == 0) {
            return &methods[i];
        }
    }
    return NULL;
}
