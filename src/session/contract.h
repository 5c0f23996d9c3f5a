/* contract.h - the calls of the session protocol in text: EnsurePrefix, PrefillSuffix, Decode, Snapshot, Restore,
 * for fronts that speak it.  What a call means in tokens is session/session.h's.
 *
 * A contract is what a front knows of one open conversation: its text, its manifest, its prefix in tokens.  Each call
 * has two halves, so that a front never waits: `prepare` checks, renders and tokenizes, and gives a job for
 * md_worker_submit (complete but for notify, notify_user and want_progress, which are the front's to set); `finish`
 * takes the job's last event and says what the call did.  One call of a contract at a time.
 *
 * Text becomes tokens by the model's template where the manifest's segments are messages (kinds system, user,
 * assistant, tool: their contents are slices of the text; bos and assistant_prompt are written by the template), else
 * as it is.  A suffix of messages is rendered behind those of the prefix, with the prompt for an answer; what its
 * tokens share with the prefix's stays, and where that is less than the prefix, the context is cut there.  What comes
 * behind joins the context behind earlier suffixes and answers.
 *
 * State: as before when prepare fails, and when finish tells MD_INVALID, MD_TOO_LARGE or that the job never began.
 * A PrefillSuffix that failed leaves the context as it was.  An EnsurePrefix that failed on its way leaves nobody knows
 * how much of the prefix: only EnsurePrefix or Restore may follow, others get MD_INVALID.
 *
 * Threads: one at a time.  Source: the session protocol. */
#ifndef MD_SESSION_CONTRACT_H
#define MD_SESSION_CONTRACT_H

#include "session/manifest.h"
#include "session/prompt.h"
#include "session/worker.h"

struct md_contract;
struct md_contract_call; /* between prepare and finish; owns all that its job borrows */

/* How an MD_TOO_LARGE came about.  stage NULL: the failure was another. */
struct md_contract_overflow {
    const char *stage; /* "prefix", "suffix", "decode", "restore" */
    int32_t resident,
        additional; /* tokens of the context, and those that should have joined it: at least so many
                                     where the text was too long to be tokenized */
    int32_t window;
};

/* session: an open conversation that nobody else uses; text: borrowed.  MD_NO_MEMORY. */
MD_MUST_USE enum md_status md_contract_open(const struct md_text *text, int32_t window_tokens,
                                            int64_t session, const struct md_alloc *alloc,
                                            struct md_contract **ret_contract, struct md_err *err);
/* The conversation stays open.  Accepts NULL. */
void md_contract_close(struct md_contract *c);
/* The one that is resident; borrowed until the next finish.  NULL: none, or the zero manifest. */
const struct md_manifest *md_contract_manifest(const struct md_contract *c);

struct md_job_request *md_contract_call_job(struct md_contract_call *call);
/* Of a Decode: how its text is taken apart (text/parser.h); NULL: it is not.  Borrowed. */
struct md_chat_form *md_contract_call_form(const struct md_contract_call *call);
void md_contract_call_close(struct md_contract_call *call); /* whatever became of it; accepts NULL */

/* ---- EnsurePrefix ---- */

struct md_contract_prefix {
    struct md_bytes text;
    struct md_manifest *manifest; /* taken over on MD_OK, and zeroed then */
    struct md_bytes tools;        /* JSON, an array; needs messages */
    size_t image_count;
};
/* MD_UNSUPPORTED        images
 * MD_MANIFEST_MISMATCH  the manifest does not describe the text
 * MD_TOO_LARGE          the prefix does not fit the window: ret_over
 * MD_INVALID            a segment of another kind between messages, tools without messages, what a template refuses
 * MD_CLOSED             the conversation is
 * When it was made for another runtime than what is resident, all of that is dropped. */
MD_MUST_USE enum md_status md_contract_prepare_prefix(struct md_contract *c,
                                                      const struct md_contract_prefix *in,
                                                      struct md_contract_call **ret_call,
                                                      struct md_contract_overflow *ret_over,
                                                      struct md_err *err);

/* Token counts as in struct md_prefill_status. */
struct md_contract_prefix_status {
    int32_t reused, prefilled, dropped, prefix, resident, available;
    char stable_byte_hash[MD_SHA256_HEX + 1]; /* as the manifest has it */
    char stable_token_hash[MD_SHA256_HEX + 1];
    char manifest_digest[MD_SHA256_HEX + 1]; /* of the manifest as it was given */
};
/* end: the last event of the job.  Fails as that did; MD_CLOSED where the conversation is not there any more. */
MD_MUST_USE enum md_status md_contract_finish_prefix(struct md_contract *c, struct md_contract_call *call,
                                                     const struct md_event *end,
                                                     struct md_contract_prefix_status *ret_status,
                                                     struct md_contract_overflow *ret_over,
                                                     struct md_err *err);

/* ---- PrefillSuffix ---- */

struct md_contract_suffix {
    struct md_bytes text;
    struct md_manifest *manifest; /* of prefix and suffix; taken over on MD_OK, and zeroed then */
    enum md_thinking thinking;    /* default: on */
    struct md_bytes reasoning_effort;
    size_t image_count;
};
/* As above, and
 * MD_MANIFEST_MISMATCH  another runtime than the prefix's, or another stable text */
MD_MUST_USE enum md_status md_contract_prepare_suffix(struct md_contract *c,
                                                      const struct md_contract_suffix *in,
                                                      struct md_contract_call **ret_call,
                                                      struct md_contract_overflow *ret_over,
                                                      struct md_err *err);

