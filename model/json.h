/* SPDX-License-Identifier: Apache-2.0 */
/* json - JSON texts of checkpoints, read strictly: json-c behind the checks that it leaves out.
 *
 * The text is a stranger's.  A member that occurs twice, which json-c would take silently, NaN,
 * control characters, lone surrogates and anything after the value are refused.  Getters name the
 * file and the key: "FILE: key rope_scaling.factor is ...". */
#ifndef MODEL_JSON_H
#define MODEL_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <json-c/json.h>

#include "common/status.h"
#include "model/gguf.h"

#define JSON_BYTES_MAX (256u << 20) /* of one text */
#define JSON_DEPTH_MAX 16
#define JSON_PATH_MAX  96

/* An object in a text, and how to name it. */
struct json_view {
    const char *file;
    char at[JSON_PATH_MAX]; /* "" or "rope_scaling." */
    struct json_object *object;
};

/* Parses a text whose value is an object.  ST_INVALID: "FILE: offset N: reason"; ST_NO_MEMORY.
 * The caller releases it with json_release; views, strings and arrays borrow from it. */
enum status json_parse(const char *file, const char *text, size_t length,
                       struct json_object **root_out);

/* At least the memory that json_parse would take for the text, whatever it is: two bytes can become
 * hundreds. */
uint64_t json_weight(const char *text, size_t length);

/* NULL is fine. */
void json_release(struct json_object **root);

struct json_view json_root(const char *file, struct json_object *root);

/* Whether the key is there and not null; those are one thing to the files that we read.  The
 * getters below refuse both as missing. */
bool json_has(const struct json_view *view, const char *key);

enum status json_get_u64(const struct json_view *view, const char *key, uint64_t min, uint64_t max,
                         uint64_t *value_out);
enum status json_get_f64(const struct json_view *view, const char *key, double *value_out);
enum status json_get_bool(const struct json_view *view, const char *key, bool *value_out);
enum status json_get_string(const struct json_view *view, const char *key,
                            struct gguf_string *value_out);
enum status json_get_object(const struct json_view *view, const char *key,
                            struct json_view *view_out);
enum status json_get_array(const struct json_view *view, const char *key,
                           struct json_object **array_out);

/* Element `index` of an array that was got by `key`, which must be an object. */
enum status json_get_element(const struct json_view *view, const char *key,
                             struct json_object *array, size_t index, struct json_view *view_out);

/* The text of a string value; of any other an empty one. */
struct gguf_string json_text(const struct json_object *value);

bool json_is_text(struct gguf_string s, const char *text);

#endif
