/* snapshot.h - a whole conversation in one file: its record and the KV of all its blocks, hot and cold.
 *
 * The file is one of sections (host/sections.h), of kind SNAP: IDEN, the identity of the KV; ORIG, the model and the
 * engine it was written by (origin.h); CONV, the record; FRNT, the front's notes (struct md_request; left out where there are none); BLCK for each block whose KV is there; STAT for each
 * tail state that was saved (state.h), of models that have one.  A reader refuses sections that it does not know; one that
 * later versions add may be missing, and what it holds is then made again.
 *
 * Two things are told apart: what the tokens mean, which is the model's file, and what the bytes of KV mean, which is that
 * and the engine, its version, the KV types and RoPE.  A file of the same model with other KV is refused, with a line that
 * names both engines; a restore of its tokens alone brings all of it but the KV, which the next call computes, as it does
 * for a prompt that is new.  One of another model is refused in both.  A file from before there was an ORIG is of this model
 * when its IDEN is this engine's, and else of nobody knows which: refused in both.
 *
 * A restore verifies the whole file, and that it is of this model, KV and block size, before it changes
 * anything; then its blocks join the cold store, and as long as none had to make way for them they are taken back when it
 * ends early.  What it says is restored lies in the cold store afterwards, and the next call uses it.
 *
 * Threads: one at a time (the worker's); the disk is written and read on that thread. */
#ifndef MD_SESSION_SNAPSHOT_H
#define MD_SESSION_SNAPSHOT_H

#include "host/sections.h"
#include "session/session.h"

struct md_snapshot {
    int64_t bytes; /* of the file */
    int32_t context_tokens, tape_tokens;
    /* Of the tape, whose KV is in the file.  Of a restore: and in the cold store now, so that a call that goes on from there
     * computes none of them.  Where the store had no room for all it may find more, behind what it computes. */
    int32_t kv_tokens;
};

/* What somebody who keeps a snapshot's name knows of it. */
struct md_snapshot_expected {
    int32_t context_tokens, prefix_tokens;
    const md_token *tokens; /* borrowed: the first `token_count` of its context */
    int32_t token_count;
};

/* Write one, in place of what has that name.
 *
 * sink        its `cancelled` is polled between blocks; NULL: never
 * MD_CANCELLED  what was written of it is gone; the name and the conversation are as before
 * MD_INVALID  the name; MD_IO: the disk would not have it, and what was there stays
 * MD_NO_MEMORY, MD_SESSION_FATAL (it was given up before), others from the engine */
MD_MUST_USE enum md_status md_session_snapshot(struct md_session *s, const struct md_sections_place *place,
                                               const struct md_sink *sink, struct md_snapshot *ret,
                                               struct md_err *err);

/* Make s what the file says, if that is what is expected: what it was goes cold, and is found again by its text.  The
 * front's notes are s's from then on (md_session_notes).
 *
 * expect          the context it must have, and its tokens as far as they are given (NULL: nobody knows them); NULL: any
 * MD_MANIFEST_MISMATCH  it has another
 * MD_NOT_FOUND    there is no such file
 * MD_CORRUPT      it is damaged: the text says what, and where
 * MD_INVALID      it is of another model, engine, KV type, RoPE or block size: the text says what differs; or the name
 * MD_UNSUPPORTED  of another version
 * MD_TOO_LARGE    it does not fit the window
 * MD_NO_MEMORY, MD_IO, MD_SESSION_FATAL (it was given up before)
 * MD_CANCELLED    its client has left
 * State: on all of them nothing was changed: neither this conversation and others, nor what the cold store has.  But where
 * it had no room for all of the file, what is in it by then takes the place of others, and no cancel ends the restore any
 * more; when the file cannot be read again (MD_IO, MD_CORRUPT), what went is gone.  When the engine fails at last (its
 * status), a part of the old tape may have gone cold.
 *
 * sink            its `cancelled` is polled before each section that is read, until something has to go for it: NULL: never */
MD_MUST_USE enum md_status md_session_restore(struct md_session *s, const struct md_sections_place *place,
                                              const struct md_snapshot_expected *expect,
                                              const struct md_sink *sink, struct md_snapshot *ret,
                                              struct md_err *err);

/* The same without any KV: tokens, segments, marks (classes, what is held out) and notes come back, and all of the tape is
 * lost (md_session_status.tokens_only), whatever the cold store has of its text; ret->kv_tokens is 0.  The next call that
 * needs it begins with an empty tape: it takes what is known of the prompt here, computes the rest, and says so in its
 * counters; how its KV came to be is what that was.  What was held out by hand is held out again when it is there.  The KV in
 * the file is verified, and not looked at: that of another engine will do, when the model's file is the same.
 *
 * Errors and state as above, but for KV of another engine, KV type or RoPE. */
MD_MUST_USE enum md_status md_session_restore_tokens(struct md_session *s,
                                                     const struct md_sections_place *place,
                                                     const struct md_snapshot_expected *expect,
                                                     const struct md_sink *sink, struct md_snapshot *ret,
                                                     struct md_err *err);

#endif
