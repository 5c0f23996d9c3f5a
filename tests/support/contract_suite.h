/* contract_suite.h - what a session is, whatever engine is under it: one table of scenarios in the calls of
 * session/session.h, run on each engine.  (What an engine is: conformance.h.)
 *
 * A test program opens an engine and a text once, describes them as a subject, and runs the table in one process.
 * All figures are the same for all engines: blocks of 16 tokens, prompts of 100 to 400, hot sets of 96 to 512.  What differs
 * is said by what an engine can and has, never by its name:
 *
 * - With a tail state (MD_CAP_CHECKPOINT) a cut goes back to the last checkpoint before it, at most CT_CHECKPOINT tokens,
 *   where the engine cannot be cut at once; what stands between is computed again, and counted as recomputed.
 * - Such an engine may have one sequence: then conversations that take turns are restored each time, and cost as little.
 * - Where the tail state is all there is (no MD_CAP_COLD_STORE) a cut is a restore of the whole.
 * - Without a store there are no checkpoints, so that lost ranges are computed with all behind them.
 * - A hot set has room for a window and a micro-batch: scenarios of small hot sets are for windows that fit.
 *
 * Answers are proven when a scenario closes its conversations.  Every request that attended all of its text, over
 * KV that is full (policy/provenance.h), is put to the bare engine (of a slow model: to a second one that no session ever
 * had), which computes it densely and in one go; the logits of each step must be those that the session had.  Bounded and approximate answers have no such
 * proof; of them the scenarios hold the counters, the limits and the bytes. */
#ifndef MD_TESTS_CONTRACT_SUITE_H
#define MD_TESTS_CONTRACT_SUITE_H

#include "engine/engine.h"
#include "text/text.h"

enum {
    MD_CONTRACT_CELLS = 512, /* what the scenarios need of an engine */
    MD_CONTRACT_SEQUENCES = 4,
    MD_CONTRACT_TOKENS = 2000,
    MD_CONTRACT_ENDS = 2,
};

struct md_contract_subject {
    const char *name;
    struct md_engine *engine; /* empty; taken over by the run */
    struct md_engine
        *dense; /* likewise: another one of the model, that proves the answers; it keeps what texts have
                                      * in common from scenario to scenario.  NULL: engine, which does not */
    struct md_text *text;            /* samples with logit_bias; borrowed */
    const md_token *tokens;          /* what is said: MD_CONTRACT_TOKENS of them, none an end token */
    md_token ends[MD_CONTRACT_ENDS]; /* tokens that end a text, which are banned */
    int end_count;
    bool slow; /* a real model: of many cases that differ little, some */
    float
        tolerance; /* largest difference of logits; below 0: a model that rounds, where the same token must be
                      * best at each step at which the best two are more than sure_gap apart */
    float sure_gap;
};

/* Beside the bits of enum md_cap. */
enum {
    MD_CONTRACT_SMALL_HOT = 1 << 30, /* windows fit a hot set of 96 */
    MD_CONTRACT_KEEPS = 1 << 28,     /* what leaves can be kept: MD_CAP_COLD_STORE or MD_CAP_CHECKPOINT */
    MD_CONTRACT_TAKES_OVER =
        1 << 29, /* what one has another gets: MD_CAP_SHARE, or a sequence that all lend each other */
};

/* The scenarios, and the capabilities without which each is left out. */
#define MD_CONTRACT_LIST(X)                                                                              \
    X(prefix_suffix_decode_is_a_run, MD_CAP_REMOVE_TAIL)                                                 \
    X(what_the_calls_answer, MD_CAP_REMOVE_TAIL)                                                         \
    X(a_prefix_again_keeps_the_tail_for_the_suffix_that_matches, MD_CAP_REMOVE_TAIL)                     \
    X(b048_prefix_empty_suffix_decode_again, MD_CAP_REMOVE_TAIL)                                         \
    X(b054_the_next_turn_by_prefix_and_suffix, MD_CAP_REMOVE_TAIL)                                       \
    X(b041_each_call_names_the_window_it_does_not_fit, MD_CAP_REMOVE_TAIL)                               \
    X(cold_then_warm, MD_CAP_REMOVE_TAIL)                                                                \
    X(a_changed_prefix_and_back, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                                 \
    X(a_warm_suffix_answers_as_a_cold_one, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                       \
    X(histories_sent_again_are_restored, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                         \
    X(b040_a_turn_larger_than_the_hot_set_is_absorbed,                                                   \
      MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CONTRACT_SMALL_HOT)                                  \
    X(b072_without_a_cold_store_it_drops_and_says_so, MD_CAP_REMOVE_MIDDLE | MD_CONTRACT_SMALL_HOT)      \
    X(an_answer_of_four_hot_sets_stays_within_one,                                                       \
      MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CONTRACT_SMALL_HOT)                                  \
    X(one_beginning_is_held_once_and_costs_once, MD_CAP_REMOVE_MIDDLE | MD_CAP_SHARE)                    \
    X(the_same_prompt_in_two_is_one_token_more, MD_CAP_REMOVE_TAIL | MD_CAP_SHARE)                       \
    X(conversations_that_fit_cost_only_new_tokens, MD_CAP_REMOVE_TAIL)                                   \
    X(conversations_that_do_not_fit_are_restored, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                \
    X(more_conversations_than_sequences, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                         \
    X(branches_cost_only_what_is_new, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE | MD_CONTRACT_TAKES_OVER) \
    X(a_fatal_failure_does_not_harm_the_other, MD_CAP_REMOVE_TAIL)                                       \
    X(b069_ranges_go_out_and_come_back_to_the_bit, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE)             \
    X(ranges_lost_without_a_store_are_computed_in_place, MD_CAP_REMOVE_MIDDLE | MD_CAP_RECOMPUTE_RANGE)  \
    X(the_tail_goes_out_and_comes_back, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE)                        \
    X(the_tail_held_out_comes_back_while_it_is_the_last, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE)       \
    X(text_sent_again_is_computed_in_full, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE)                     \
    X(text_sent_again_is_moved_when_that_is_asked_for, MD_CAP_POSITION_SHIFT | MD_CAP_REMOVE_MIDDLE)     \
    X(text_admitted_at_the_tail_is_moved, MD_CAP_POSITION_SHIFT | MD_CAP_REMOVE_MIDDLE)                  \
    X(b059_what_a_restore_claims_is_used, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                        \
    X(b059_what_is_claimed_with_little_room_is_used, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)             \
    X(a_snapshot_goes_on_with_the_same_token, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                    \
    X(a_snapshot_has_what_is_cold, MD_CAP_REMOVE_MIDDLE | MD_CAP_COLD_STORE)                             \
    X(a_snapshot_of_nothing_and_of_a_cancelled_call, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)             \
    X(branches_from_a_snapshot, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)                                  \
    X(a_snapshot_that_is_not_whole_changes_nothing, MD_CAP_REMOVE_TAIL | MD_CONTRACT_KEEPS)

#define X(name, caps) void md_contract_##name(int unused);
MD_CONTRACT_LIST(X)
#undef X

/* Run all scenarios the engine's capabilities allow, and close the engine; returns 0, or 1 when one failed. */
int md_contract_run(const struct md_contract_subject *subject);

#endif
