/* snapshot.c - see snapshot.h. */
#include "session/snapshot.h"

#include "session/block_meta.h"
#include "session/origin.h"
#include "session/session_internal.h"
#include "session/state.h"
#include "session/store.h"
#include "session/whole.h"

#include <string.h>

enum { RECORD_MAX = 256 << 20, IDENTITY_MAX = 1024 };

#define SNAPSHOT MD_SECTION_TYPE('S', 'N', 'A', 'P')
#define IDENTITY MD_SECTION_TYPE('I', 'D', 'E', 'N')
#define ORIGIN MD_SECTION_TYPE('O', 'R', 'I', 'G')
#define RECORD MD_SECTION_TYPE('C', 'O', 'N', 'V')
#define FRONT MD_SECTION_TYPE('F', 'R', 'N', 'T')
#define BLOCK MD_SECTION_TYPE('B', 'L', 'C', 'K')
#define STATE MD_SECTION_TYPE('S', 'T', 'A', 'T')

/* ---- writing ---- */

/* The KV of block i, from wherever it is; nothing is appended where it is nowhere. */
static enum md_status fetch_block(struct md_session *s, size_t i, struct md_buf *kv,
                                  struct md_provenance *ret_provenance, struct md_err *err)
{
    const struct md_hot *h = s->drive.hot;
    const struct md_tape_block *b = &s->tape.blocks[i];
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    const int32_t count = md_range_len(ref.range);
    *ret_provenance = b->provenance;
    if (b->state == MD_STATE_LOST)
        return MD_OK;
    if (b->state == MD_STATE_HOT && b->moved_by == 0) /* else the cold store has what it was at its place */
        return md_engine_export_range(h->engine, s->drive.seq, ref.range, kv, err);
    const struct md_hot_match m = md_hot_best(h, &s->drive, ref.parent, ref.range.start, ref.tokens, count);
    if (m.common == count) {
        *ret_provenance = m.provenance;
        return md_engine_export_range(h->engine, m.drive->seq, ref.range, kv, err);
    }
    enum md_status st = md_cold_read(h->cold, &ref, h->floor, kv, ret_provenance, err);
    return st == MD_NOT_FOUND || st == MD_CORRUPT ? MD_OK : st;
}

/* A block or a state: what is said of it, then its bytes. */
static enum md_status put_entry(struct md_sections_writer *w, const struct md_cold_ref *ref,
                                enum md_cache_class cls, struct md_provenance provenance,
                                const struct md_buf *bytes, struct md_err *err)
{
    uint8_t meta[MD_BLOCK_META_BYTES];
    md_block_meta_write(&(struct md_cold_entry){ .key = ref->key,
                                                 .parent = ref->parent,
                                                 .start = ref->range.start,
                                                 .token_count = md_range_len(ref->range),
                                                 .cls = cls,
                                                 .provenance = provenance,
                                                 .is_state = ref->is_state },
                        meta);
    const struct md_bytes parts[] = { { meta, sizeof meta }, { bytes->data, bytes->len } };
    return md_sections_put(w, ref->is_state ? STATE : BLOCK, parts, 2, err);
}

/* A snapshot on its way. */
struct writing {
    struct md_sections_writer *w;
    const struct md_sink *sink; /* NULL: it is wanted to the end */
    struct md_snapshot out;
};

static enum md_status write_block(struct md_session *s, size_t i, struct writing *x, struct md_err *err)
{
    struct md_buf kv MD_CLEANUP(md_buf_done);
    struct md_provenance provenance;
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    md_buf_init(&kv, s->pool->config.alloc, SIZE_MAX / 2);
    enum md_status st = md_turn_check_cancel(x->sink, err);
    if (st == MD_OK)
        st = fetch_block(s, i, &kv, &provenance, err);
    if (st != MD_OK || kv.len == 0)
        return st;
    x->out.kv_tokens += md_range_len(ref.range);
    return put_entry(x->w, &ref, s->tape.blocks[i].cls, provenance, &kv, err);
}

/* The tail state saved at position `at`; nothing is written where it is gone.  Where it is all there is, it stands for the
 * KV of all before it. */
