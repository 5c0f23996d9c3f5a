/* store.c - see store.h. */
#include "session/store.h"

#include "base/log.h"
#include "policy/prefix.h"
#include "session/disk.h"
#include "session/session_internal.h"
#include "session/state.h"
#include "session/whole.h"

#include <string.h>

enum { RECORD_BYTES_MAX = 256 << 20 };

/* ---- writing ---- */

/* Block i, from wherever its KV is: here, in the cold store, or hot in another conversation.  One that an earlier commit
 * has written, and that has gone since, comes back where there is room: a tape that is larger than the disk would
 * push itself out, block by block, at every turn. */
static enum md_status save_block(struct md_session *s, size_t i, struct md_err *err)
{
    struct md_drive *d = &s->drive;
    const struct md_hot *h = d->hot;
    const struct md_tape_block *b = &s->tape.blocks[i];
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    /* of one that stands at another place the cold store has what it was at its own */
    const bool hot = b->state == MD_STATE_HOT && b->moved_by == 0;
    const bool fresh = ref.range.end > s->tape.unchanged;
    bool saved;
    if (b->state == MD_STATE_LOST || !md_provenance_accepted(b->provenance, h->floor))
        return MD_OK;
    enum md_status st =
        md_cold_save(h->cold, h->engine, d->seq, &ref, b->cls, b->provenance, hot, fresh, &saved, err);
    if (st != MD_OK || saved || hot)
        return st;
    const int32_t count = md_range_len(ref.range);
    const struct md_hot_match m = md_hot_best(h, d, ref.parent, ref.range.start, ref.tokens, count);
    if (m.common < count)
        return MD_OK;
    return md_cold_save(h->cold, h->engine, m.drive->seq, &ref, b->cls, m.provenance, true, fresh, &saved,
                        err);
}

/* The state of the tape's end, and those before it that only the memory has: back to where the tape is what an earlier
 * commit wrote. */
static enum md_status save_states(struct md_session *s, struct md_err *err)
{
    struct md_drive *d = &s->drive;
    enum md_status st = md_state_save(d, err);
    if (!md_state_is_kept(d->hot))
        return st;
    for (int32_t at = s->tape.count; st == MD_OK && at > 0 && at > s->tape.unchanged;) {
        at = md_state_saved_before(d, at);
        if (at == 0)
            break;
        const struct md_cold_ref ref = md_state_ref(&s->tape, at);
        bool ignored;
        st = md_cold_save(d->hot->cold, d->hot->engine, d->seq, &ref,
                          s->tape.blocks[(at - 1) / s->tape.block_tokens].cls, (struct md_provenance){ 0 },
                          false, true, &ignored, err);
        at--;
    }
    return st;
}

static enum md_status save_record(struct md_session *s, struct md_err *err)
{
    struct md_buf bytes MD_CLEANUP(md_buf_done);
    md_buf_init(&bytes, s->pool->config.alloc, RECORD_BYTES_MAX);
    enum md_status st = md_record_write(s, &bytes, err);
    return st == MD_OK
               ? md_disk_put_record(s->pool->config.disk, s->id, (struct md_bytes){ bytes.data, bytes.len },
                                    md_session_notes(s), err)
               : st;
}

/* The piece of a block that ended the tape at the last commit; what has become of it is written now. */
static void drop_old_end(struct md_session *s)
{
    struct md_tape *t = &s->tape;
    const int32_t old = s->saved_count, inside = old % t->block_tokens;
    if (inside == 0 || t->count <= old)
        return;
    const size_t i = (size_t)(old / t->block_tokens);
    struct md_cold_ref ref = md_tape_ref(t, i);
    ref.range.end = old;
    ref.key = md_prefix_chain(ref.parent, ref.tokens, (size_t)inside);
    if (md_key_equal(ref.key, s->saved_key) && !md_hot_is_wanted(s->drive.hot, &s->drive, &ref))
        md_disk_drop(s->pool->config.disk, &ref);
}

static void note_saved(struct md_session *s)
{
    struct md_tape *t = &s->tape;
    s->saved_count = t->unchanged = t->count;
    s->saved_key = (struct md_key){ 0 };
    if (t->count % t->block_tokens != 0)
        s->saved_key = md_tape_ref(t, md_tape_block_count(t) - 1).key;
}

