/* calibrator.c - see calibrator.h: its life and its steps.  calibrator_measure.c has what is measured. */
#include "session/calibrator_internal.h"

#include "engine/attention.h"
#include "policy/prefix.h"
#include "session/attend.h"

#include <assert.h>
#include <limits.h>

enum {
    CHUNK_TOKENS =
        256, /* of a prefill: what somebody may have to wait for where an engine is not to be interrupted */
    WATCH_BYTES = 256 << 20,    /* queries of the layers that are watched at once */
    ASKED_TOKENS = 40,          /* of a question, about: for the share that is done */
    LOSSES_MOST = 16,           /* of one haystack: then conversations leave it no room to come to an end */
    ARENA_BYTES_MAX = 64 << 20, /* of the choice: 12 bytes a head */
};

/* ---- open and close ---- */

enum md_status md_calibrator_check(const struct md_engine *e, struct md_err *err)
{
    const unsigned caps = md_engine_caps(e);
    int32_t layers = 0;
    if (!(caps & MD_CAP_ATTENTION_SCORES) || md_engine_attention(e, &layers) == NULL)
        return md_fail(err, MD_UNSUPPORTED,
                       "the engine gives no scores of attention for this model and KV type");
    if (!(caps & MD_CAP_REMOVE_TAIL) || (caps & MD_CAP_CHECKPOINT))
        return md_fail(err, MD_UNSUPPORTED, "this engine does not go back to where a question begins");
    if (md_engine_info(e)->sparse_from_tokens > 0)
        return md_fail(
            err, MD_UNSUPPORTED,
            "long text is attended in parts only (--xattention), and heads are measured where all of it is");
    return MD_OK;
}

/* Queries of one layer, of a whole batch. */
static int64_t watch_bytes(const struct md_engine *e, int32_t layer)
{
    int32_t ignored;
    const struct md_attention_layer *of = &md_engine_attention(e, &ignored)[layer];
    return (int64_t)md_engine_info(e)->batch_tokens * of->query_heads * of->length * (int64_t)sizeof(float);
}

static void list_groups(struct md_calibrator *c)
{
    int64_t bytes = 0;
    for (int32_t i = 0; i < c->layer_count; i++) {
        const int64_t more = watch_bytes(c->hot->engine, c->layers[i]);
        if (i == 0 || bytes + more > WATCH_BYTES) {
            c->groups[c->group_count++].first = i;
            bytes = 0;
        }
        bytes += more;
        c->groups[c->group_count - 1].end = i + 1;
    }
}

static enum md_status list_heads(struct md_calibrator *c, struct md_err *err)
{
    const struct md_alloc *alloc = c->hot->alloc;
    int32_t layers;
    size_t heads = 0;
    const struct md_attention_layer *of = md_engine_attention(c->hot->engine, &layers);
    for (int32_t i = 0; i < layers; i++)
        heads += md_attend_is_scored(&of[i]) ? (size_t)of[i].query_heads : 0;
    c->layers = md_calloc(alloc, (size_t)layers + 1, sizeof *c->layers);
    c->first_measure = md_calloc(alloc, (size_t)layers + 1, sizeof *c->first_measure);
    c->groups = md_calloc(alloc, (size_t)layers + 1, sizeof *c->groups);
    c->measures = md_calloc(alloc, heads + 1, sizeof *c->measures);
    if (c->layers == NULL || c->first_measure == NULL || c->groups == NULL || c->measures == NULL)
        return md_fail(err, MD_NO_MEMORY, "measures of %zu heads", heads);
    for (int32_t i = 0; i < layers; i++) {
        if (!md_attend_is_scored(&of[i]))
            continue;
        c->first_measure[c->layer_count] = c->measure_count;
        c->layers[c->layer_count++] = i;
        for (int32_t h = 0; h < of[i].query_heads; h++)
            c->measures[c->measure_count++] = (struct md_calibrate_measure){ .layer = i, .head = h };
    }
    list_groups(c);
    return MD_OK;
}

static enum md_status choose_length(struct md_calibrator *c, struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(c->hot->engine);
    int32_t room = c->hot->limit_tokens;
    if (info->trained_tokens > 0 && room > info->trained_tokens)
        room = info->trained_tokens;
    c->tokens = room - MD_HAYSTACK_QUESTION - c->tape.block_tokens;
    if (c->tokens > MD_HAYSTACK_TOKENS)
        c->tokens = MD_HAYSTACK_TOKENS;
    if (c->tokens < MD_HAYSTACK_LEAST)
        return md_fail(err, MD_TOO_LARGE, "%d tokens may be hot, and %d are needed to measure heads", room,
                       MD_HAYSTACK_LEAST + MD_HAYSTACK_QUESTION + c->tape.block_tokens);
    return MD_OK;
}