static enum md_status write_state(struct md_session *s, int32_t at, struct writing *x, struct md_err *err)
{
    struct md_buf state MD_CLEANUP(md_buf_done);
    md_buf_init(&state, s->pool->config.alloc, SIZE_MAX / 2);
    enum md_status st = md_turn_check_cancel(x->sink, err);
    if (st == MD_OK)
        st = md_state_read(&s->drive, at, &state, err);
    if (st == MD_NOT_FOUND || st == MD_CORRUPT)
        return MD_OK;
    if (st != MD_OK)
        return st;
    const struct md_cold_ref ref = md_state_ref(&s->tape, at);
    const struct md_tape_block *in = &s->tape.blocks[ref.range.start / s->tape.block_tokens];
    if (md_whole_is_all(s->drive.hot) && at > x->out.kv_tokens)
        x->out.kv_tokens = at;
    return put_entry(x->w, &ref, in->cls, in->provenance, &state, err);
}

/* From the end, which matters most where not all of them find room again. */
static enum md_status write_states(struct md_session *s, struct writing *x, struct md_err *err)
{
    struct md_drive *d = &s->drive;
    enum md_status st = MD_OK;
    if (!md_state_is_kept(d->hot))
        return st;
    for (int32_t at = md_state_before(d, s->tape.count); st == MD_OK && at > 0;
         at = md_state_saved_before(d, at - 1))
        st = write_state(s, at, x, err);
    return st;
}

/* Whose tokens and whose KV it is. */
static enum md_status write_head(struct md_session *s, struct writing *x, struct md_err *err)
{
    const struct md_engine_info *info = md_engine_info(s->pool->engine);
    const struct md_bytes identity = { info->identity, strlen(info->identity) };
    struct md_origin origin;
    struct md_buf bytes MD_CLEANUP(md_buf_done);
    md_buf_init(&bytes, s->pool->config.alloc, MD_ORIGIN_BYTES_MAX);
    md_origin_of(info, &origin);
    enum md_status st = md_origin_write(&origin, &bytes, err);
    if (st == MD_OK)
        st = md_sections_put(x->w, IDENTITY, &identity, 1, err);
    return st == MD_OK ? md_sections_put(x->w, ORIGIN, &(struct md_bytes){ bytes.data, bytes.len }, 1, err)
                       : st;
}

static enum md_status write_all(struct md_session *s, struct writing *x, struct md_err *err)
{
    const struct md_bytes notes = md_session_notes(s);
    struct md_buf record MD_CLEANUP(md_buf_done);
    md_buf_init(&record, s->pool->config.alloc, RECORD_MAX);
    enum md_status st = md_record_write(s, &record, err);
    if (st == MD_OK)
        st = write_head(s, x, err);
    if (st == MD_OK)
        st = md_sections_put(x->w, RECORD, &(struct md_bytes){ record.data, record.len }, 1, err);
    if (st == MD_OK && notes.len > 0)
        st = md_sections_put(x->w, FRONT, &notes, 1, err);
    const size_t blocks = md_whole_is_all(s->drive.hot) ? 0 : md_tape_block_count(&s->tape);
    for (size_t i = 0; st == MD_OK && i < blocks; i++)
        st = write_block(s, i, x, err);
    if (st == MD_OK)
        st = write_states(s, x, err);
    return st == MD_OK ? md_turn_check_cancel(x->sink, err) : st;
}

enum md_status md_session_snapshot(struct md_session *s, const struct md_sections_place *place,
                                   const struct md_sink *sink, struct md_snapshot *ret, struct md_err *err)
{
    struct writing x = {
        .sink = sink, .out = { .context_tokens = (int32_t)s->context.count, .tape_tokens = s->tape.count }
    };
    enum md_status st = md_session_check_alive(s, err);
    md_move_notice_lost(&s->drive);
    if (st == MD_OK)
        st = md_sections_create(s->pool->config.alloc, place, SNAPSHOT, INT64_MAX, &x.w, err);
    if (st != MD_OK)
        return st;
    st = write_all(s, &x, err);
    if (st != MD_OK) {
        md_sections_abort(x.w);
        if (st == MD_SESSION_FATAL)
            md_move_give_up(&s->drive, err);
        return st;
    }
    x.out.bytes = md_sections_bytes(x.w);
    st = md_sections_commit(x.w, true, err);
    if (st == MD_OK)
        *ret = x.out;
    return st;
}

