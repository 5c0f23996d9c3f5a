#include "commands/stack.h"

#include "base/log.h"
#include "commands/sizing.h"
#include "commands/speeds.h"
#include "engine/trace.h"
#include "host/paths.h"
#include "session/disk.h"

#include <stdio.h>
#include <string.h>

/* What the session and its callers need of the answer. */
static void take_sizes(const struct md_options *o, const struct md_sizing *z, struct md_stack *s)
{
    s->data_root = o->data_root;
    md_speeds_key(z, s->speed_key, sizeof s->speed_key);
    memcpy(s->model_path, z->model_path, sizeof s->model_path);
    memcpy(s->model_name, z->model_name, sizeof s->model_name);
    s->trained_tokens = z->facts.trained_tokens;
    s->window_tokens = z->window_tokens;
    s->hot_tokens = z->hot_tokens;
    s->cold_bytes = (size_t)z->cold_bytes;
    s->device_bytes = z->device != NULL && !z->device->shares_host ? z->model_bytes : 0;
}

static enum md_status open_engine(const struct md_options *o, const struct md_sizing *z, int32_t cell_count,
                                  struct md_stack *s, struct md_err *err)
{
    struct md_open_params p = z->open;
    p.model_path = s->model_path;
    p.cell_count = cell_count;
    p.attention = md_sizing_asks_attention(o);
    if (z->device_why[0] != '\0')
        md_log(MD_LOG_WARN, "device CPU: chosen by AUTO, %s", z->device_why);
    enum md_status st = z->backend->open(&p, &s->engine, &s->text, err);
    if (st != MD_OK)
        return st;
    if (o->verbose) {
        struct md_engine *inner = s->engine;
        s->engine = NULL; /* taken over, also on failure */
        st = md_trace_open(inner, &s->engine, err);
        if (st != MD_OK)
            return st;
    }
    const struct md_engine_info *info = md_engine_info(s->engine);
    if (info->lossy_kv)
        md_log(MD_LOG_WARN, "KV types %s/%s are lossy: they round what the model computes", info->type_k,
               info->type_v);
    return MD_OK;
}

/* The value of a flag that takes one of a few words. */
static enum md_status one_of(const char *flag, const char *word, const char *const *words, int *ret_index,
                             struct md_err *err)
{
    char known[128] = "";
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(word, words[i]) == 0) {
            *ret_index = i;
            return MD_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i > 0 ? ", " : "", words[i]);
    }
    return md_fail(err, MD_INVALID, "%s '%s' is not known: it is one of %s", flag, word, known);
}

/* Which one of its words each of the flags of policy has. */
struct words {
    int reuse, policy, retrieval, evict;
};

static enum md_status read_words(const struct md_options *o, struct words *ret, struct md_err *err)
{
    static const char *const policies[] = { "write-back", "write-through", NULL };
    static const char *const retrievals[] = { "off", "auto", NULL };
    const char *reuses[MD_REUSE_COUNT + 1] = { NULL }, *evicts[MD_EVICT_COUNT + 1] = { NULL };
    for (int i = 0; i < MD_REUSE_COUNT; i++)
        reuses[i] = md_reuse_name((enum md_reuse)i);
    for (int i = 0; i < MD_EVICT_COUNT; i++)
        evicts[i] = md_evict_name((enum md_evict)i);
    enum md_status st = one_of("--reuse", o->reuse, reuses, &ret->reuse, err);
    if (st == MD_OK)
        st = one_of("--cold-policy", o->cold_policy, policies, &ret->policy, err);
    if (st == MD_OK)
        st = one_of("--retrieval", o->retrieval, retrievals, &ret->retrieval, err);
    if (st == MD_OK)
        st = one_of("--evict", o->evict, evicts, &ret->evict, err);
    return st;
}

enum md_status md_stack_check_words(const struct md_options *o, struct md_err *err)
{
    struct words ignored;
    return read_words(o, &ignored, err);
}