enum md_status md_calibrator_open(struct md_hot *hot, const struct md_text *text, int32_t block_tokens,
                                  struct md_calibrator **ret_calibrator, struct md_err *err)
{
    enum md_status s = md_calibrator_check(hot->engine, err);
    if (s != MD_OK)
        return s;
    struct md_calibrator *c = md_calloc(hot->alloc, 1, sizeof *c);
    if (c == NULL)
        return md_fail(err, MD_NO_MEMORY, "measures of heads");
    c->hot = hot;
    c->text = text;
    md_tape_init(&c->tape, hot->alloc, block_tokens, md_prefix_root("modeld: measures of heads"));
    md_drive_open(&c->drive, hot, &c->tape);
    c->drive.unseen = true;
    s = choose_length(c, err);
    if (s == MD_OK)
        s = list_heads(c, err);
    if (s == MD_OK)
        *ret_calibrator = c;
    else
        md_calibrator_close(c);
    return s;
}

void md_calibrator_close(struct md_calibrator *c)
{
    if (c == NULL)
        return;
    const struct md_alloc *alloc = c->hot->alloc;
    md_mirror_close(c->mirror);
    md_drive_close(&c->drive, false);
    md_tape_done(&c->tape);
    md_haystack_done(&c->haystack);
    md_free(alloc, c->layers);
    md_free(alloc, c->first_measure);
    md_free(alloc, c->groups);
    md_free(alloc, c->measures);
    md_free(alloc, c);
}

/* ---- the haystack ---- */

/* The tokens that are evaluated next behind the prompt. */
static int32_t question(const struct md_calibrator *c, const md_token **ret_tokens)
{
    const struct md_tokens *q =
        c->stage == MD_NEEDLES_KINDS ? &c->haystack.prompt : &c->haystack.questions[c->question];
    *ret_tokens = q->ids;
    if (c->stage < MD_NEEDLES_KINDS)
        return (int32_t)q->count;
    return c->period < MD_HAYSTACK_COPY_ROWS ? c->period : MD_HAYSTACK_COPY_ROWS;
}

static enum md_status prepare(struct md_calibrator *c, struct md_err *err)
{
    const int32_t batch = md_engine_info(c->hot->engine)->batch_tokens;
    const md_token *ignored;
    enum md_status s;
    if (c->stage < MD_NEEDLES_KINDS)
        s = md_haystack_build(c->text, (enum md_needles_kind)c->stage, c->tokens, c->hot->alloc, &c->haystack,
                              err);
    else
        s = md_haystack_repeat(c->text, c->tokens, c->hot->alloc, &c->haystack.prompt, &c->period, err);
    if (s == MD_OK && c->haystack.prompt.count <= (size_t)c->tape.block_tokens)
        s = md_fail(
            err, MD_TOO_LARGE,
            "all %zu tokens that heads are measured with lie in the first block, which has %d: choose "
            "smaller blocks (--block-tokens)",
            c->haystack.prompt.count, c->tape.block_tokens);
    for (c->question = MD_NEEDLES + 1; s == MD_OK && c->question-- > 0;)
        if (question(c, &ignored) > batch)
            s = md_fail(err, MD_TOO_LARGE, "the engine takes %d tokens at once, and a question has %d", batch,
                        question(c, &ignored));
    c->question = 0;
    c->prepared = s == MD_OK;
    return s;
}

static enum md_status cut(struct md_calibrator *c, int32_t count, struct md_err *err)
{
    return md_drive_cut(&c->drive, count, false, err);
}

/* Tokens of the tape before the first block that is not hot. */
static int32_t hot_until(const struct md_calibrator *c)
{
    for (size_t i = 0; i < md_tape_block_count(&c->tape); i++)
        if (c->tape.blocks[i].state != MD_STATE_HOT)
            return md_tape_range(&c->tape, i).start;
    return c->tape.count;
}