/* ---- reading ---- */

/* A block or a state of the file, on its way to the cold store. */
struct taken {
    struct md_cold_ref ref; /* of x->tape */
    enum md_cache_class cls;
    bool added; /* else the store has it already */
};

struct restore {
    struct md_session *s;
    const struct md_snapshot_expected *expect;
    const struct md_sink *sink; /* NULL: nobody leaves, or it cannot be undone any more */
    struct md_sections_reader *r;
    struct md_record record;
    struct md_tape tape; /* what the record says, for the names of its blocks */
    struct md_buf bytes; /* of the section at hand */
    struct md_buf identity, notes;
    bool tokens_only;    /* no KV of the file is looked at */
    int64_t head_count;  /* sections up to the record, and with it */
    struct taken *taken; /* room for all entries of the file */
    size_t entry_count, taken_count;
    bool settled; /* what was taken stays, and others may go for the rest */
    struct md_snapshot out;
};

static void restore_done(struct restore *x)
{
    md_free(x->s->pool->config.alloc, x->taken);
    md_sections_close(x->r);
    md_record_done(&x->record);
    md_tape_done(&x->tape);
    md_buf_done(&x->bytes);
    md_buf_done(&x->identity);
    md_buf_done(&x->notes);
}

static bool is_kv(uint32_t type)
{
    return type == BLOCK || type == STATE;
}

/* The next section; *ret_type 0: there is none.  Its payload, at most `most` bytes, into x->bytes; but not that of KV which
 * nobody wants: it is verified as it is read over, and may be larger than any of this engine. */
static enum md_status read_section(struct restore *x, uint32_t *ret_type, int64_t most, struct md_err *err)
{
    int64_t bytes;
    x->bytes.len = 0;
    enum md_status st = md_turn_check_cancel(x->sink, err);
    if (st == MD_OK)
        st = md_sections_next(x->r, ret_type, &bytes, err);
    if (st != MD_OK || *ret_type == 0 || (x->tokens_only && is_kv(*ret_type)))
        return st;
    if (*ret_type == ORIGIN && most > MD_ORIGIN_BYTES_MAX)
        most = MD_ORIGIN_BYTES_MAX;
    if (bytes > most)
        return md_fail(err, MD_CORRUPT, "snapshot: a section of %lld bytes, at most %lld are read",
                       (long long)bytes, (long long)most);
    st = md_buf_reserve(&x->bytes, (size_t)bytes, err);
    if (st == MD_OK && bytes > 0)
        st = md_sections_read(x->r, x->bytes.data, (size_t)bytes, err);
    x->bytes.len = st == MD_OK ? (size_t)bytes : 0;
    return st;
}

static enum md_status read_wanted(struct restore *x, uint32_t type, int64_t most, struct md_err *err)
{
    uint32_t found;
    enum md_status st = read_section(x, &found, most, err);
    return st == MD_OK && found != type
               ? md_fail(err, MD_CORRUPT, "snapshot: its sections are in another order")
               : st;
}

/* What stands before the record: whose it is.  x->bytes are the record then. */
static enum md_status read_head(struct restore *x, struct md_err *err)
{
    const struct md_engine_info *ours = md_engine_info(x->s->pool->engine);
    uint32_t type = 0;
    enum md_status st = read_wanted(x, IDENTITY, IDENTITY_MAX, err);
    if (st == MD_OK)
        st = md_buf_append(&x->identity, x->bytes.data, x->bytes.len, err);
    if (st == MD_OK)
        st = read_section(x, &type, RECORD_MAX, err);
    if (st != MD_OK)
        return st;
    const struct md_bytes identity = { x->identity.data, x->identity.len },
                          origin = { x->bytes.data, x->bytes.len };
    x->head_count = type == ORIGIN ? 3 : 2;
    st = md_origin_judge(identity, type == ORIGIN ? &origin : NULL, ours, x->tokens_only, err);
    if (st == MD_OK && type == ORIGIN)
        return read_wanted(x, RECORD, RECORD_MAX, err);
    return st == MD_OK && type != RECORD
               ? md_fail(err, MD_CORRUPT, "snapshot: its sections are in another order")
               : st;
}