static enum md_status pool_config(const struct md_options *o, const struct md_stack *s,
                                  void (*configure)(struct md_pool_config *config),
                                  struct md_pool_config *ret_config, struct md_err *err)
{
    struct words is;
    enum md_status st = read_words(o, &is, err);
    if (st != MD_OK)
        return st;
    *ret_config = (struct md_pool_config){
        .window_tokens = s->window_tokens,
        .hot_tokens = s->hot_tokens,
        .past_window = o->past_window,
        .residency = o->residency,
        .block_tokens = (int32_t)o->block_tokens,
        .sink_tokens = (int32_t)o->sink,
        .recent_tokens = (int32_t)o->recent,
        .cold_bytes = s->cold_bytes,
        .write_through = is.policy == 1,
        .reuse = (enum md_reuse)is.reuse,
        .evict = (enum md_evict)is.evict,
        .retrieval = is.retrieval == 1 ? MD_RETRIEVAL_AUTO : MD_RETRIEVAL_OFF,
        .calibrate = o->calibrate ? MD_CALIBRATE_IDLE : MD_CALIBRATE_OFF,
        .checkpoint_tokens = (int32_t)o->checkpoint_tokens,
        .session_limit = (int32_t)o->sessions,
    };
    if (configure != NULL)
        configure(ret_config);
    return md_pool_check_config(ret_config, err);
}

enum md_status md_stack_open_engine(const struct md_options *o, const struct md_backend *backends,
                                    int32_t cell_count, struct md_stack *ret_stack, struct md_err *err)
{
    struct md_stack s = { 0 };
    struct md_sizing z;
    enum md_status st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check_model(&z, err);
    if (st == MD_OK && z.facts.trained_tokens > 0 && cell_count > z.facts.trained_tokens)
        st = md_fail(err, MD_INVALID,
                     "%d tokens are asked for, the model was trained for %d: lower --depth, -n or -c",
                     cell_count, z.facts.trained_tokens);
    if (st == MD_OK) {
        take_sizes(o, &z, &s);
        st = open_engine(o, &z, cell_count, &s, err);
    }
    if (st == MD_OK)
        *ret_stack = s;
    else
        md_stack_close(&s);
    return st;
}

/* What somebody who gave no sizes wants to know of them. */
static void log_sizes(const struct md_options *o, const struct md_sizing *z)
{
    char rope[MD_ROPE_TEXT_BYTES];
    md_rope_text(&z->rope, rope);
    if (z->rope.changed)
        md_log(MD_LOG_INFO, "RoPE set to %s: the window that counts as trained is %d tokens, %d in the file",
               rope, z->facts.trained_tokens, md_rope_file_window(&z->facts.rope));
    if (z->hot_tokens < z->window_tokens && !z->manual_hot && z->capacity.reason == MD_CLAMP_NONE)
        md_log(MD_LOG_INFO, "%d of %d tokens are hot at once, the rest is kept cold", z->hot_tokens,
               z->window_tokens);
    else if (z->hot_tokens < z->window_tokens && !z->manual_hot)
        md_log(MD_LOG_INFO, "%d of %d tokens fit the memory at once (%s), the rest is kept cold",
               z->hot_tokens, z->window_tokens, md_clamp_text(z->capacity.reason));
    if (!z->cost.cold_store)
        md_log(MD_LOG_INFO, "this model's KV cannot be evicted in parts: the window is what fits at once");
    if (z->cost.checkpoints)
        md_log(MD_LOG_INFO,
               "windowed or recurrent layers: an edit computes again what follows the last checkpoint before "
               "it, "
               "at most %lld tokens (--checkpoint-tokens)",
               (long long)o->checkpoint_tokens);
    if (z->facts.note != NULL)
        md_log(MD_LOG_INFO, "%s", z->facts.note);
}

/* What is wrong with the folder itself, or its size, is said before the model is read, which may take minutes; whose it is, and what is in
 * it, when it is opened. */
static enum md_status check_folder(const struct md_options *o, struct md_err *err)
{
    struct md_err why;
    if (o->kv_disk >= 0 && o->kv_dir == NULL)
        return md_fail(err, MD_INVALID, "--kv-disk limits --kv-dir, which is not given");
    if (o->kv_dir == NULL)
        return MD_OK;
    if (o->kv_disk >= 0 && o->kv_disk < MD_DISK_BYTES_MIN)
        return md_fail(err, MD_INVALID, "--kv-disk must be at least %d bytes, got %lld", MD_DISK_BYTES_MIN,
                       (long long)o->kv_disk);
    enum md_status st = md_paths_check_folder(o->kv_dir, &why);
    if (st == MD_OK)
        st = md_paths_make_folder(o->kv_dir, &why);
    if (st == MD_OK)
        st = md_paths_check_writable(o->kv_dir, &why);
    return st == MD_OK
               ? st
               : md_fail(err, st, "--kv-dir: %.420s: give it a folder that modeld may write to", why.text);
}

