/* session_internal.h - what the files that make up a conversation share. */
#ifndef MD_SESSION_SESSION_INTERNAL_H
#define MD_SESSION_SESSION_INTERNAL_H

#include "session/drive.h"
#include "session/pool.h"
#include "session/observe.h"
#include "session/retrieve.h"
#include "session/session.h"

struct md_pool {
    struct md_pool_config config;
    struct md_engine *engine; /* borrowed */
    struct md_text *text;     /* borrowed */
    struct md_cold *cold;
    struct md_hot hot;
    struct md_attend *attend;       /* NULL: attention is not asked, or there is none */
    struct md_retriever *retriever; /* NULL: there is none, and no_retrieval says why */
    const char *no_retrieval;
    const char *not_by_attention; /* why eviction by attention, asked for, goes by recency; NULL */
    int32_t question_rows;        /* tokens of a question that are observed, at most */
    struct md_heads *heads;       /* NULL: attention is not asked */
    struct md_session *first, **last;
    int32_t count;
    int64_t next_id;
    int64_t closed_requests, closed_prefilled_tokens, closed_prefill_ns; /* of those that are gone */
};

struct md_session {
    struct md_pool *pool;
    struct md_session *next;
    int64_t id, parent, last_turn_ns;
    bool kept;  /* it makes way for no other */
    bool bound; /* it goes on where its id is sent, and nowhere else */
    int32_t
        nearest_common; /* before its first turn: tokens that it shares with the conversation it is most like */
    struct md_tokens context;
    int32_t prefix_count;
    struct md_segment *segments; /* of the context; owned */
    size_t segment_count, segment_cap;
    int32_t
        edited_from; /* a segment that says "on_edit" was changed or left out: KV from here on goes; -1: none */
    /* a prefix of the context, but for its last token; after EnsurePrefix it may be longer, after AdmitAtTail it is the
     * whole, and after a failure it may be of another text: the next call that prefills cuts it */
    struct md_tape tape;
    bool
        bare; /* of the tape the tokens alone were restored: what prefills next begins at its start, as with a new prompt */
    struct md_drive drive;
    struct md_buf notes; /* the front's: see struct md_request */
    bool answered;       /* the last call was an answer: what is marked as retrieved was for that */
    bool chose;          /* and attention chose it: retrieve.h */
    int32_t saved_count, durable_tokens; /* of the tape, at the last commit: tokens, and those the disk has */
    struct md_key saved_key;             /* of the piece of a block it ended in; zeroed: it ended in none */
    int64_t requests, prefill_calls, prefilled_tokens, prefill_ns, decode_calls, decoded_tokens;
};

/* ---- session.c ---- */

/* MD_SESSION_FATAL, with the first cause: it was given up. */
MD_MUST_USE enum md_status md_session_check_alive(const struct md_session *s, struct md_err *err);
/* Could this be run, by any conversation?  Errors as md_session_run. */
MD_MUST_USE enum md_status md_session_check_request(const struct md_pool *pool, const struct md_request *q,
                                                    struct md_err *err);

/* Room for a context; then it is replaced as a whole, in that room. */
MD_MUST_USE enum md_status md_session_reserve(struct md_session *s, int32_t count, size_t segment_count,
                                              struct md_err *err);
void md_session_put_context(struct md_session *s, const struct md_context *p);

/* ---- notes.c ---- */

/* Room for the front's notes; then they are replaced, in that room.  MD_INVALID: more than MD_NOTES_BYTES_MAX. */
MD_MUST_USE enum md_status md_session_reserve_notes(struct md_session *s, size_t bytes, struct md_err *err);
void md_session_put_notes(struct md_session *s, struct md_bytes notes);

/* ---- pool.c ---- */

/* Close one that was opened just now and in vain: nothing on the disk is touched. */
void md_pool_discard(struct md_session *s);

/* ---- turn.c ---- */

/* Marks of retrieved blocks that were for the last answer go. */
void md_turn_forget_retrieved(struct md_session *s);

/* One call on its way: what its steps share. */
struct md_turn {
    struct md_session *s;
    const struct md_sink *sink;
    struct md_result result;
    enum md_cache_class *classes; /* of the blocks of the context */
    bool *held_out;               /* of blocks that were, on a tape that begins again; NULL: it does not */
    int32_t *segment_ends;        /* of the context */
    int32_t checkpoint;           /* position of the last one before the tape's end */
    int32_t kept;                 /* context tokens, but for the last, that were on the tape when it came */
    bool observing;               /* the chunk that is evaluated is to be scored (observe.h) */
    int32_t observed_from;        /* where it begins */
    int32_t look_from;            /* where the question begins that is only observed; -1: none is */
    int32_t ask_from;             /* where the question begins that retrieves; -1: nothing is retrieved */
    int32_t prompt_count;         /* tokens of the context that the counters are about */
    bool decodes;                 /* an answer is to follow: the last chunk may be left to it */
    bool decoded;                 /* an answer was given */
    int64_t dropped_before;       /* md_hot.dropped_tokens at its beginning */
    int64_t start_ns;
};

/* Note the context's segments, what the call will move, and that it is the live one.
 * prompt_count: so many tokens of the context are to be brought. */
MD_MUST_USE enum md_status md_turn_begin(struct md_turn *t, struct md_session *s, const struct md_sink *sink,
                                         int32_t prompt_count, struct md_err *err);
/* Bring the tape to the first `target` tokens of the context, with the hot set that what follows will attend.  With
 * t->decodes, which wants `target` one short of the context, a last chunk may be left to md_turn_decode. */
MD_MUST_USE enum md_status md_turn_prefill(struct md_turn *t, int32_t target, struct md_err *err);
/* Evaluate the next `count` tokens of the context, for which there is room. */
MD_MUST_USE enum md_status md_turn_prefill_chunk(struct md_turn *t, int32_t count, struct md_err *err);
/* MD_CANCELLED: the client of the sink has gone.  NULL: it never does. */
MD_MUST_USE enum md_status md_turn_check_cancel(const struct md_sink *sink, struct md_err *err);
/* Tell the sink how far the prompt is. */
void md_turn_report_progress(const struct md_turn *t);
/* Free tokens asked of the planner before decoding: a block's worth, so that it is not asked per token. */
int32_t md_turn_decode_room(const struct md_session *s);

/* End what ends with the turn, fill the counters and let go; notes a fatal error in the session.  Returns status. */
enum md_status md_turn_end(struct md_turn *t, enum md_status status, struct md_err *err);

/* ---- turn_decode.c ---- */

/* Evaluate the rest of the context, then sample. */
MD_MUST_USE enum md_status md_turn_decode(struct md_turn *t, const struct md_decode *q, struct md_err *err);

#endif