static enum md_status check_expected(const struct restore *x, struct md_err *err)
{
    const struct md_snapshot_expected *e = x->expect;
    const struct md_record *r = &x->record;
    if (e == NULL)
        return MD_OK;
    if (r->context.count != e->context_tokens || r->prefix_count != e->prefix_tokens)
        return md_fail(err, MD_MANIFEST_MISMATCH,
                       "the snapshot has %d tokens with a prefix of %d, it should have %d with %d",
                       r->context.count, r->prefix_count, e->context_tokens, e->prefix_tokens);
    const int32_t count = e->token_count < r->context.count ? e->token_count : r->context.count;
    for (int32_t i = 0; i < count; i++)
        if (e->tokens[i] != r->context.tokens[i])
            return md_fail(err, MD_MANIFEST_MISMATCH, "the snapshot is of another text from token %d on", i);
    return MD_OK;
}

static enum md_status read_record(struct restore *x, struct md_err *err)
{
    const struct md_pool *p = x->s->pool;
    enum md_status st = read_head(x, err);
    if (st == MD_OK)
        st = md_record_read(x->bytes.data, x->bytes.len, p->config.alloc, &x->record, err);
    if (st == MD_OK)
        st = md_session_check_record(x->s, &x->record, err);
    if (st == MD_OK)
        st = check_expected(x, err);
    if (st != MD_OK)
        return st;
    const struct md_record *r = &x->record;
    x->record.bare = r->bare || x->tokens_only;
    md_tape_init(&x->tape, p->config.alloc, r->block_tokens, x->s->tape.root);
    if (r->tape_count == 0)
        return MD_OK;
    st = md_tape_reserve(&x->tape, r->tape_count, err);
    if (st == MD_OK)
        md_tape_append(&x->tape, r->tape, r->tape_count, (struct md_tape_block){ .state = MD_STATE_COLD });
    return st;
}

/* Is the section at hand a block of this tape, or a state within it?  Then its name, class and provenance. */
static enum md_status check_block(struct restore *x, bool is_state, struct md_cold_ref *ret_ref,
                                  struct md_cold_entry *ret_meta, struct md_err *err)
{
    struct md_tape *t = &x->tape;
    struct md_cold_entry e = { 0 };
    if (x->bytes.len <= MD_BLOCK_META_BYTES || !md_block_meta_read(x->bytes.data, &e) ||
        e.is_state != is_state || e.start % t->block_tokens != 0 || e.start >= t->count ||
        e.token_count > t->count - e.start)
        return md_fail(err, MD_CORRUPT, "snapshot: a block that its tape does not have");
    *ret_ref = is_state ? md_state_ref(t, e.start + e.token_count)
                        : md_tape_ref(t, (size_t)(e.start / t->block_tokens));
    if (md_range_len(ret_ref->range) != e.token_count || !md_key_equal(ret_ref->key, e.key) ||
        !md_key_equal(ret_ref->parent, e.parent))
        return md_fail(err, MD_CORRUPT, "snapshot: the block at %d is of another text", e.start);
    *ret_meta = e;
    return MD_OK;
}

/* From here on nothing is undone.  What was here before is used again from now on, so that it is not what goes first. */
static void settle(struct restore *x)
{
    for (size_t i = 0; !x->settled && i < x->taken_count; i++)
        if (!x->taken[i].added)
            md_cold_touch(x->s->drive.hot->cold, &x->taken[i].ref, x->taken[i].cls);
    x->settled = true;
    x->sink = NULL;
}

static void take_back(struct restore *x)
{
    for (size_t i = 0; !x->settled && i < x->taken_count; i++)
        if (x->taken[i].added)
            md_cold_take_back(x->s->drive.hot->cold, &x->taken[i].ref);
    x->taken_count = 0;
}

