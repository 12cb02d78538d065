/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/json_read.h"

#include <math.h>
#include <string.h>

bool
json_read_bool(struct json_object *value, const char *name, bool *out, struct refusal *refusal)
{
    if (!json_object_is_type(value, json_type_boolean)) {
        refusal_set(refusal, name, "%s must be true or false", name);
        return false;
    }
    *out = json_object_get_boolean(value) != 0;
    return true;
}

bool
json_read_u32(struct json_object *value, const char *name, uint32_t min, uint32_t max,
              uint32_t *out, struct refusal *refusal)
{
    double number = json_object_get_double(value);
    bool is_number = json_object_is_type(value, json_type_int)
                     || (json_object_is_type(value, json_type_double) && trunc(number) == number);

    if (!is_number || number < (double)min || number > (double)max) {
        refusal_set(refusal, name, "%s must be a whole number from %u to %u", name, min, max);
        return false;
    }
    *out = (uint32_t)number;
    return true;
}

bool
json_read_float(struct json_object *value, const char *name, double min, double max, float *out,
                struct refusal *refusal)
{
    double number = json_object_get_double(value);
    bool is_number =
        json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double);

    if (!is_number || !isfinite(number) || number < min || number > max) {
        refusal_set(refusal, name, "%s must be a number from %g to %g", name, min, max);
        return false;
    }
    *out = (float)number;
    return true;
}

bool
json_read_string(struct json_object *value, const char *name, char **out, struct refusal *refusal)
{
    const char *text = json_object_get_string(value);

    if (!json_object_is_type(value, json_type_string)) {
        refusal_set(refusal, name, "%s must be a string", name);
        return false;
    }
    if (strlen(text) != (size_t)json_object_get_string_len(value)) {
        refusal_set(refusal, name, "%s holds a NUL character", name);
        return false;
    }
    *out = (char *)(uintptr_t)text; /* the wire's structs have no const; it is only read */
    return true;
}
