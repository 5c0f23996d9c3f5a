/* sizing_keys.c - what the keys take that are kept to be scored (session/mirror.h), from a model's header. */
#include "commands/sizing.h"
#include "session/pool.h"
#include "session/mirror.h"
#include "session/retrieve.h"

#include <stdbool.h>
#include <string.h>

/* Numbers of the keys of one token: of the layers between which heads are chosen that see everything and have keys of their
 * own, or of as many others as a calibrated set may have (session/attend.c). */
static int64_t token_numbers(const struct md_kv_shape *shape)
{
    const struct md_calibrate_params p = md_retrieve_defaults().heads;
    const int64_t heads = (int64_t)md_calibrate_defaults().heads;
    int64_t sum = 0, most = 0;
    for (int32_t i = 0; i < shape->layer_count; i++) {
        const struct md_kv_layer *l = &shape->layers[i];
        const double depth = (double)i / shape->layer_count;
        const int64_t numbers = (int64_t)l->kv_heads * l->key_length;
        if (l->window > 0 || l->keys_only || l->shared)
            continue;
        most = numbers > most ? numbers : most;
        if (depth >= (double)p.band_start && depth < (double)p.band_end)
            sum += numbers;
    }
    most *= heads < shape->layer_count ? heads : shape->layer_count;
    return sum == 0 || sum > most ? sum : most;
}

bool md_sizing_asks_attention(const struct md_options *o)
{
    return strcmp(o->retrieval, "auto") == 0 || strcmp(o->evict, "attention") == 0;
}

int64_t md_sizing_keys_bytes(const struct md_options *o, const struct md_sizing *s, int64_t cold_bytes,
                             int64_t window_tokens)
{
    const int64_t numbers = token_numbers(&s->facts.shape);
    if (!md_sizing_asks_attention(o) || !o->residency || o->past_window || !s->cost.cold_store ||
        cold_bytes <= 0 || numbers <= 0 || window_tokens < 1 || window_tokens > INT32_MAX ||
        o->block_tokens < 1 || o->block_tokens > MD_BLOCK_TOKENS_MAX)
        return 0;
    return (int64_t)md_mirror_budget(numbers, (int32_t)o->block_tokens, (int32_t)window_tokens,
                                     (size_t)cold_bytes);
}
