/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "kernels/embed.h"
#include "kernels/panel.h"
#include "tests/kernels/compare.h"
#include "tests/support/check_main.h"

START_TEST(rows_of_the_table_are_copied_as_they_are)
{
    const float table[] = {0, 1, NAN, INFINITY, -0.0f, 5};
    const uint32_t ids[] = {2, 0, 2, 1};
    float out[8];

    ck_assert_int_eq(embed_ref((struct embed_args){table, ids, out, 4, 2, 3, false, PANEL_F32}),
                     ST_OK);
    for (int t = 0; t < 4; t++) {
        ck_assert_mem_eq(&out[2 * t], &table[2 * ids[t]], 2 * sizeof(float));
    }
}
END_TEST

START_TEST(rows_of_a_packed_table_are_the_same)
{
    enum {
        V = 2 * PANEL_ROWS + 3,
        C = 5
    };
    const uint32_t ids[] = {0, PANEL_ROWS - 1, PANEL_ROWS, 2 * PANEL_ROWS, V - 1};
    float table[V * C], out[5 * C];

    for (int i = 0; i < V * C; i++) {
        table[i] = (float)i;
    }
    ck_assert_int_eq(panel_pack(PANEL_F32, table, V, C), ST_OK);
    ck_assert_int_eq(embed_ref((struct embed_args){table, ids, out, 5, C, V, true, PANEL_F32}),
                     ST_OK);
    for (uint32_t i = 0; i < 5 * C; i++) {
        ck_assert_float_eq(out[i], (float)(ids[i / C] * C + i % C));
    }
}
END_TEST

START_TEST(no_rows_are_fine_and_an_id_past_the_vocabulary_is_refused)
{
    const float table[] = {1, 2};
    const uint32_t ids[] = {0, 1, 2};
    float out[3];

    ck_assert_int_eq(embed_ref((struct embed_args){table, ids, out, 0, 1, 2, false, PANEL_F32}),
                     ST_OK);
    ck_assert_int_eq(embed_ref((struct embed_args){table, ids, out, 3, 1, 2, false, PANEL_F32}),
                     ST_INVALID);
    ck_assert_str_eq(status_detail(), "row 2: token id 2, the vocabulary has 2");
}
END_TEST

CHECK_MAIN("embed", rows_of_the_table_are_copied_as_they_are, rows_of_a_packed_table_are_the_same,
           no_rows_are_fine_and_an_id_past_the_vocabulary_is_refused)
