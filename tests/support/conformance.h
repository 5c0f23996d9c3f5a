/* conformance.h - what every engine must do: one table of scenarios, run against each of them.
 *
 * A test program opens an engine, describes it as a subject, and runs the suite in one process (no fork:
 * engines have threads, and a model is loaded once).  Each scenario begins with an empty engine.
 *
 * Where the weights are known (subject.model), the set of tokens attended is proven against the reference
 * pass; on other models one way of reaching a state is compared with another. */
#ifndef MD_TESTS_CONFORMANCE_H
#define MD_TESTS_CONFORMANCE_H

#include "engine/engine.h"
#include "engine/fake_model.h"

#include <check.h>

enum {
    MD_SUBJECT_MIN_CELLS = 1280, /* what the scenarios need of a subject with known weights */
    MD_SUBJECT_MIN_TOKENS = 2304,
};

/* Long ones have programs of their own, the random walks and all else; case B120 wants longer calls than tails do. */
enum md_conformance_part { MD_PART_ALL, MD_PART_STEPS, MD_PART_WALKS, MD_PART_CHUNKS, MD_PART_BUT_CHUNKS };

struct md_subject {
    const char *name;
    enum md_conformance_part part; /* of the scenarios */
    struct md_engine *engine;
    const struct md_fake_model *model; /* the weights it runs; NULL: a real model, slow, no reference pass */
    const md_token *tokens;            /* what is fed */
    int32_t token_count;               /* at least MD_SUBJECT_MIN_TOKENS */
    float
        same_tolerance; /* largest difference of logits where nothing moved: the same cells, the same order */
    float reference_tolerance; /* against the reference pass, if the weights are known */
    float turned_tolerance;    /* where keys were turned to other positions; 0: as moved_tolerance */
    bool small;                /* without known weights, and yet fast */
    float
        least_move; /* what other KV must at least move the logits by, so that a comparison says something; 0: 0.4;
                       * below 0: no layer attends to what is evicted, nothing moves */
    bool starts_only; /* the interrupt is polled at the start of a prefill or decode only */
    float sure_gap;   /* case B120: best two so far apart are sure for what is fed; 0: measured as below */
    bool
        polls_by_time; /* it is polled at the start and then every few milliseconds: how often, nobody knows */
    float moved_tolerance; /* where cells lie elsewhere or tokens were cut into other calls; below 0: a model
                            * that rounds: the spread of two batchings of the dense run is measured instead */
};

/* The scenarios.  Columns: name; capabilities without which it is left out; ANY, or KNOWN: only with known
 * weights (needs the reference pass, or too much computing for a real model).  PLAIN, KNOWN_PLAIN: only engines
 * without a tail state, since tokens follow where it was lost.  NARROW: not on a real model with windows, where a row
 * is 600 tokens and more: what is refused and counted, and what to the bit is as it was, goes by the same code whatever the
 * weights are, and models with windows of 32 tokens show it (test_conformance_*_tails.c, _windowed.c). */
