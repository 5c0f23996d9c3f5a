/* snapshot.c - see snapshot.h. */
#include "session/snapshot.h"

#include "session/block_meta.h"
#include "session/session_internal.h"
#include "session/state.h"
#include "session/store.h"

#include <string.h>

enum { FRONT_MAX = 16 << 20, RECORD_MAX = 256 << 20, IDENTITY_MAX = 1024 };

#define SNAPSHOT MD_SECTION_TYPE('S', 'N', 'A', 'P')
#define IDENTITY MD_SECTION_TYPE('I', 'D', 'E', 'N')
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

static enum md_status write_block(struct md_session *s, size_t i, struct md_sections_writer *w,
                                  struct md_snapshot *out, struct md_err *err)
{
    struct md_buf kv MD_CLEANUP(md_buf_done);
    struct md_provenance provenance;
    const struct md_cold_ref ref = md_tape_ref(&s->tape, i);
    md_buf_init(&kv, s->pool->config.alloc, SIZE_MAX / 2);
    enum md_status st = fetch_block(s, i, &kv, &provenance, err);
    if (st != MD_OK || kv.len == 0)
        return st;
    out->kv_tokens += md_range_len(ref.range);
    return put_entry(w, &ref, s->tape.blocks[i].cls, provenance, &kv, err);
}

/* The tail state saved at position `at`; nothing is written where it is gone. */
static enum md_status write_state(struct md_session *s, int32_t at, struct md_sections_writer *w,
                                  struct md_err *err)
{
    struct md_buf state MD_CLEANUP(md_buf_done);
    md_buf_init(&state, s->pool->config.alloc, SIZE_MAX / 2);
    enum md_status st = md_state_read(&s->drive, at, &state, err);
    if (st == MD_NOT_FOUND || st == MD_CORRUPT)
        return MD_OK;
    if (st != MD_OK)
        return st;
    const struct md_cold_ref ref = md_state_ref(&s->tape, at);
    const struct md_tape_block *in = &s->tape.blocks[ref.range.start / s->tape.block_tokens];
    return put_entry(w, &ref, in->cls, in->provenance, &state, err);
}

/* From the end, which matters most where not all of them find room again. */
static enum md_status write_states(struct md_session *s, struct md_sections_writer *w, struct md_err *err)
{
    struct md_drive *d = &s->drive;
    enum md_status st = md_state_save(d, err);
    if (!md_state_is_kept(d->hot))
        return st;
    for (int32_t at = md_state_saved_before(d, s->tape.count); st == MD_OK && at > 0;
         at = md_state_saved_before(d, at - 1))
        st = write_state(s, at, w, err);
    return st;
}

static enum md_status write_all(struct md_session *s, struct md_bytes front, struct md_sections_writer *w,
                                struct md_snapshot *out, struct md_err *err)
{
    const char *name = md_engine_info(s->pool->engine)->identity;
    const struct md_bytes identity = { name, strlen(name) };
    struct md_buf record MD_CLEANUP(md_buf_done);
    md_buf_init(&record, s->pool->config.alloc, RECORD_MAX);
    enum md_status st = md_record_write(s, &record, err);
    if (st == MD_OK)
        st = md_sections_put(w, IDENTITY, &identity, 1, err);
    if (st == MD_OK)
        st = md_sections_put(w, RECORD, &(struct md_bytes){ record.data, record.len }, 1, err);
    if (st == MD_OK && front.len > 0)
        st = md_sections_put(w, FRONT, &front, 1, err);
    for (size_t i = 0; st == MD_OK && i < md_tape_block_count(&s->tape); i++)
        st = write_block(s, i, w, out, err);
    return st == MD_OK ? write_states(s, w, err) : st;
}

