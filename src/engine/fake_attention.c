/* fake_attention.c - what the fake engine tells of its attention: queries as the pass has them, keys out of the rows of
 * an export. */
#include "base/half.h"
#include "engine/fake_internal.h"

#include <math.h>
#include <string.h>

enum md_status md_fake_attention(struct md_fake *f, struct md_err *err)
{
    const struct md_fake_dims *d = &f->model->dims;
    enum md_status s = md_attention_init(&f->base.attention, d->layers, err);
    for (int32_t i = 0; i < d->layers && s == MD_OK; i++)
        if (f->layers[i].kind == MD_FAKE_GLOBAL)
            f->base.attention.layers[i] =
                (struct md_attention_layer){ .query_heads = d->heads,
                                             .key_heads = d->kv_heads,
                                             .length = d->head_dim,
                                             .scale = 1.0f / sqrtf((float)d->head_dim) };
    return s;
}

void md_fake_keep_queries(const struct md_fake *f, int32_t layer, int32_t row)
{
    const struct md_fake_dims *d = &f->model->dims;
    float *room = md_attention_room(&f->base, layer, row);
    if (room != NULL)
        memcpy(room, f->q, (size_t)d->heads * (size_t)d->head_dim * sizeof *room);
}

enum md_status md_fake_keys(const struct md_engine *e, struct md_range r, struct md_bytes kv,
                            const int32_t *layers, int32_t count, uint16_t *ret_keys, struct md_err *err)
{
    const struct md_fake *f = (const struct md_fake *)e;
    const size_t length = (size_t)f->model->dims.head_dim, tokens = (size_t)md_range_len(r);
    enum md_status s = md_fake_check_kv(f, r, kv, err);
    if (s != MD_OK)
        return s;
    const uint8_t *rows = (const uint8_t *)kv.data + sizeof(struct md_fake_head);
    for (int32_t i = 0; i < count; i++)
        for (size_t h = 0; h < (size_t)f->model->dims.kv_heads; h++)
            for (size_t t = 0; t < tokens; t++) {
                const size_t first = t * f->row_floats + f->layers[layers[i]].at + h * length;
                for (size_t k = 0; k < length; k++) {
                    float number;
                    memcpy(&number, rows + (first + k) * sizeof number, sizeof number);
                    *ret_keys++ = md_half_of(number);
                }
            }
    return MD_OK;
}