/* KV depends on the model and the engine, the names of blocks on their size as well. */
static enum md_status open_disk(const struct md_options *o, struct md_stack *s, struct md_err *err)
{
    char identity[512];
    struct md_disk_config c = { .folder = o->kv_dir, .identity = identity, .budget_bytes = o->kv_disk };
    if (o->kv_dir == NULL)
        return MD_OK;
    snprintf(identity, sizeof identity, "%s|blocks of %lld", md_engine_info(s->engine)->identity,
             (long long)o->block_tokens);
    struct md_err why;
    enum md_status st = md_paths_make_folder(o->kv_dir, &why);
    if (st == MD_OK && o->kv_disk < 0) {
        st = md_paths_free_bytes(o->kv_dir, &c.budget_bytes, &why);
        c.budget_bytes /= 4;
    }
    if (st == MD_OK)
        st = md_disk_open(&c, &s->disk, &why);
    return st == MD_OK ? st : md_fail(err, st, "--kv-dir: %.450s", why.text);
}

enum md_status md_stack_check(const struct md_options *o, const struct md_backend *backends,
                              void (*configure)(struct md_pool_config *config), struct md_err *err)
{
    struct md_stack s = { 0 };
    struct md_sizing z;
    struct md_pool_config config;
    enum md_status st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check(o, &z, err);
    if (st != MD_OK)
        return st;
    take_sizes(o, &z, &s);
    return pool_config(o, &s, configure, &config, err);
}

enum md_status md_stack_open(const struct md_options *o, const struct md_backend *backends,
                             struct md_stack *ret_stack, struct md_err *err)
{
    return md_stack_open_with(o, backends, NULL, ret_stack, err);
}

enum md_status md_stack_open_with(const struct md_options *o, const struct md_backend *backends,
                                  void (*configure)(struct md_pool_config *config),
                                  struct md_stack *ret_stack, struct md_err *err)
{
    struct md_stack s = { 0 };
    struct md_sizing z;
    struct md_pool_config config = { 0 };
    char heads_file[MD_PATH_MAX];
    enum md_status st = check_folder(o, err);
    if (st == MD_OK)
        st = md_sizing_resolve(o, backends, NULL, &z, err);
    if (st == MD_OK)
        st = md_sizing_check(o, &z, err);
    if (st == MD_OK) {
        take_sizes(o, &z, &s);
        st = pool_config(o, &s, configure, &config, err); /* before the weights are read */
    }
    if (st == MD_OK)
        log_sizes(o, &z);
    if (st == MD_OK)
        st = open_engine(o, &z, s.hot_tokens, &s, err);
    if (st == MD_OK)
        st = open_disk(o, &s, err);
    config.disk = s.disk;
    if (st == MD_OK && (config.retrieval != MD_RETRIEVAL_OFF || config.evict == MD_EVICT_ATTENTION) &&
        !o->print_heads) {
        st = md_heads_file(o->data_root, s.engine, heads_file, sizeof heads_file, err);
        config.heads_file = heads_file; /* the pool has a copy */
    }
    if (st == MD_OK)
        st = md_pool_open(&config, s.engine, s.text, &s.pool, err);
    if (st == MD_OK)
        *ret_stack = s;
    else
        md_stack_close(&s);
    return st;
}

void md_stack_note_speed(const struct md_stack *s, int64_t tokens, int64_t ns)
{
    md_speeds_note(s->data_root, s->speed_key, tokens, ns);
}

void md_stack_close(struct md_stack *s)
{
    if (s->pool != NULL) {
        struct md_pool_status st = md_pool_status(s->pool);
        md_stack_note_speed(s, st.prefilled_tokens, st.prefill_ns);
    }
    md_pool_close(s->pool);
    md_disk_close(s->disk);
    md_engine_close(s->engine);
    md_text_close(s->text);
    *s = (struct md_stack){ 0 };
}

struct md_sample_params md_stack_sampling(const struct md_options *o)
{
    struct md_sample_params p = md_sample_defaults();
    p.temperature = (float)o->temp;
    p.top_k = (int32_t)o->top_k;
    p.top_p = (float)o->top_p;
    p.min_p = (float)o->min_p;
    p.repeat_penalty = (float)o->repeat_penalty;
    p.repeat_last_n = (int32_t)o->repeat_last_n;
    p.seed = o->seed;
    return p;
}