enum md_status md_session_snapshot(struct md_session *s, const struct md_sections_place *place,
                                   struct md_bytes front, struct md_snapshot *ret, struct md_err *err)
{
    struct md_sections_writer *w = NULL;
    struct md_snapshot out = { .context_tokens = (int32_t)s->context.count, .tape_tokens = s->tape.count };
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK && front.len > FRONT_MAX)
        st = md_fail(err, MD_TOO_LARGE, "%zu bytes of the front's own, at most %d go into a snapshot",
                     front.len, FRONT_MAX);
    md_move_notice_lost(&s->drive);
    if (st == MD_OK)
        st = md_sections_create(s->pool->config.alloc, place, SNAPSHOT, INT64_MAX, &w, err);
    if (st != MD_OK)
        return st;
    st = write_all(s, front, w, &out, err);
    if (st != MD_OK) {
        md_sections_abort(w);
        if (st == MD_SESSION_FATAL)
            md_move_give_up(&s->drive, err);
        return st;
    }
    out.bytes = md_sections_bytes(w);
    st = md_sections_commit(w, true, err);
    if (st == MD_OK)
        *ret = out;
    return st;
}

/* ---- reading ---- */

struct restore {
    struct md_session *s;
    struct md_sections_reader *r;
    struct md_record record;
    struct md_tape tape; /* what the record says, for the names of its blocks */
    struct md_buf bytes; /* of the section at hand */
    struct md_snapshot out;
};

static void restore_done(struct restore *x)
{
    md_sections_close(x->r);
    md_record_done(&x->record);
    md_tape_done(&x->tape);
    md_buf_done(&x->bytes);
}

/* The next section; *ret_type 0: there is none.  Its payload, at most `most` bytes, into x->bytes. */
static enum md_status read_section(struct restore *x, uint32_t *ret_type, int64_t most, struct md_err *err)
{
    int64_t bytes;
    x->bytes.len = 0;
    enum md_status st = md_sections_next(x->r, ret_type, &bytes, err);
    if (st != MD_OK || *ret_type == 0)
        return st;
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

/* Identities are words with bars between them: the first that differs is what people want to hear of. */
static enum md_status check_identity(const struct restore *x, struct md_err *err)
{
    const char *ours = md_engine_info(x->s->pool->engine)->identity;
    const char *theirs = (const char *)x->bytes.data;
    const size_t len = x->bytes.len;
    if (len == strlen(ours) && memcmp(ours, theirs, len) == 0)
        return MD_OK;
    size_t at = 0, begin = 0;
    for (; at < len && ours[at] == theirs[at]; at++)
        begin = ours[at] == '|' ? at + 1 : begin;
    const int a = (int)strcspn(ours + begin, "|");
    size_t end = begin;
    while (end < len && theirs[end] != '|')
        end++;
    return md_fail(err, MD_INVALID,
                   "the snapshot is of another model or KV type: it has '%.*s' where this daemon has '%.*s'",
                   (int)(end - begin), theirs + begin, a, ours + begin);
}

static enum md_status read_record(struct restore *x, struct md_err *err)
{
    const struct md_pool *p = x->s->pool;
    enum md_status st = read_wanted(x, IDENTITY, IDENTITY_MAX, err);
    if (st == MD_OK)
        st = check_identity(x, err);
    if (st == MD_OK)
        st = read_wanted(x, RECORD, RECORD_MAX, err);
    if (st == MD_OK)
        st = md_record_read(x->bytes.data, x->bytes.len, p->config.alloc, &x->record, err);
    if (st == MD_OK)
        st = md_session_check_record(x->s, &x->record, err);
    if (st != MD_OK)
        return st;
    const struct md_record *r = &x->record;
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
        e.is_state != is_state || e.start % t->block_tokens != 0 ||
        (size_t)(e.start / t->block_tokens) >= md_tape_block_count(t))
        return md_fail(err, MD_CORRUPT, "snapshot: a block that its tape does not have");
    *ret_ref = is_state ? md_state_ref(t, e.start + e.token_count)
                        : md_tape_ref(t, (size_t)(e.start / t->block_tokens));
    if (md_range_len(ret_ref->range) != e.token_count || !md_key_equal(ret_ref->key, e.key) ||
        !md_key_equal(ret_ref->parent, e.parent))
        return md_fail(err, MD_CORRUPT, "snapshot: the block at %d is of another text", e.start);
    *ret_meta = e;
    return MD_OK;
}

