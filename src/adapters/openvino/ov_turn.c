/* ov_turn.c - keys turned to other positions; see ov_cache.h.  Always from their bytes as first computed: errors do
 * not pile up. */
#include "adapters/openvino/ov_cache.h"

#include "base/half.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>

float md_ov_cache_number(const struct md_ov_cache *c, const uint8_t *from, size_t i)
{
    uint16_t half;
    float value;
    if (c->type == MD_OV_F32) {
        memcpy(&value, from + i * sizeof value, sizeof value);
        return value;
    }
    memcpy(&half, from + i * sizeof half, sizeof half);
    return md_half_to_float(half);
}

static void store(const struct md_ov_cache *c, uint8_t *to, int32_t i, float value)
{
    if (c->type == MD_OV_F32) {
        memcpy(to + (size_t)i * sizeof value, &value, sizeof value);
        return;
    }
    const uint16_t half = md_half_of(value);
    memcpy(to + (size_t)i * sizeof half, &half, sizeof half);
}

/* One head of one row. */
static void turn_key(const struct md_ov_cache *c, const struct md_ov_turn *turn, const float *angle,
                     uint8_t *key)
{
    for (int32_t i = 0; i < turn->length / 2; i++) {
        const int32_t a = turn->halves ? i : 2 * i, b = turn->halves ? i + turn->length / 2 : 2 * i + 1;
        const float x = md_ov_cache_number(c, key, (size_t)a), y = md_ov_cache_number(c, key, (size_t)b),
                    cosine = angle[2 * i], sine = angle[2 * i + 1];
        store(c, key, a, x * cosine - y * sine);
        store(c, key, b, x * sine + y * cosine);
    }
}

/* Cosine and sine for each pair, in turn. */
static void set_angles(float *angle, int32_t length, double base, int32_t distance)
{
    for (int32_t i = 0; i < length / 2; i++) {
        const double a = distance * pow(base, -2.0 * i / length);
        angle[2 * i] = (float)cos(a);
        angle[2 * i + 1] = (float)sin(a);
    }
}

enum md_status md_ov_cache_turn(const struct md_ov_cache *c, const struct md_ov_turn *turn, uint8_t *bytes,
                                int32_t count, int32_t distance, struct md_err *err)
{
    assert(c->type != MD_OV_U8 && turn->length > 0 && turn->length <= c->key_length);
    float *angle = md_calloc(NULL, 2 * (size_t)turn->length, sizeof *angle);
    if (angle == NULL)
        return md_fail(err, MD_NO_MEMORY, "turning keys");
    set_angles(angle, turn->length, turn->base, distance);
    set_angles(angle + turn->length, turn->length, turn->base_window, distance);
    for (int32_t i = 0; i < c->part_count; i++) {
        const struct md_ov_part *p = &c->parts[i];
        const size_t part = (size_t)count * (size_t)p->heads * p->row_bytes;
        for (size_t at = 0; i % 2 == 0 && at < part; at += p->row_bytes)
            turn_key(c, turn, p->windowed ? angle + turn->length : angle, bytes + at);
        bytes += part;
    }
    md_free(NULL, angle);
    return MD_OK;
}
