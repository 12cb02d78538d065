/* SPDX-License-Identifier: Apache-2.0 */
/* splitmix64 (Steele, Lea, Flood 2014) for words; gamma by Marsaglia and Tsang (2000); normals by
 * Box and Muller. */
#include "bench/draw.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

#include "common/htab.h"
#include "common/mem.h"

#define TOKENS_MAX 10000000

struct draw
draw_new(uint64_t seed, uint64_t stream)
{
    return (struct draw){htab_mix(seed) ^ htab_mix(htab_mix(stream) + 1)};
}

uint64_t
draw_u64(struct draw *draw)
{
    draw->state += 0x9e3779b97f4a7c15u;
    return htab_mix(draw->state);
}

double
draw_uniform(struct draw *draw)
{
    return ((double)(draw_u64(draw) >> 11) + 0.5) * 0x1p-53;
}

uint32_t
draw_below(struct draw *draw, uint32_t count)
{
    return (uint32_t)((draw_u64(draw) >> 32) * count >> 32); /* biased by less than 2^-32 */
}

double
draw_normal(struct draw *draw)
{
    double radius = sqrt(-2.0 * log(draw_uniform(draw)));

    return radius * cos(2.0 * 3.14159265358979323846 * draw_uniform(draw));
}

double
draw_gamma(struct draw *draw, double shape)
{
    if (shape < 1.0) { /* a draw of shape + 1, moved down */
        double larger = draw_gamma(draw, shape + 1.0) * (shape + 1.0);

        return larger * pow(draw_uniform(draw), 1.0 / shape) / shape;
    }
    double d = shape - 1.0 / 3.0, c = 1.0 / sqrt(9.0 * d);

    for (;;) {
        double x = draw_normal(draw), v = 1.0 + c * x;

        v = v * v * v;
        if (v > 0.0 && log(draw_uniform(draw)) < 0.5 * x * x + d - d * v + d * log(v)) {
            return d * v / shape;
        }
    }
}

void
draw_shuffle(struct draw *draw, uint32_t *items, size_t count)
{
    for (size_t i = count; i > 1; i--) {
        size_t j = draw_below(draw, (uint32_t)i);
        uint32_t item = items[i - 1];

        items[i - 1] = items[j];
        items[j] = item;
    }
}

/* --- Zipf ------------------------------------------------------------------------------ */

enum status
zipf_init(struct zipf *zipf, uint32_t count, double alpha, struct draw *draw)
{
    *zipf = (struct zipf){.count = count,
                          .weights = mem_zalloc(count, sizeof(*zipf->weights)),
                          .item_of = mem_zalloc(count, sizeof(*zipf->item_of))};
    if (zipf->weights == NULL || zipf->item_of == NULL) {
        zipf_deinit(zipf);
        return ERR(ST_NO_MEMORY, "a distribution over %u documents", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        zipf->weights[i] = pow(i + 1.0, -alpha);
        zipf->total += zipf->weights[i];
        zipf->item_of[i] = i;
    }
    draw_shuffle(draw, zipf->item_of, count);
    return ST_OK;
}

void
zipf_deinit(struct zipf *zipf)
{
    mem_free(zipf->weights);
    mem_free(zipf->item_of);
    *zipf = (struct zipf){0};
}

/* The rank (from 0) at `point` of the summed weights, without the ranks in taken[0 .. n). */
static uint32_t
rank_at(const struct zipf *zipf, double point, const uint32_t *taken, uint32_t n)
{
    uint32_t last = 0;

    for (uint32_t rank = 0; rank < zipf->count; rank++) {
        uint32_t i = 0;

        while (i < n && taken[i] != rank) {
            i++;
        }
        if (i < n) {
            continue;
        }
        point -= zipf->weights[rank];
        last = rank;
        if (point < 0.0) {
            break;
        }
    }
    return last; /* the last one left, where rounding went past the end */
}

void
zipf_draw(const struct zipf *zipf, struct draw *draw, uint32_t n, uint32_t *items_out)
{
    for (uint32_t i = 0; i < n; i++) {
        items_out[i] = zipf->item_of[rank_at(zipf, draw_uniform(draw) * zipf->total, NULL, 0)];
    }
}

void
zipf_draw_distinct(const struct zipf *zipf, struct draw *draw, uint32_t n, uint32_t *items_out)
{
    double left = zipf->total;

    assert(n <= zipf->count);
    for (uint32_t i = 0; i < n; i++) {
        items_out[i] = rank_at(zipf, draw_uniform(draw) * left, items_out, i);
        left -= zipf->weights[items_out[i]];
    }
    for (uint32_t i = 0; i < n; i++) {
        items_out[i] = zipf->item_of[items_out[i]];
    }
}

/* --- lengths --------------------------------------------------------------------------- */

enum status
lengths_parse(const char *text, struct lengths *lengths_out)
{
    struct lengths lengths = {.kind = LENGTHS_UNIFORM};
    int end = 0;

    if (sscanf(text, "lognormal:%lf,%lf,%u%n", &lengths.median, &lengths.sigma, &lengths.high, &end)
        == 3) {
        lengths.kind = LENGTHS_LOGNORMAL;
        lengths.low = 1;
    } else if (sscanf(text, "%u-%u%n", &lengths.low, &lengths.high, &end) != 2) {
        end = 0;
        if (sscanf(text, "%u%n", &lengths.low, &end) == 1) {
            lengths.high = lengths.low;
        }
    }
    if (end == 0 || text[end] != '\0' || lengths.high < lengths.low || lengths.high > TOKENS_MAX
        || (lengths.kind == LENGTHS_LOGNORMAL
            && !(lengths.median >= 1.0 && lengths.sigma >= 0.0))) {
        return ERR(ST_INVALID,
                   "\"%s\" is no length: N, LOW-HIGH or lognormal:MEDIAN,SIGMA,MAX, at most %d",
                   text, TOKENS_MAX);
    }
    *lengths_out = lengths;
    return ST_OK;
}

uint32_t
lengths_draw(const struct lengths *lengths, struct draw *draw)
{
    if (lengths->kind == LENGTHS_UNIFORM) {
        return lengths->low + draw_below(draw, lengths->high - lengths->low + 1);
    }
    double x = lengths->median * exp(lengths->sigma * draw_normal(draw));

    return x < 1.0 ? 1 : x > lengths->high ? lengths->high : (uint32_t)x;
}