/* As far as the next process can go on from, of the first `count` tokens of the tape. */
static int32_t durable_reach(struct md_session *s, int32_t count)
{
    if (!md_state_is_kept(s->drive.hot))
        return count;
    int32_t at = md_state_saved_before(&s->drive, count);
    while (at > 0) {
        const struct md_cold_ref ref = md_state_ref(&s->tape, at);
        if (md_cold_is_durable(s->drive.hot->cold, &ref))
            break;
        at = md_state_saved_before(&s->drive, at - 1);
    }
    return at;
}

static int64_t pushed_out(const struct md_session *s)
{
    return md_cold_disk_stats(s->drive.hot->cold).dropped;
}

/* Go over the blocks: write each that has to be, and count what the disk has of it then. */
static enum md_status go_over_blocks(struct md_session *s, bool save, int32_t *ret_durable,
                                     struct md_err *err)
{
    const int32_t end = durable_reach(s, s->tape.count);
    int32_t sum = 0;
    for (size_t i = 0; i < md_tape_block_count(&s->tape); i++) {
        const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
        const enum md_status st = save ? save_block(s, i, err) : MD_OK;
        if (st != MD_OK)
            return st;
        if (ref.range.end <= end && md_cold_is_durable(s->drive.hot->cold, &ref))
            sum += md_range_len(ref.range);
    }
    *ret_durable = md_whole_is_all(s->drive.hot) ? end : sum;
    return MD_OK;
}

/* Has the disk the first `count` tokens of block i, as it is or as a part of what it was? */
static bool has_start_of(struct md_session *s, size_t i, int32_t count)
{
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    int32_t common;
    return md_coldstore_best(md_disk_index(s->pool->config.disk), ref.parent, ref.range.start, ref.tokens,
                             count, s->drive.hot->floor, &common) != NULL &&
           common == count;
}

/* What the next process has of this tape when its last record stays: the blocks that it names and the disk has, as far as
 * the tape is still what it was then. */
static int32_t still_durable(struct md_session *s)
{
    const int32_t end = durable_reach(s, s->tape.unchanged);
    int32_t sum = 0;
    if (md_whole_is_all(s->drive.hot))
        return end;
    for (size_t i = 0; i < md_tape_block_count(&s->tape); i++) {
        const struct md_range r = md_tape_range(&s->tape, i);
        const int32_t count = (r.end < end ? r.end : end) - r.start;
        if (count > 0 && has_start_of(s, i, count))
            sum += count;
    }
    return sum;
}

static enum md_status commit(struct md_session *s, struct md_err *err)
{
    int32_t durable = 0;
    enum md_status st = save_states(s, err);
    const int64_t before = pushed_out(s);
    if (st == MD_OK)
        st = go_over_blocks(s, true, &durable, err);
    if (st == MD_OK)
        st = save_record(s, err);
    if (st == MD_OK && pushed_out(s) != before) /* what was written pushed out what was counted, perhaps */
        st = go_over_blocks(s, false, &durable, err);
    s->durable_tokens = st == MD_OK ? durable : still_durable(s);
    if (st == MD_OK) {
        drop_old_end(s);
        note_saved(s);
    }
    s->drive.changes++;
    return st;
}

void md_store_commit(struct md_session *s)
{
    struct md_err err;
    if (s->pool->config.disk == NULL || s->drive.fatal.status != MD_OK)
        return;
    enum md_status st = commit(s, &err);
    if (st == MD_SESSION_FATAL)
        md_move_give_up(&s->drive, &err);
    if (st != MD_OK)
        md_log(MD_LOG_WARN, "conversation %lld is not on disk: %s", (long long)s->id, err.text);
}

/* ---- reading ---- */

static enum md_status check_tokens(const struct md_session *s, const md_token *tokens, int32_t count,
                                   struct md_err *err)
{
    const int32_t vocab = md_engine_info(s->pool->engine)->vocab_count;
    for (int32_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocab)
            return md_fail(err, MD_INVALID, "token %d of the conversation is %d: the vocabulary has %d", i,
                           tokens[i], vocab);
    return MD_OK;
}

enum md_status md_session_check_record(const struct md_session *s, const struct md_record *r,
                                       struct md_err *err)
{
    const int32_t window = s->pool->config.window_tokens;
    const int32_t longest = r->tape_count > r->context.count ? r->tape_count : r->context.count;
    if (r->block_tokens != s->pool->config.block_tokens)
        return md_fail(err, MD_INVALID,
                       "the conversation is cut into blocks of %d tokens, this daemon's are %d",
                       r->block_tokens, s->pool->config.block_tokens);
    if (longest > window)
        return md_fail(err, MD_TOO_LARGE, "the conversation has %d tokens, the context window is %d", longest,
                       window);
    enum md_status st = check_tokens(s, r->context.tokens, r->context.count, err);
    return st == MD_OK ? check_tokens(s, r->tape, r->tape_count, err) : st;
}

