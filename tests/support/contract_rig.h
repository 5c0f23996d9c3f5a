/* contract_rig.h - a contract (session/contract.h) over a worker and the scripted model, for tests that talk in the
 * text of the session protocol: jobs are submitted and waited for. */
#ifndef MD_TESTS_CONTRACT_RIG_H
#define MD_TESTS_CONTRACT_RIG_H

#include "session/contract.h"
#include "support/scripted.h"

#include <stdatomic.h>

struct contract_rig {
    struct md_engine *engine;
    struct md_text *text;
    struct md_pool *pool;
    struct md_worker *worker;
    struct md_contract *c;
    int64_t session;
    struct md_contract_prefix_status prefix;
    struct md_contract_suffix_status suffix;
    struct md_contract_overflow over;
    struct md_err err;
    bool cancels;        /* the next job, at once */
    bool cancels_inside; /* the next job, when it has begun: at its first allocation */
    struct md_alloc alloc;
    _Atomic(struct md_job *) job; /* that is waited for */
    atomic_bool armed;
};

/* Chunks of 16 tokens.  render: as in struct md_script; delay_ms: of each token of a prefill, and twenty times that for one that is sampled. */
void contract_rig_open(struct contract_rig *r, int32_t window, md_scripted_render_fn *render, int delay_ms);
void contract_rig_close(struct contract_rig *r);
/* A session more, with a contract of its own, which becomes the rig's; the caller has the old one to close. */
void contract_rig_another(struct contract_rig *r);
/* The last event of a job, waited for; without the tokens of its result. */
struct md_event contract_rig_wait(struct contract_rig *r, const struct md_job_request *q);
/* The context is this text, with * for each sampled piece. */
void contract_rig_context(struct contract_rig *r, const char *want);

/* ---- manifests ---- */

/* A piece of text and what it is. */
struct contract_part {
    const char *kind, *text;
    bool stable;
    const char *tool_calls, *tool_call_id;
};

#define STABLE(kind, text)               \
    {                                    \
        (kind), (text), true, NULL, NULL \
    }
#define VOLATILE(kind, text)              \
    {                                     \
        (kind), (text), false, NULL, NULL \
    }
#define PARTS(...) ((const struct contract_part[]){ __VA_ARGS__, VOLATILE(NULL, NULL) })

struct contract_texts {
    char stable[1000], rest[1000];
};

extern const struct md_manifest_id contract_llama, contract_other_template;
/* The manifest of these parts (up to one without a kind), and their two texts. */
struct md_manifest contract_rig_manifest(const struct md_manifest_id *id, const struct contract_part *parts,
                                         struct contract_texts *ret);

/* ---- calls, whole: their status and overflow in r ---- */

/* m: freed whatever happens; tools: NULL, or JSON */
enum md_status contract_ensure_with(struct contract_rig *r, const char *stable, struct md_manifest *m,
                                    const char *tools);
enum md_status contract_suffix_with(struct contract_rig *r, const char *rest, struct md_manifest *m);
enum md_status contract_ensure(struct contract_rig *r, const struct md_manifest_id *id,
                               const struct contract_part *parts);
enum md_status contract_suffix(struct contract_rig *r, const struct md_manifest_id *id,
                               const struct contract_part *parts);
/* Without a manifest. */
enum md_status contract_ensure_raw(struct contract_rig *r, const char *stable);
enum md_status contract_suffix_raw(struct contract_rig *r, const char *rest);
enum md_status contract_decode(struct contract_rig *r, const struct md_contract_decode *in);

/* A snapshot as a client keeps it: all of it is its own. */
struct contract_snapshot {
    int32_t resident, prefix, window;
    md_token tokens[1000];
    size_t token_count;
    char text[1000], tools[1000], manifest[8000]; /* manifest: JSON; "": none */
    bool tokens_only;                             /* of a restore */
};
enum md_status contract_snapshot(struct contract_rig *r, const struct md_sections_place *place,
                                 struct contract_snapshot *ret);
enum md_status contract_restore(struct contract_rig *r, const struct md_sections_place *place,
                                const struct contract_snapshot *from);

void contract_check_prefix(const struct contract_rig *r, int32_t reused, int32_t prefilled, int32_t dropped,
                           int32_t prefix);
void contract_check_suffix(const struct contract_rig *r, int32_t added, int32_t prefix, int32_t resident);
void contract_check_over(const struct contract_rig *r, const char *stage, int32_t resident,
                         int32_t additional, int32_t window);

#endif