static enum md_status take_block(struct restore *x, const struct md_cold_ref *ref,
                                 const struct md_cold_entry *e, struct md_err *err)
{
    struct md_cold *cold = x->s->drive.hot->cold;
    const struct md_bytes kv = { x->bytes.data + MD_BLOCK_META_BYTES, x->bytes.len - MD_BLOCK_META_BYTES };
    if (!x->settled) {
        const enum md_cold_added added = md_cold_add(cold, ref, e->cls, e->provenance, kv);
        if (added != MD_COLD_NEEDS_ROOM) {
            x->taken[x->taken_count++] = (struct taken){ *ref, e->cls, added == MD_COLD_ADDED };
            return MD_OK;
        }
        settle(x);
    }
    bool ignored; /* what found no room is counted in the end */
    return md_cold_put(cold, ref, e->cls, e->provenance, kv, &ignored, err);
}

/* The largest section behind the record: the KV of a block, a state or the notes.  None that was written here is larger, and
 * memory is taken for what fits alone. */
static int64_t largest_section(const struct restore *x)
{
    const struct md_engine *e = x->s->pool->engine;
    const int64_t block = md_engine_export_bytes(e, x->tape.block_tokens);
    const int64_t state = md_engine_checkpoint_bytes(e);
    const int64_t kv = MD_BLOCK_META_BYTES + (block > state ? block : state);
    return kv > MD_NOTES_BYTES_MAX ? kv : MD_NOTES_BYTES_MAX;
}

/* Go over what follows the record: once to see that all of it can be taken, once to take it. */
static enum md_status read_rest(struct restore *x, bool take, struct md_err *err)
{
    enum md_status st = MD_OK;
    const int64_t largest = largest_section(x);
    uint32_t type;
    md_sections_rewind(x->r);
    for (int64_t i = 0; st == MD_OK; i++) {
        struct md_cold_ref ref = { 0 };
        struct md_cold_entry meta = { 0 };
        st = read_section(x, &type, i < x->head_count ? RECORD_MAX : largest, err);
        if (st != MD_OK || type == 0)
            break;
        if (i < x->head_count || (x->tokens_only && is_kv(type)))
            continue;
        if (is_kv(type))
            st = check_block(x, type == STATE, &ref, &meta, err);
        else if (type != FRONT || i != x->head_count || x->bytes.len > MD_NOTES_BYTES_MAX)
            st = md_fail(err, MD_CORRUPT, "snapshot: its sections are of another order or size");
        else if (!take)
            st = md_buf_append(&x->notes, x->bytes.data, x->bytes.len, err);
        if (st != MD_OK || !is_kv(type))
            continue;
        if (take && x->taken_count < x->entry_count)
            st = take_block(x, &ref, &meta, err);
        else if (take) /* the reader tells in the end */
            continue;
        else
            x->entry_count++;
    }
    return st;
}

/* As far as the tape can go on from when all of it is wanted: a lost block is computed in its place where that is possible,
 * else with all behind it. */
static int32_t known_end(struct md_session *s)
{
    struct md_drive *d = &s->drive;
    const struct md_tape *t = &s->tape;
    const bool goes_back = md_state_is_kept(d->hot);
    const bool in_place = (md_engine_caps(d->hot->engine) & MD_CAP_RECOMPUTE_RANGE) != 0;
    const int32_t end = goes_back ? md_state_saved_before(d, t->count) : t->count;
    for (size_t i = 0; i < md_tape_block_count(t) && md_tape_range(t, i).start < end; i++) {
        const int32_t start = md_tape_range(t, i).start;
        if (t->blocks[i].state != MD_STATE_LOST || md_whole_is_all(d->hot))
            continue;
        const int32_t from = goes_back ? md_state_saved_before(d, start) : start;
        if (!in_place || from < start)
            return from;
    }
    return end;
}

/* Tokens that the next call need not compute. */
static int32_t known_tokens(struct md_session *s)
{
    const struct md_tape *t = &s->tape;
    const int32_t end = known_end(s);
    int32_t sum = 0;
    if (s->bare)
        return 0;
    if (md_whole_is_all(s->drive.hot))
        return end;
    for (size_t i = 0; i < md_tape_block_count(t) && md_tape_range(t, i).start < end; i++) {
        const struct md_range r = md_tape_range(t, i);
        if (t->blocks[i].state != MD_STATE_LOST)
            sum += (r.end < end ? r.end : end) - r.start;
    }
    return sum;
}

