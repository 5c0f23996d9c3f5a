/* restore.h - restore a block or compute it again: which is faster on this machine?  Pure: times come in as values.
 *
 * What a tier asks for a block is a part per block and a part per byte, both learned from what restores took; a
 * token's worth of prefill likewise.  Each measure weighs an eighth, older ones fade; the one that counts is the
 * middle one of the last three, so that a single wild one (a page fault, a machine that slept) changes nothing.
 *
 * Threads: any; a struct belongs to one thread at a time.  Source: a line through (bytes, time), least squares with
 * fading weights; that, the eighth and the three are this project's. */
#ifndef MD_POLICY_RESTORE_H
#define MD_POLICY_RESTORE_H

#include <stdbool.h>
#include <stdint.h>

enum md_restore_tier { MD_TIER_HOST, MD_TIER_DISK, MD_TIER_COUNT };

/* Time over size; the caller need not look inside. */
struct md_restore_line {
    int count;                      /* measures so far, 3 at most */
    double last[3][2];              /* size, ns; the newest first */
    double size, ns, size_var, cov; /* fading means; variance of size, covariance of both */
};

/* Begins zeroed: nothing known. */
struct md_restore {
    struct md_restore_line tiers[MD_TIER_COUNT], prefill; /* per block over its bytes; per token */
};

/* Note what a restore or a prefill took.  No measure, and ignored: nothing moved or computed, or a time below 0. */
void md_restore_note_restore(struct md_restore *r, enum md_restore_tier tier, int64_t bytes, int64_t blocks,
                             int64_t ns);
void md_restore_note_prefill(struct md_restore *r, int64_t tokens, int64_t ns);

/* Is it no slower to restore one block of so many bytes than to compute its tokens?  True while a speed is not
 * known, and then true or false only rises with tokens.  Negative numbers count as 0. */
bool md_restore_wins(const struct md_restore *r, enum md_restore_tier tier, int64_t bytes, int64_t tokens);

/* The least tokens for which one block of them wins: wins(tier, n * bytes_per_token, n) is false below and true from
 * there on.  0: always, or a speed is not known; -1: never. */
int64_t md_restore_break_even_tokens(const struct md_restore *r, enum md_restore_tier tier,
                                     int64_t bytes_per_token);

#endif
