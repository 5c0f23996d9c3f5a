/* rebase.c - see rebase.h.  One pass forward pushes blocks away from the beginning as far as they must; what is left of
 * all to the end bounds each from the other side, for the end never moves.  Positions are counted in 64 bits. */
#include "policy/rebase.h"

#include <assert.h>
#include <string.h>

int32_t md_rebase_step(int32_t window_tokens)
{
    return window_tokens / MD_REBASE_SHARE > 0 ? window_tokens / MD_REBASE_SHARE : 1;
}

int32_t md_rebase_hot_most(int32_t window_tokens)
{
    return window_tokens - md_rebase_step(window_tokens);
}

/* Can the KV be moved at all? */
static enum md_status check_model(const struct md_rebase_facts *f, struct md_err *err)
{
    if (f->trained_tokens <= 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--past-window: the model does not say what window it was trained for: leave the flag out "
            "and give --ctx-size");
    if (f->trained_tokens < MD_REBASE_WINDOW_LEAST)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--past-window: the trained window of %d tokens is too small, %d are the least: leave the "
            "flag out",
            f->trained_tokens, MD_REBASE_WINDOW_LEAST);
    if (f->tail_state)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--past-window: this model has windowed or recurrent layers, whose KV cannot be moved to "
            "other positions: leave the flag out");
    if (strcmp(f->type_k, "f16") != 0 && strcmp(f->type_k, "f32") != 0)
        return md_fail(err, MD_UNSUPPORTED,
                       "--past-window: keys of type %s cannot be moved to other positions: use "
                       "--cache-type-k f16",
                       f->type_k);
    if (!f->can_move)
        return md_fail(
            err, MD_UNSUPPORTED,
            "--past-window: the KV of this model cannot be moved to other positions: leave the flag "
            "out");
    return MD_OK;
}

enum md_status md_rebase_check(const struct md_rebase_facts *f, struct md_err *err)
{
    if (!f->residency)
        return md_fail(err, MD_INVALID, "--past-window needs --residency on: what is far must be moved");
    enum md_status s = check_model(f, err);
    if (s != MD_OK)
        return s;
    const int32_t most = md_rebase_hot_most(f->trained_tokens);
    if (f->hot_tokens > most)
        return md_fail(
            err, MD_INVALID,
            "--hot %d is more than the %d that --past-window allows: seven eighths of the %d tokens "
            "the model was trained for",
            f->hot_tokens, most, f->trained_tokens);
    if (f->cold_bytes <= 0 && !f->disk)
        return md_fail(err, MD_UNSUPPORTED, "--past-window needs a cold store: see --mem-cold");
    if (f->cold_bytes < f->need_bytes && !f->disk)
        return md_fail(
            err, MD_INVALID,
            "--past-window: what is moved is kept in the cold store as well, which needs %lld bytes "
            "for a hot set of %d tokens, and --mem-cold is %lld: raise it, or lower --hot",
            (long long)f->need_bytes, f->hot_tokens, (long long)f->cold_bytes);
    return MD_OK;
}

static enum md_status check_input(const struct md_rebase_block *blocks, size_t count, int32_t end,
                                  int32_t incoming, int32_t window, int32_t step, struct md_err *err)
{
    int64_t before = 0, sum = 0;
    if (end < 0 || incoming < 0 || window < 1 || step < 1)
        return md_fail(err, MD_INVALID, "places of blocks: end %d, incoming %d, window %d, step %d", end,
                       incoming, window, step);
    for (size_t i = 0; i < count; i++) {
        const struct md_rebase_block *b = &blocks[i];
        if (b->length < 1 || b->start < before || (int64_t)b->start + b->length > end)
            return md_fail(err, MD_INVALID,
                           "block %zu at %d of %d tokens is empty, out of order or behind the end at %d", i,
                           b->start, b->length, end);
        before = (int64_t)b->start + b->length;
        sum += b->length;
    }
    if (sum + incoming > window)
        return md_fail(err, MD_TOO_LARGE,
                       "%lld hot tokens and %d more are too many for a window of %d: lower --hot",
                       (long long)sum, incoming, window);
    return MD_OK;
}

/* The first multiple of `step` at or behind `nearest`, but not behind the end; 0 within the window. */
static int32_t bound(int64_t nearest, int32_t step, int32_t end)
{
    const int64_t at = nearest > 0 ? (nearest + step - 1) / step * step : 0;
    return at < end ? (int32_t)at : end;
}

enum md_status md_rebase_plan(const struct md_rebase_block *blocks, size_t count, int32_t end,
                              int32_t incoming, int32_t window, int32_t step, int32_t *ret_places,
                              struct md_err *err)
{
    enum md_status s = check_input(blocks, count, end, incoming, window, step, err);
    if (s != MD_OK)
        return s;
    const int64_t nearest = (int64_t)end + incoming - window;
    int32_t tokens = 0, free_from = bound(nearest, step, end);
    for (size_t i = 0; i < count; i++)
        tokens += blocks[i].length;
    for (size_t i = 0; i < count; i++) {
        const int32_t last = end - tokens; /* with all that follow it side by side up to the end */
        const int32_t at = blocks[i].start > free_from ? blocks[i].start : free_from;
        ret_places[i] = at < last ? at : last;
        assert(ret_places[i] >= blocks[i].start && ret_places[i] >= nearest);
        free_from = ret_places[i] + blocks[i].length;
        tokens -= blocks[i].length;
    }
    return MD_OK;
}