/* All memory that is wanted, before anything is changed. */
static enum md_status reserve(struct restore *x, struct md_err *err)
{
    struct md_session *s = x->s;
    const struct md_record *r = &x->record;
    enum md_status st = md_session_reserve_notes(s, x->notes.len, err);
    if (st == MD_OK)
        st = md_session_reserve(s, r->context.count, r->context.segment_count, err);
    if (st == MD_OK && r->tape_count > 0)
        st = md_tape_reserve(&s->tape, r->tape_count, err);
    x->taken = st == MD_OK ? md_calloc(s->pool->config.alloc, x->entry_count + 1, sizeof *x->taken) : NULL;
    return st == MD_OK && x->taken == NULL ? md_fail(err, MD_NO_MEMORY, "list of %zu blocks", x->entry_count)
                                           : st;
}

static enum md_status replace(struct restore *x, struct md_err *err)
{
    struct md_session *s = x->s;
    settle(x);
    enum md_status st = md_drive_cut(&s->drive, 0, true, err);
    if (st == MD_OK)
        st = md_session_load(s, &x->record, err);
    if (st != MD_OK)
        return st;
    md_session_put_notes(s, (struct md_bytes){ x->notes.data, x->notes.len });
    x->out.context_tokens = x->record.context.count;
    x->out.tape_tokens = x->record.tape_count;
    x->out.kv_tokens = known_tokens(s);
    md_store_commit(s);
    return MD_OK;
}

static enum md_status open_file(struct restore *x, const struct md_sections_place *place, struct md_err *err)
{
    static const uint32_t known[] = { IDENTITY, ORIGIN, RECORD, FRONT, BLOCK, STATE };
    enum { KNOWN = sizeof known / sizeof known[0] };
    const struct md_sink *sink = x->sink;
    enum md_status st = md_sections_open_as_read(x->s->pool->config.alloc, place, SNAPSHOT, known, KNOWN,
                                                 INT64_MAX, &x->r, err);
    if (st == MD_OK)
        st = md_sections_verify(x->r, sink != NULL ? sink->cancelled : NULL, sink != NULL ? sink->user : NULL,
                                err);
    if (st == MD_OK)
        x->out.bytes = md_sections_file_bytes(x->r);
    return st;
}

static enum md_status restore(struct restore *x, const struct md_sections_place *place, struct md_err *err)
{
    struct md_session *s = x->s;
    md_buf_init(&x->bytes, s->pool->config.alloc, SIZE_MAX / 2);
    md_buf_init(&x->identity, s->pool->config.alloc, IDENTITY_MAX);
    md_buf_init(&x->notes, s->pool->config.alloc, MD_NOTES_BYTES_MAX);
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK)
        st = open_file(x, place, err);
    if (st == MD_OK)
        st = read_record(x, err);
    if (st == MD_OK)
        st = read_rest(x, false, err);
    if (st == MD_OK)
        st = reserve(x, err);
    if (st == MD_OK && !x->tokens_only)
        st = read_rest(x, true, err);
    if (st != MD_OK)
        take_back(x);
    else
        st = replace(x, err);
    if (st == MD_SESSION_FATAL && s->drive.fatal.status == MD_OK)
        md_move_give_up(&s->drive, err);
    return st;
}

enum md_status md_session_restore(struct md_session *s, const struct md_sections_place *place,
                                  const struct md_snapshot_expected *expect, const struct md_sink *sink,
                                  struct md_snapshot *ret, struct md_err *err)
{
    struct restore x MD_CLEANUP(restore_done) = { .s = s, .expect = expect, .sink = sink };
    enum md_status st = restore(&x, place, err);
    if (st == MD_OK)
        *ret = x.out;
    return st;
}

enum md_status md_session_restore_tokens(struct md_session *s, const struct md_sections_place *place,
                                         const struct md_snapshot_expected *expect,
                                         const struct md_sink *sink, struct md_snapshot *ret,
                                         struct md_err *err)
{
    struct restore x MD_CLEANUP(
        restore_done) = { .s = s, .expect = expect, .sink = sink, .tokens_only = true };
    enum md_status st = restore(&x, place, err);
    if (st == MD_OK)
        *ret = x.out;
    return st;
}
