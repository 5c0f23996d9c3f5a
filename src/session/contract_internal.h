/* contract_internal.h - what the files of the contract share. */
#ifndef MD_SESSION_CONTRACT_INTERNAL_H
#define MD_SESSION_CONTRACT_INTERNAL_H

#include "session/contract.h"

/* The prefix of a contract, as its EnsurePrefix gave it. */
struct md_contract_text {
    struct md_arena arena; /* of the strings and arrays */
    struct md_manifest manifest;
    struct md_bytes text, tools;
    struct md_chat_message *messages; /* none: it was taken as it is */
    struct md_segment_label *labels;  /* of the messages */
    size_t message_count;
    struct md_tokens tokens;
    struct md_range *ranges; /* tokens of the manifest's stable segments */
    size_t range_count;
};

struct md_contract {
    const struct md_alloc *alloc;
    const struct md_text *text;
    int64_t session;
    int32_t window, resident;
    struct md_contract_text *prefix; /* NULL: there was no EnsurePrefix yet */
    struct md_chat_form *form;       /* of the last suffix that a template wrote */
    bool closed;
    struct md_err fatal; /* the session is given up: its first cause, for every later call */
    bool lost;           /* an EnsurePrefix failed on its way */
    bool stale;          /* that one was for another runtime: what is resident may be either's */
};

struct md_contract_call {
    const struct md_alloc *alloc;
    struct md_job_request job;
    const char *stage;
    struct md_contract_text *prefix; /* EnsurePrefix: becomes the contract's */
    struct md_manifest manifest;     /* PrefillSuffix: likewise */
    struct md_tokens tokens;         /* that the job borrows a part of */
    struct md_segment *segments;
    struct md_chat_form *form;
    char digest[MD_SHA256_HEX + 1], token_hash[MD_SHA256_HEX + 1];
    struct md_snapshot_expected expected; /* Restore */
    bool parses;                          /* Decode: the form takes the text apart, too */
};

void md_contract_text_close(struct md_contract_text *t); /* accepts NULL */

/* Messages, tokens, segments and digest of a prefix into the call.  in has passed the gates. */
MD_MUST_USE enum md_status md_contract_make_prefix(const struct md_contract *c,
                                                   const struct md_contract_prefix *in,
                                                   struct md_contract_call *call,
                                                   struct md_contract_overflow *over, struct md_err *err);
/* Likewise of a suffix. */
MD_MUST_USE enum md_status md_contract_make_suffix(const struct md_contract *c,
                                                   const struct md_contract_suffix *in,
                                                   struct md_contract_call *call,
                                                   struct md_contract_overflow *over, struct md_err *err);

/* What prepare begins with: the gates of all calls, and an empty call of that kind. */
MD_MUST_USE enum md_status md_contract_new_call(const struct md_contract *c, enum md_job_kind kind,
                                                const char *stage, struct md_contract_call **ret_call,
                                                struct md_contract_overflow *ret_over, struct md_err *err);
/* What finish begins with: the failure of the job, if it failed.  additional: tokens that it should have added. */
MD_MUST_USE enum md_status md_contract_settle(struct md_contract *c, const struct md_contract_call *call,
                                              const struct md_event *end, int32_t additional,
                                              struct md_contract_overflow *ret_over, struct md_err *err);
/* md_manifest_check_text, but that a manifest that says nothing fits everything. */
MD_MUST_USE enum md_status md_contract_check_text(const struct md_manifest *m, const struct md_bytes *stable,
                                                  const struct md_bytes *suffix, struct md_err *err);
/* The call's prefix becomes the contract's. */
void md_contract_take_prefix(struct md_contract *c, struct md_contract_call *call);

/* Fill over, and the error. */
enum md_status md_contract_too_large(const struct md_contract_overflow *what,
                                     struct md_contract_overflow *ret_over, struct md_err *err);

#endif