#define MD_SCENARIO_LIST(X)                                                                                \
    X(prefill_in_any_split, MD_CAP_REMOVE_TAIL, KNOWN)                                                     \
    X(b055_one_batch_or_two, MD_CAP_REMOVE_TAIL, PLAIN)                                                    \
    X(b120_chunk_sizes_of_a_long_prompt, MD_CAP_REMOVE_TAIL, ANY)                                          \
    X(truncate_and_continue, MD_CAP_REMOVE_TAIL, PLAIN)                                                    \
    X(evict_and_admit_in_order, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)                             \
    X(evict_and_admit_in_other_orders, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)                      \
    X(evict_and_admit_the_tail, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, PLAIN)                           \
    X(export_truncate_admit, MD_CAP_COLD_STORE | MD_CAP_REMOVE_TAIL, PLAIN)                                \
    X(whole_middle_out_and_back, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)                         \
    X(continue_with_holes, MD_CAP_COLD_STORE | MD_CAP_SPARSE_ATTENTION | MD_CAP_REMOVE_MIDDLE, ANY)        \
    X(evict_without_export, MD_CAP_REMOVE_MIDDLE, NARROW)                                                  \
    X(park_and_unpark, MD_CAP_SPARSE_ATTENTION, ANY)                                                       \
    X(continue_while_parked, MD_CAP_SPARSE_ATTENTION, KNOWN)                                               \
    X(recompute_a_middle_range, MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, PLAIN)                      \
    X(recompute_behind_a_hole, MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, KNOWN_PLAIN)                 \
    X(b069_cells_used_by_another_sequence, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)                  \
    X(b115_distance_only, MD_CAP_REMOVE_MIDDLE, NARROW)                                                    \
    X(sequences_do_not_see_each_other, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, KNOWN_PLAIN)              \
    X(random_walk,                                                                                         \
      MD_CAP_COLD_STORE | MD_CAP_SPARSE_ATTENTION | MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, KNOWN)  \
    X(share_a_prefix_and_diverge, MD_CAP_SHARE | MD_CAP_REMOVE_TAIL, ANY)                                  \
    X(shared_cells_are_counted_once, MD_CAP_SHARE | MD_CAP_REMOVE_TAIL, ANY)                               \
    X(remove_from_one_of_two, MD_CAP_SHARE | MD_CAP_REMOVE_MIDDLE, ANY)                                    \
    X(park_in_one_of_two, MD_CAP_SHARE | MD_CAP_SPARSE_ATTENTION, ANY)                                     \
    X(export_of_a_shared_range, MD_CAP_SHARE | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)              \
    X(recompute_in_one_of_two, MD_CAP_SHARE | MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, ANY)          \
    X(all_sequences_share, MD_CAP_SHARE | MD_CAP_REMOVE_TAIL, ANY)                                         \
    X(moved_is_computed_there, MD_CAP_POSITION_SHIFT, KNOWN)                                               \
    X(moved_there_and_back, MD_CAP_POSITION_SHIFT | MD_CAP_REMOVE_MIDDLE, ANY)                             \
    X(b076_two_moves_are_one, MD_CAP_POSITION_SHIFT | MD_CAP_SHARE, ANY)                                   \
    X(b069_beside_a_move, MD_CAP_POSITION_SHIFT | MD_CAP_REMOVE_MIDDLE, ANY)                               \
    X(interrupt_beside_a_move, MD_CAP_POSITION_SHIFT, ANY)                                                 \
    X(move_with_all_cells_taken, MD_CAP_POSITION_SHIFT, KNOWN)                                             \
    X(walk_of_four_sequences,                                                                              \
      MD_CAP_SHARE | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE | MD_CAP_SPARSE_ATTENTION, KNOWN)            \
    X(wrong_arguments_change_nothing, MD_CAP_COLD_STORE | MD_CAP_SPARSE_ATTENTION | MD_CAP_REMOVE_MIDDLE,  \
      ANY)                                                                                                 \
    X(wrong_sharing_and_moving_change_nothing,                                                             \
      MD_CAP_SHARE | MD_CAP_POSITION_SHIFT | MD_CAP_SPARSE_ATTENTION | MD_CAP_REMOVE_MIDDLE, ANY)          \
    X(damaged_bytes_change_nothing, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)                      \
    X(full_export_buffer_changes_nothing, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)                \
    X(full_cells, MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, KNOWN_PLAIN)                                   \
    X(interrupt, MD_CAP_REMOVE_TAIL, ANY)                                                                  \
    X(interrupt_of_a_recompute, MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, PLAIN)                      \
    X(rewind_to_each_checkpoint, MD_CAP_CHECKPOINT, ANY)                                                   \
    X(rewind_with_evicted_blocks, MD_CAP_CHECKPOINT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)       \
    X(no_token_follows_a_lost_state, MD_CAP_CHECKPOINT, NARROW)                                            \
    X(lost_by_ranges, MD_CAP_CHECKPOINT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)                \
    X(ends_beside_a_hole, MD_CAP_CHECKPOINT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)            \
    X(admit_behind_the_end, MD_CAP_CHECKPOINT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, NARROW)          \
    X(cut_behind_a_removed_range, MD_CAP_CHECKPOINT | MD_CAP_COLD_STORE | MD_CAP_REMOVE_MIDDLE, ANY)       \
    X(wrong_states_change_nothing, MD_CAP_CHECKPOINT, ANY)                                                 \
    X(leave_and_come_back, MD_CAP_CHECKPOINT, ANY)                                                         \
    X(recompute_from_a_checkpoint, MD_CAP_CHECKPOINT | MD_CAP_RECOMPUTE_RANGE | MD_CAP_REMOVE_MIDDLE, ANY) \
    X(tail_walk, MD_CAP_CHECKPOINT, ANY)                                                                   \
    X(attention_of_known_weights, MD_CAP_ATTENTION_SCORES, KNOWN)                                          \
    X(queries_of_any_split, MD_CAP_ATTENTION_SCORES, ANY)                                                  \
    X(queries_are_those_of_the_last_call, MD_CAP_ATTENTION_SCORES, ANY)                                    \
    X(only_what_is_there_is_watched, MD_CAP_ATTENTION_SCORES, ANY)                                         \
    X(watching_moves_no_logit, MD_CAP_ATTENTION_SCORES, ANY)                                               \
    X(keys_of_what_came_back, MD_CAP_ATTENTION_SCORES | MD_CAP_REMOVE_MIDDLE, ANY)                         \
    X(keys_of_what_was_moved, MD_CAP_ATTENTION_SCORES | MD_CAP_POSITION_SHIFT, ANY)                        \
    X(keys_of_other_bytes_are_refused, MD_CAP_ATTENTION_SCORES, ANY)

#define X(name, caps, which) void md_scenario_##name(int unused);
MD_SCENARIO_LIST(X)
#undef X

/* Run all scenarios the subject's capabilities allow; returns 0, or 1 when one failed. */
int md_conformance_run(const struct md_subject *subject);

#endif