static enum md_status take_block(struct restore *x, const struct md_cold_ref *ref,
                                 const struct md_cold_entry *e, struct md_err *err)
{
    const struct md_bytes kv = { x->bytes.data + MD_BLOCK_META_BYTES, x->bytes.len - MD_BLOCK_META_BYTES };
    bool ignored; /* what found no room is counted in the end */
    return md_cold_put(x->s->drive.hot->cold, ref, e->cls, e->provenance, kv, &ignored, err);
}

/* Go over what follows the record: once to see that all of it can be taken, once to take it. */
static enum md_status read_rest(struct restore *x, bool take, struct md_buf *front, struct md_err *err)
{
    enum md_status st = MD_OK;
    uint32_t type;
    md_sections_rewind(x->r);
    for (int64_t i = 0; st == MD_OK; i++) {
        struct md_cold_ref ref = { 0 };
        struct md_cold_entry meta = { 0 };
        st = read_section(x, &type, INT64_MAX / 2, err);
        if (st != MD_OK || type == 0)
            break;
        if (i < 2) /* identity and record */
            continue;
        if (type == FRONT && take && front != NULL)
            st = md_buf_append(front, x->bytes.data, x->bytes.len, err);
        else if (type == BLOCK || type == STATE)
            st = check_block(x, type == STATE, &ref, &meta, err);
        else if (type != FRONT)
            st = md_fail(err, MD_CORRUPT, "snapshot: its sections are in another order");
        if (st == MD_OK && (type == BLOCK || type == STATE) && take)
            st = take_block(x, &ref, &meta, err);
    }
    return st;
}

static enum md_status replace(struct restore *x, struct md_err *err)
{
    struct md_session *s = x->s;
    enum md_status st = md_drive_cut(&s->drive, 0, true, err);
    if (st == MD_OK)
        st = md_session_load(s, &x->record, err);
    if (st != MD_OK)
        return st;
    x->out.context_tokens = x->record.context.count;
    x->out.tape_tokens = x->record.tape_count;
    x->out.kv_tokens = md_state_is_kept(s->drive.hot) ? md_state_saved_before(&s->drive, s->tape.count)
                                                      : md_tape_tokens_in(&s->tape, MD_STATE_COLD);
    md_store_commit(s);
    return MD_OK;
}

enum md_status md_session_restore(struct md_session *s, const struct md_sections_place *place,
                                  struct md_buf *ret_front, struct md_snapshot *ret, struct md_err *err)
{
    static const uint32_t known[] = { IDENTITY, RECORD, FRONT, BLOCK, STATE };
    struct restore x MD_CLEANUP(restore_done) = { .s = s };
    const size_t front_before = ret_front != NULL ? ret_front->len : 0;
    md_buf_init(&x.bytes, s->pool->config.alloc, SIZE_MAX / 2);
    enum md_status st = md_session_check_alive(s, err);
    if (st == MD_OK)
        st = md_sections_open(s->pool->config.alloc, place, SNAPSHOT, known, 5, INT64_MAX, &x.r, err);
    if (st == MD_OK)
        x.out.bytes = md_sections_file_bytes(x.r);
    if (st == MD_OK)
        st = read_record(&x, err);
    if (st == MD_OK)
        st = read_rest(&x, false, NULL, err);
    if (st == MD_OK)
        st = read_rest(&x, true, ret_front, err);
    if (st == MD_OK)
        st = replace(&x, err);
    if (st == MD_SESSION_FATAL && s->drive.fatal.status == MD_OK)
        md_move_give_up(&s->drive, err);
    if (st == MD_OK)
        *ret = x.out;
    else if (ret_front != NULL)
        ret_front->len = front_before;
    return st;
}