static void load_tape(struct md_session *s, const struct md_record *r)
{
    struct md_tape *t = &s->tape;
    s->bare = r->bare && r->block_count > 0;
    for (size_t i = 0; i < r->block_count; i++) {
        const struct md_record_block *k = &r->blocks[i];
        const int32_t start = t->count, left = r->tape_count - start;
        struct md_tape_block fresh = { .state = MD_STATE_COLD, .cls = k->cls, .provenance = k->provenance };
        if (s->bare) /* how it was computed once says nothing of what will be computed */
            fresh = (struct md_tape_block){ .state = MD_STATE_LOST, .cls = k->cls };
        md_tape_append(t, r->tape + start, left < t->block_tokens ? left : t->block_tokens, fresh);
        t->blocks[i].held_out = k->held_out;
    }
    const int64_t dropped = s->drive.hot->dropped_tokens;
    md_move_notice_lost(&s->drive); /* what the store has not; no loss of this process */
    s->drive.dropped_blocks = 0;
    s->drive.hot->dropped_tokens = dropped;
}

enum md_status md_session_load(struct md_session *s, const struct md_record *r, struct md_err *err)
{
    enum md_status st = md_session_check_record(s, r, err);
    if (st == MD_OK)
        st = md_session_reserve(s, r->context.count, r->context.segment_count, err);
    if (st == MD_OK && r->tape_count > 0)
        st = md_tape_reserve(&s->tape, r->tape_count, err);
    if (st != MD_OK)
        return st;
    md_session_put_context(s, &r->context);
    s->edited_from = -1; /* what was edited is not on this tape */
    s->prefix_count = r->prefix_count;
    load_tape(s, r);
    s->drive.changes++;
    return MD_OK;
}

struct opening {
    struct md_pool *pool;
    int64_t skip; /* more than may be open: so many of the oldest stay on the disk */
};

static enum md_status open_one(void *user, int64_t id, struct md_bytes bytes, struct md_bytes notes,
                               struct md_err *err)
{
    struct opening *o = user;
    struct md_pool *p = o->pool;
    struct md_record r;
    struct md_session *s;
    if (o->skip > 0) {
        o->skip--;
        return MD_OK;
    }
    enum md_status st = md_record_read(bytes.data, bytes.len, p->config.alloc, &r, err);
    if (st == MD_OK && r.id != id)
        st = md_fail(err, MD_CORRUPT, "the record is of conversation %lld", (long long)r.id);
    const int64_t last = p->next_id;
    p->next_id = id - 1;
    if (st == MD_OK)
        st = md_pool_new(p, &s, err);
    p->next_id = last;
    if (st != MD_OK) {
        md_record_done(&r);
        return st;
    }
    st = md_session_load(s, &r, err);
    const bool fits = notes.len <= MD_NOTES_BYTES_MAX; /* else some other program's, and it can do without */
    if (st == MD_OK && fits)
        st = md_session_reserve_notes(s, notes.len, err);
    if (st == MD_OK && fits)
        md_session_put_notes(s, notes);
    if (st == MD_OK) {
        s->parent = r.parent;
        s->kept = r.kept;
        s->bound = r.bound;
        s->drive.last_live = ++p->hot.clock;
        (void)!go_over_blocks(s, false, &s->durable_tokens, err); /* it writes none: it cannot fail */
        note_saved(s);
    } else {
        md_log(MD_LOG_WARN, "kv folder: conversation %lld stays closed: %s", (long long)id, err->text);
        md_pool_discard(s);
        st = st == MD_NO_MEMORY ? st : MD_OK;
    }
    md_record_done(&r);
    return st;
}

enum md_status md_store_open_all(struct md_pool *p, struct md_err *err)
{
    if (p->config.disk == NULL)
        return MD_OK;
    p->next_id = md_disk_last_id(p->config.disk); /* an id is never used again: somebody may still send it */
    struct opening o = { p, (int64_t)md_disk_record_count(p->config.disk) - p->config.session_limit };
    return md_disk_records(p->config.disk, open_one, &o, err);
}
