/* SPDX-License-Identifier: Apache-2.0 */
#include "client/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include <libsmartcols.h>

#include "client/pbjson.h"

struct columns {
    const ProtobufCFieldDescriptor *fields[TABLE_COLUMNS_MAX];
    size_t count;
};

static bool
is_cell(const ProtobufCFieldDescriptor *field)
{
    return field->label != PROTOBUF_C_LABEL_REPEATED && field->type != PROTOBUF_C_TYPE_MESSAGE;
}

static enum status
refuse_column(const ProtobufCMessageDescriptor *type, const char *name)
{
    char known[256];
    size_t used = 0;

    known[0] = '\0';
    for (unsigned i = 0; i < type->n_fields && used < sizeof(known); i++) {
        if (is_cell(&type->fields[i])) {
            int n = snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ",",
                             type->fields[i].name);

            used += n < 0 ? 0 : (size_t)n;
        }
    }
    return ERR(ST_INVALID, "no column %s; there are: %s", name, known);
}

static enum status
parse_columns(const ProtobufCMessageDescriptor *type, const char *text, struct columns *columns_out)
{
    struct columns columns = {.count = 0};

    while (*text != '\0') {
        char name[64];
        size_t length = strcspn(text, ",");
        const ProtobufCFieldDescriptor *field;

        (void)snprintf(name, sizeof(name), "%.*s", (int)length, text);
        field = protobuf_c_message_descriptor_get_field_by_name(type, name);
        if (field == NULL || !is_cell(field)) {
            return refuse_column(type, name);
        }
        if (columns.count == TABLE_COLUMNS_MAX) {
            return ERR(ST_INVALID, "more than %d columns", TABLE_COLUMNS_MAX);
        }
        columns.fields[columns.count++] = field;
        text += length + (text[length] == ',');
    }
    *columns_out = columns;
    return ST_OK;
}

static bool
is_text(const ProtobufCFieldDescriptor *field)
{
    return field->type == PROTOBUF_C_TYPE_STRING || field->type == PROTOBUF_C_TYPE_BYTES
           || field->type == PROTOBUF_C_TYPE_ENUM;
}

static enum status
fill(struct libscols_table *table, const struct columns *columns, ProtobufCMessage *const *rows,
     size_t count)
{
    for (size_t c = 0; c < columns->count; c++) {
        char name[64];
        size_t i = 0;

        for (; columns->fields[c]->name[i] != '\0' && i + 1 < sizeof(name); i++) {
            name[i] = (char)toupper((unsigned char)columns->fields[c]->name[i]);
        }
        name[i] = '\0';
        if (scols_table_new_column(table, name, 0, is_text(columns->fields[c]) ? 0 : SCOLS_FL_RIGHT)
            == NULL) {
            return ERR(ST_NO_MEMORY, "no memory for a table");
        }
    }
    for (size_t r = 0; r < count; r++) {
        struct libscols_line *line = scols_table_new_line(table, NULL);

        for (size_t c = 0; c < columns->count; c++) {
            char cell[PBJSON_CELL_BYTES];

            pbjson_cell(rows[r], columns->fields[c], cell);
            if (line == NULL || scols_line_set_data(line, c, cell) != 0) {
                return ERR(ST_NO_MEMORY, "no memory for a table");
            }
        }
    }
    return ST_OK;
}

enum status
table_print(const ProtobufCMessageDescriptor *type, ProtobufCMessage *const *rows, size_t count,
            const char *columns_text, struct table_style style)
{
    struct columns columns;

    TRY(parse_columns(type, columns_text, &columns));
    struct libscols_table *table = scols_new_table();

    if (table == NULL) {
        return ERR(ST_NO_MEMORY, "no memory for a table");
    }
    enum status st = fill(table, &columns, rows, count);

    if (st == ST_OK && (count > 0 || style.has_headers)) {
        (void)scols_table_enable_noheadings(table, !style.has_headers);
        (void)scols_table_enable_raw(table, style.is_raw);
        if (count > 0) {
            (void)scols_print_table(table);
        } else {
            for (size_t c = 0; c < columns.count; c++) {
                printf(
                    "%s%s", c == 0 ? "" : " ",
                    scols_cell_get_data(scols_column_get_header(scols_table_get_column(table, c))));
            }
            printf("\n");
        }
    }
    scols_unref_table(table);
    return st;
}