struct md_contract_suffix_status {
    int32_t suffix, prefix, resident, available;
    char manifest_digest[MD_SHA256_HEX + 1]; /* of the manifest with the tokens of its segments */
};
MD_MUST_USE enum md_status md_contract_finish_suffix(struct md_contract *c, struct md_contract_call *call,
                                                     const struct md_event *end,
                                                     struct md_contract_suffix_status *ret_status,
                                                     struct md_contract_overflow *ret_over,
                                                     struct md_err *err);

/* ---- Decode ---- */

enum { MD_CONTRACT_MAX_TOKENS = 256 };

struct md_contract_decode {
    int32_t max_tokens; /* 0: MD_CONTRACT_MAX_TOKENS */
    bool has_temperature, has_top_p, has_seed;
    float temperature; /* 0.8; 0 and below: greedy */
    float top_p;       /* 0.9 */
    int32_t top_k;     /* 0: 40 */
    int64_t seed;      /* below 0: as if not given, another one each time */
    const struct md_bytes *parser_protocols;
    size_t parser_protocol_count;
    struct md_bytes reasoning_format;
    struct md_bytes structured_protocol, structured_payload; /* "": none */
};
/* MD_UNSUPPORTED  a protocol that is not known, or a reasoning parser without a reasoning format
 * MD_INVALID      a number out of range, a schema that cannot be used
 * MD_TOO_LARGE    the context fills the window: ret_over */
MD_MUST_USE enum md_status md_contract_prepare_decode(struct md_contract *c,
                                                      const struct md_contract_decode *in,
                                                      struct md_contract_call **ret_call,
                                                      struct md_contract_overflow *ret_over,
                                                      struct md_err *err);
MD_MUST_USE enum md_status md_contract_finish_decode(struct md_contract *c, struct md_contract_call *call,
                                                     const struct md_event *end,
                                                     struct md_contract_overflow *ret_over,
                                                     struct md_err *err);

/* ---- Snapshot and Restore ---- */

/* What a snapshot is to its client: the KV lies in a file of the front's (session/snapshot.h), all else is here. */
struct md_contract_snapshot {
    int32_t resident, prefix, window;   /* tokens */
    struct md_tokens tokens;            /* of the context: `resident` of them */
    struct md_bytes text, tools;        /* of the prefix; borrowed from the contract until its next finish */
    const struct md_manifest *manifest; /* likewise; NULL: none, or the zero manifest */
};
void md_contract_snapshot_done(struct md_contract_snapshot *s); /* accepts a zeroed struct */

/* place: borrowed until the job is submitted.
 * MD_INVALID  the name of the file; or the last EnsurePrefix failed on its way
 * MD_CLOSED, MD_SESSION_FATAL, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_contract_prepare_snapshot(struct md_contract *c,
                                                        const struct md_sections_place *place,
                                                        struct md_contract_call **ret_call,
                                                        struct md_err *err);
/* end        its tokens are taken over on MD_OK, and zeroed then
 * MD_IO: the disk would not have it, and what had that name stays; others as the job's.  The contract is as before. */
MD_MUST_USE enum md_status md_contract_finish_snapshot(struct md_contract *c, struct md_contract_call *call,
                                                       struct md_event *end, struct md_contract_snapshot *ret,
                                                       struct md_err *err);

/* What a client sends back.  It may have changed any of it. */
struct md_contract_restore {
    struct md_sections_place place;   /* borrowed until the job is submitted; name "": there is no file */
    int32_t resident, prefix, window; /* window 0: not said */
    const md_token *tokens;           /* of the context, or none at all */
    size_t token_count;
    struct md_bytes text, tools;
    struct md_manifest *manifest; /* taken over on MD_OK, and zeroed then */
    bool tokens_only; /* none of the KV in the file: the next call computes it (md_session_restore_tokens) */
};
/* All of it is checked here, against itself and what is resident, but the file, which the job looks at.
 *
 * MD_MANIFEST_MISMATCH  another window than this one's; the manifest does not describe the text, or is of another
 *                       runtime than what is resident; the text does not make the tokens
 * MD_TOO_LARGE          it does not fit the window: ret_over
 * MD_INVALID            numbers that do not fit each other, tokens without a file, the name of the file, and as EnsurePrefix
 * MD_CLOSED, MD_SESSION_FATAL, MD_NO_MEMORY */
MD_MUST_USE enum md_status md_contract_prepare_restore(struct md_contract *c,
                                                       const struct md_contract_restore *in,
                                                       struct md_contract_call **ret_call,
                                                       struct md_contract_overflow *ret_over,
                                                       struct md_err *err);
/* MD_MANIFEST_MISMATCH  the file is of another text, model or block size, or no snapshot at all; without tokens_only
 *                       also: its KV is of another engine, KV type or RoPE
 * MD_NOT_FOUND          there is no such file;  MD_CORRUPT: it is damaged;  MD_UNSUPPORTED: of another version
 * MD_CANCELLED          the job was, in time: see md_session_restore
 * MD_TOO_LARGE, MD_IO, MD_NO_MEMORY, MD_CLOSED, MD_SESSION_FATAL
 * State: the contract, and its conversation, are as before on all of them (without a file: as an EnsurePrefix that
 * failed).  How the next answer is read is told by the next suffix. */
MD_MUST_USE enum md_status md_contract_finish_restore(struct md_contract *c, struct md_contract_call *call,
                                                      const struct md_event *end, struct md_snapshot *ret,
                                                      struct md_contract_overflow *ret_over,
                                                      struct md_err *err);

#endif