/* What is on the tape is hot, and `incoming` cells are free; what was lost is cut off with all behind it. */
static enum md_status make_room(struct md_calibrator *c, int32_t incoming, bool *ret_whole,
                                struct md_err *err)
{
    int32_t lost_from = -1;
    enum md_status s = md_drive_begin(&c->drive, err);
    c->drive.request.stays = true; /* what is lost is cut off here */
    if (s == MD_OK)
        s = md_drive_make_room(&c->drive, incoming, &lost_from, err);
    if (s != MD_OK)
        return s;
    const int32_t until = hot_until(c);
    *ret_whole = until == c->tape.count;
    if (*ret_whole)
        return MD_OK;
    if (++c->losses > LOSSES_MOST)
        return md_fail(err, MD_BUSY,
                       "what heads are measured with was lost %d times: the hot set or the cold store is "
                       "too small beside the conversations",
                       c->losses);
    return cut(c, until, err);
}

static enum md_status prefill(struct md_calibrator *c, struct md_err *err)
{
    const md_token *tokens = c->haystack.prompt.ids;
    const int32_t start = c->tape.count, batch = md_engine_info(c->hot->engine)->batch_tokens;
    int32_t count = (int32_t)c->haystack.prompt.count - start;
    bool whole;
    count = count < CHUNK_TOKENS ? count : CHUNK_TOKENS;
    count = count < batch ? count : batch;
    enum md_status s = md_tape_reserve(&c->tape, start + count, err);
    if (s == MD_OK)
        s = make_room(c, count, &whole, err);
    if (s != MD_OK || !whole || count == 0)
        return s;
    s = md_engine_prefill(c->hot->engine, c->drive.seq, start, tokens + start, count, err);
    return s == MD_OK ? md_drive_append_computed(&c->drive, tokens + start, count, err) : s;
}

/* ---- questions ---- */

/* All keys of the group's layers have room. */
static enum md_status open_mirror(struct md_calibrator *c, struct md_err *err)
{
    const struct md_calibrator_group *g = &c->groups[c->group];
    const struct md_engine *e = c->hot->engine;
    const int32_t *layers = c->layers + g->first, count = g->end - g->first;
    const int64_t numbers = md_mirror_token_numbers(e, layers, count);
    return md_mirror_open(c->hot->alloc, e, layers, count,
                          (md_tape_block_count(&c->tape) + 1) *
                              md_mirror_block_bytes(numbers, c->tape.block_tokens),
                          &c->mirror, err);
}

/* The keys of each block of the prompt; borrowed from the mirror. */
static enum md_status gather(struct md_calibrator *c, const uint16_t **keys, struct md_err *err)
{
    const struct md_mirror_source from = { c->hot->engine, c->hot->cold, c->drive.seq, true };
    enum md_status s = c->mirror == NULL ? open_mirror(c, err) : MD_OK;
    const int64_t mark = s == MD_OK ? md_mirror_mark(c->mirror) : 0;
    for (size_t i = 0; i < md_tape_block_count(&c->tape) && s == MD_OK; i++) {
        const struct md_cold_ref ref = md_tape_ref(&c->tape, i);
        s = md_mirror_keys(c->mirror, &from, &ref, mark, &keys[i], err);
        assert(s != MD_OK || keys[i] != NULL); /* there is room for all */
    }
    return s;
}

static enum md_status evaluate(struct md_calibrator *c, const uint16_t **keys, struct md_err *err)
{
    const struct md_calibrator_group *g = &c->groups[c->group];
    const int32_t end = c->tape.count;
    const size_t blocks = md_tape_block_count(&c->tape);
    const md_token *tokens;
    const float *ignored;
    const int32_t rows = question(c, &tokens);
    enum md_status s = gather(c, keys, err);
    if (s == MD_OK)
        s = md_engine_watch(c->hot->engine, c->layers + g->first, g->end - g->first, err);
    if (s == MD_OK)
        s = md_engine_decode(c->hot->engine, c->drive.seq, end, tokens, rows, &ignored, err);
    if (s == MD_OK)
        s = md_drive_append_computed(&c->drive, tokens, rows, err);
    if (s == MD_OK)
        s = md_calibrator_measure(c, keys, blocks, rows, err);
    if (s == MD_OK)
        s = cut(c, end, err);
    struct md_err ignored_err;
    (void)!md_engine_watch(c->hot->engine, NULL, 0, &ignored_err);
    return s;
}

/* Sums become means; then the best, or nothing yet.  *ret_done: there is a choice. */
static enum md_status choose(struct md_calibrator *c, bool *ret_done, struct md_err *err)
{
    struct md_calibrate_params params = md_calibrate_defaults();
    struct md_arena arena MD_CLEANUP(md_arena_done);
    int32_t layers;
    (void)md_engine_attention(c->hot->engine, &layers);
    const bool copy = c->stage > MD_NEEDLES_KINDS;
    params.source = copy ? MD_CALIBRATE_COPY : MD_CALIBRATE_CONTRAST;
    for (size_t i = 0; i < c->measure_count && !copy; i++) {
        struct md_calibrate_measure *m = &c->measures[i];
        m->gold /= (float)c->items;
        m->null /= (float)c->items;
        m->near /= (float)c->items;
    }
    md_arena_init(&arena, c->hot->alloc, ARENA_BYTES_MAX);
    enum md_status s =
        md_calibrate_choose(c->measures, c->measure_count, layers, &params, &arena, &c->set, err);
    *ret_done = s == MD_OK;
    return s == MD_NOT_FOUND && !copy ? MD_OK : s; /* copying heads are next */
}

static enum md_status next_stage(struct md_calibrator *c, struct md_err *err)
{
    enum md_status s = cut(c, 0, err);
    if (s != MD_OK)
        return s;
    md_haystack_done(&c->haystack);
    c->prepared = false;
    c->group = 0;
    c->losses = 0;
    c->items += c->stage < MD_NEEDLES_KINDS ? MD_NEEDLES : 0;
    c->stage++;
    return c->stage >= MD_NEEDLES_KINDS ? choose(c, &c->done, err) : MD_OK;
}

static enum md_status ask(struct md_calibrator *c, struct md_err *err)
{
    const md_token *ignored;
    const int32_t rows = question(c, &ignored);
    bool whole;
    enum md_status s = md_tape_reserve(&c->tape, c->tape.count + rows, err);
    if (s == MD_OK)
        s = make_room(c, rows, &whole, err);
    if (s != MD_OK || !whole)
        return s;
    const uint16_t **keys = md_calloc(c->hot->alloc, md_tape_block_count(&c->tape) + 1, sizeof *keys);
    s = keys != NULL ? evaluate(c, keys, err) : md_fail(err, MD_NO_MEMORY, "keys of a haystack");
    md_free(c->hot->alloc, keys);
    if (s != MD_OK)
        return s;
    const int last = c->stage < MD_NEEDLES_KINDS ? MD_NEEDLES : 0;
    if (c->question++ < last)
        return MD_OK;
    c->question = 0;
    md_mirror_close(c->mirror);
    c->mirror = NULL;
    return ++c->group == c->group_count ? next_stage(c, err) : MD_OK;
}

enum md_status md_calibrator_step(struct md_calibrator *c, bool (*wanted)(void *user), void *user,
                                  bool *ret_done, struct md_err *err)
{
    enum md_status s = MD_OK;
    md_engine_set_interrupt(c->hot->engine, wanted, user);
    if (!c->done && !c->prepared)
        s = prepare(c, err);
    else if (!c->done && c->tape.count < (int32_t)c->haystack.prompt.count)
        s = prefill(c, err);
    else if (!c->done)
        s = ask(c, err);
    md_engine_set_interrupt(c->hot->engine, NULL, NULL);
    if (s == MD_SESSION_FATAL)
        md_move_give_up(&c->drive, err);
    md_move_notice_all_lost(c->hot);
    c->drive.last_live = 0; /* it makes way before any conversation */
    *ret_done = s == MD_OK && c->done;
    return s;
}

/* ---- looking at it ---- */

int md_calibrator_percent(const struct md_calibrator *c)
{
    const int64_t each = (MD_NEEDLES + 1) * (int64_t)ASKED_TOKENS, all = c->tokens + c->group_count * each;
    int64_t done = c->tape.count;
    if (c->done)
        return 100;
    if (c->tape.count > 0)
        done += c->group * each + c->question * (int64_t)ASKED_TOKENS;
    if (c->stage >= MD_NEEDLES_KINDS)
        return 99; /* tokens that repeat are seldom needed, and short */
    const int64_t percent =
        (c->stage * INT64_C(100) + (done < all ? done * 100 / all : 100)) / MD_NEEDLES_KINDS;
    return percent < 99 ? (int)percent : 99;
}

const struct md_calibrate_set *md_calibrator_result(const struct md_calibrator *c)
{
    assert(c->done);
    return &c->set;
}

const struct md_calibrate_measure *md_calibrator_measures(const struct md_calibrator *c, size_t *ret_count)
{
    *ret_count = c->measure_count;
    return c->measures;
}
