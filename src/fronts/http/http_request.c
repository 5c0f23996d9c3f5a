/* http_request.c - see http_request.h.  One table says which field is read by what; a field that is not in it
 * asks for nothing. */
#include "fronts/http/http_request.h"

#include "fronts/http/http.h"
#include "fronts/http/http_json.h"
#include "fronts/http/http_parser.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yyjson.h>

enum md_status md_http_refuse(struct md_http_error *e, enum md_status status, const char *param,
                              const char *fmt, ...)
{
    *e = (struct md_http_error){ .http = md_status_http(status) };
    switch (status) {
    case MD_INVALID:
    case MD_TOO_LARGE: e->type = "invalid_request_error"; break;
    case MD_NOT_FOUND: e->type = "not_found_error"; break;
    case MD_UNSUPPORTED:
        e->type = "not_supported_error";
        e->code = "unsupported";
        break;
    case MD_BUSY:
    case MD_CLOSED:
    case MD_CANCELLED:
        e->http = 503; /* the client did not ask for it, and may come again: not 409 or 499 */
        e->type = "unavailable_error";
        break;
    default: e->type = "server_error"; break;
    }
    if (param != NULL)
        snprintf(e->param, sizeof e->param, "%s", param);
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    va_end(args);
    return status;
}

enum md_status md_http_parser_no_memory(struct http_parser *p)
{
    return md_http_refuse(p->e, MD_NO_MEMORY, NULL, "out of memory while reading the request");
}

struct md_bytes md_http_parser_bytes(yyjson_val *v)
{
    return (struct md_bytes){ yyjson_get_str(v), yyjson_get_len(v) };
}

enum md_status md_http_parser_json(struct http_parser *p, yyjson_val *v, struct md_bytes *ret)
{
    size_t len;
    char *json = yyjson_val_write(v, YYJSON_WRITE_NOFLAG, &len);
    char *copy = json != NULL ? md_arena_strndup(&p->r->arena, json, len) : NULL;
    free(json);
    if (copy == NULL)
        return md_http_parser_no_memory(p);
    *ret = (struct md_bytes){ copy, len };
    return MD_OK;
}

bool md_http_parser_asks_nothing(yyjson_val *v)
{
    return v == NULL || yyjson_is_null(v) || (yyjson_is_arr(v) && yyjson_arr_size(v) == 0) ||
           (yyjson_is_obj(v) && yyjson_obj_size(v) == 0);
}

/* ---- scalars ---- */

enum md_status md_http_parser_bool(struct http_parser *p, const char *name, yyjson_val *v, bool *ret)
{
    if (!yyjson_is_bool(v))
        return md_http_refuse(p->e, MD_INVALID, name, "%s must be true or false, got %s", name,
                              yyjson_get_type_desc(v));
    *ret = yyjson_get_bool(v);
    return MD_OK;
}

static enum md_status want_number(struct http_parser *p, const char *name, yyjson_val *v, double *ret)
{
    if (!yyjson_is_num(v))
        return md_http_refuse(p->e, MD_INVALID, name, "%s must be a number, got %s", name,
                              yyjson_get_type_desc(v));
    *ret = yyjson_get_num(v);
    return MD_OK;
}

/* A whole number within [low, high]; 5.0 counts as whole, as many clients write it so. */
static enum md_status want_integer(struct http_parser *p, const char *name, yyjson_val *v, double low,
                                   double high, int64_t *ret)
{
    double d;
    enum md_status s = want_number(p, name, v, &d);
    if (s != MD_OK)
        return s;
    if (d != floor(d))
        return md_http_refuse(p->e, MD_INVALID, name, "%s must be a whole number, got %g", name, d);
    if (d < low || d > high)
        return md_http_refuse(p->e, MD_INVALID, name, "%s must be between %.0f and %.0f, got %.17g", name,
                              low, high, d);
    *ret = (int64_t)d;
    return MD_OK;
}

/* A float; the range is the sampler's affair (md_sample_check), this only keeps the cast defined. */
static enum md_status want_float(struct http_parser *p, const char *name, yyjson_val *v, float *ret)
{
    double d;
    enum md_status s = want_number(p, name, v, &d);
    if (s == MD_OK && !(fabs(d) < 1e9))
        return md_http_refuse(p->e, MD_INVALID, name, "%s is out of range: %g", name, d);
    if (s == MD_OK)
        *ret = (float)d;
    return s;
}

static enum md_status parse_model(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, name, "model must be a string, got %s",
                              yyjson_get_type_desc(v));
    p->r->model = md_http_parser_bytes(v);
    return MD_OK;
}

/* Anything above what an int holds is "as much as fits": clamped later, not refused. */
static enum md_status token_limit(struct http_parser *p, const char *name, yyjson_val *v, int32_t *ret)
{
    double d;
    enum md_status s = want_number(p, name, v, &d);
    if (s != MD_OK)
        return s;
    if (d != floor(d) || d < -1)
        return md_http_refuse(p->e, MD_INVALID, name,
                              "%s must be a whole number: -1 (until the limit), 0 or more; got %g", name, d);
    *ret = d > INT32_MAX ? INT32_MAX : (int32_t)d;
    return MD_OK;
}

static enum md_status parse_max_tokens(struct http_parser *p, const char *name, yyjson_val *v)
{
    int32_t limit = -1;
    enum md_status s = token_limit(p, name, v, &limit);
    if (s == MD_OK && !p->has_completion_limit)
        p->r->max_tokens = limit;
    return s;
}

static enum md_status parse_max_completion(struct http_parser *p, const char *name, yyjson_val *v)
{
    p->has_completion_limit = true;
    return token_limit(p, name, v, &p->r->max_tokens);
}

#define FLOAT_FIELD(field)                                                                      \
    static enum md_status parse_##field(struct http_parser *p, const char *name, yyjson_val *v) \
    {                                                                                           \
        return want_float(p, name, v, &p->r->sample.field);                                     \
    }
FLOAT_FIELD(temperature)
FLOAT_FIELD(top_p)
FLOAT_FIELD(min_p)
FLOAT_FIELD(repeat_penalty)
FLOAT_FIELD(frequency_penalty)
FLOAT_FIELD(presence_penalty)

static enum md_status parse_top_k(struct http_parser *p, const char *name, yyjson_val *v)
{
    int64_t k = 0;
    enum md_status s = want_integer(p, name, v, 0, INT32_MAX, &k);
    if (s == MD_OK)
        p->r->sample.top_k = (int32_t)k;
    return s;
}

static enum md_status parse_repeat_last_n(struct http_parser *p, const char *name, yyjson_val *v)
{
    int64_t n = 0;
    enum md_status s = want_integer(p, name, v, 0, 32768, &n);
    if (s == MD_OK)
        p->r->sample.repeat_last_n = (int32_t)n;
    return s;
}

static enum md_status parse_seed(struct http_parser *p, const char *name, yyjson_val *v)
{
    return want_integer(p, name, v, -1, UINT32_MAX, &p->r->sample.seed);
}

static enum md_status parse_stream(struct http_parser *p, const char *name, yyjson_val *v)
{
    return md_http_parser_bool(p, name, v, &p->r->stream);
}

static enum md_status parse_return_progress(struct http_parser *p, const char *name, yyjson_val *v)
{
    return md_http_parser_bool(p, name, v, &p->r->return_progress);
}

static enum md_status parse_add_generation_prompt(struct http_parser *p, const char *name, yyjson_val *v)
{
    return md_http_parser_bool(p, name, v, &p->r->in.add_generation_prompt);
}

/* ---- compound ones ---- */

static enum md_status parse_stream_options(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, name, "stream_options must be an object, got %s",
                              yyjson_get_type_desc(v));
    yyjson_val *usage = yyjson_obj_get(v, "include_usage");
    if (usage == NULL || yyjson_is_null(usage))
        return MD_OK;
    return md_http_parser_bool(p, "stream_options.include_usage", usage, &p->r->include_usage);
}

static enum md_status add_stop(struct http_parser *p, yyjson_val *v)
{
    struct md_http_request *r = p->r;
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, "stop",
                              "stop must be a string or an array of strings, got %s",
                              yyjson_get_type_desc(v));
    if (yyjson_get_len(v) == 0 || yyjson_get_len(v) > MD_STOP_BYTES_MAX)
        return md_http_refuse(p->e, MD_INVALID, "stop", "a stop string must have 1 to %d bytes, got %zu",
                              MD_STOP_BYTES_MAX, yyjson_get_len(v));
    if (r->stop_count == MD_HTTP_STOPS_MAX)
        return md_http_refuse(p->e, MD_INVALID, "stop", "more than %d stop strings", MD_HTTP_STOPS_MAX);
    r->stops[r->stop_count++] = md_http_parser_bytes(v);
    return MD_OK;
}

static enum md_status parse_stop(struct http_parser *p, const char *name, yyjson_val *v)
{
    (void)name;
    if (!yyjson_is_arr(v))
        return add_stop(p, v);
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *item;
    while ((item = yyjson_arr_iter_next(&it)) != NULL) {
        enum md_status s = add_stop(p, item);
        if (s != MD_OK)
            return s;
    }
    return MD_OK;
}

/* The id in a key of logit_bias: digits only, within the vocabulary. */
static bool token_of_key(const char *key, size_t len, int32_t vocab_count, md_token *ret)
{
    int64_t id = 0;
    if (len == 0 || len > 9)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (key[i] < '0' || key[i] > '9')
            return false;
        id = id * 10 + (key[i] - '0');
    }
    *ret = (md_token)id;
    return id < vocab_count;
}

static enum md_status parse_logit_bias(struct http_parser *p, const char *name, yyjson_val *v)
{
    struct md_http_request *r = p->r;
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, name,
                              "logit_bias must be an object of token id and bias, got %s",
                              yyjson_get_type_desc(v));
    size_t count = yyjson_obj_size(v), n = 0;
    if (count > MD_HTTP_BIAS_MAX)
        return md_http_refuse(p->e, MD_INVALID, name, "logit_bias has more than %d entries",
                              MD_HTTP_BIAS_MAX);
    struct md_logit_bias *bias = md_arena_get(&r->arena, count + 1, sizeof *bias);
    if (bias == NULL)
        return md_http_parser_no_memory(p);
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        double d;
        if (!token_of_key(yyjson_get_str(key), yyjson_get_len(key), p->vocab_count, &bias[n].token))
            return md_http_refuse(p->e, MD_INVALID, name, "logit_bias: a key is no token id below %d",
                                  p->vocab_count);
        enum md_status s = want_number(p, name, yyjson_obj_iter_get_val(key), &d);
        if (s != MD_OK)
            return s;
        if (!(d >= -100 && d <= 100))
            return md_http_refuse(p->e, MD_INVALID, name, "logit_bias must be between -100 and 100, got %g",
                                  d);
        for (size_t i = 0; i < n; i++)
            if (bias[i].token == bias[n].token)
                return md_http_refuse(p->e, MD_INVALID, name, "logit_bias has token %d twice", bias[n].token);
        bias[n++].bias = (float)d;
    }
    r->sample.bias = bias;
    r->sample.bias_count = n;
    return MD_OK;
}

static enum md_status parse_prompt_ids(struct http_parser *p, const char *name, yyjson_val *v)
{
    struct md_http_request *r = p->r;
    r->prompt_ids = md_arena_get(&r->arena, yyjson_arr_size(v) + 1, sizeof *r->prompt_ids);
    if (r->prompt_ids == NULL)
        return md_http_parser_no_memory(p);
    yyjson_arr_iter it = yyjson_arr_iter_with(v);
    yyjson_val *item;
    while ((item = yyjson_arr_iter_next(&it)) != NULL) {
        if (!yyjson_is_int(item))
            return md_http_refuse(
                p->e, MD_INVALID, name,
                "prompt must be one string or one array of token ids; several prompts in one "
                "request are not supported");
        if (!yyjson_is_uint(item) || yyjson_get_uint(item) >= (uint64_t)p->vocab_count)
            return md_http_refuse(p->e, MD_INVALID, name, "prompt: token %zu is outside the vocabulary of %d",
                                  r->prompt_id_count, p->vocab_count);
        r->prompt_ids[r->prompt_id_count++] = (md_token)yyjson_get_uint(item);
    }
    return MD_OK;
}

static enum md_status parse_prompt(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (yyjson_is_arr(v) && yyjson_arr_size(v) == 1 && yyjson_is_str(yyjson_arr_get_first(v)))
        v = yyjson_arr_get_first(v); /* a batch of one */
    if (yyjson_is_arr(v))
        return parse_prompt_ids(p, name, v);
    if (!yyjson_is_str(v))
        return md_http_refuse(p->e, MD_INVALID, name,
                              "prompt must be a string or an array of token ids, got %s",
                              yyjson_get_type_desc(v));
    p->r->prompt = md_http_parser_bytes(v);
    return MD_OK;
}

/* {"session": ID, "manifest": {...}}.  The name is ours, so a key that is not known here is a mistake. */
static enum md_status parse_modeld(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (!yyjson_is_obj(v))
        return md_http_refuse(p->e, MD_INVALID, name, "modeld must be an object, got %s",
                              yyjson_get_type_desc(v));
    yyjson_obj_iter it = yyjson_obj_iter_with(v);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        char field[48];
        snprintf(field, sizeof field, "modeld.%.30s", yyjson_get_str(key));
        yyjson_val *value = yyjson_obj_iter_get_val(key);
        const bool manifest = yyjson_equals_str(key, "manifest");
        if (!manifest && !yyjson_equals_str(key, "session"))
            return md_http_refuse(p->e, MD_INVALID, field,
                                  "%s is not known: modeld takes session and manifest", field);
        if (manifest && !yyjson_is_null(value))
            p->manifest = value;
        if (manifest || yyjson_is_null(value))
            continue;
        enum md_status s = want_integer(p, field, value, 1, 9007199254740991.0, &p->r->session);
        if (s != MD_OK)
            return s;
    }
    return MD_OK;
}

/* ---- what asks for things we do not do ---- */

static enum md_status unsupported(struct http_parser *p, const char *name, const char *what)
{
    return md_http_refuse(p->e, MD_UNSUPPORTED, name, "%s: %s not supported yet", name, what);
}

static enum md_status parse_n(struct http_parser *p, const char *name, yyjson_val *v)
{
    int64_t n;
    enum md_status s = want_integer(p, name, v, INT32_MIN, INT32_MAX, &n);
    if (s == MD_OK && n != 1)
        s = md_http_refuse(p->e, MD_INVALID, name, "n must be 1: one choice is given for a request");
    return s;
}

/* null, [], {} and false ask for nothing. */
static enum md_status refuse_unless_empty(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (md_http_parser_asks_nothing(v) || yyjson_is_false(v) || yyjson_equals_str(v, ""))
        return MD_OK;
    return unsupported(p, name, "this is");
}

static enum md_status parse_function_call(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (yyjson_equals_str(v, "none") || yyjson_equals_str(v, "auto"))
        return MD_OK;
    return unsupported(p, name, "use tool_choice; this is");
}

static enum md_status parse_modalities(struct http_parser *p, const char *name, yyjson_val *v)
{
    if (md_http_parser_asks_nothing(v) ||
        (yyjson_arr_size(v) == 1 && yyjson_equals_str(yyjson_arr_get_first(v), "text")))
        return MD_OK;
    return unsupported(p, name, "modalities other than text are");
}

/* Samplers we do not have: their neutral value asks for nothing. */
static enum md_status refuse_unless_zero(struct http_parser *p, const char *name, yyjson_val *v)
{
    double d;
    enum md_status s = want_number(p, name, v, &d);
    return s != MD_OK || d == 0 ? s : unsupported(p, name, "values other than 0 are");
}

static enum md_status refuse_unless_one(struct http_parser *p, const char *name, yyjson_val *v)
{
    double d;
    enum md_status s = want_number(p, name, v, &d);
    return s != MD_OK || d == 1 ? s : unsupported(p, name, "values other than 1 are");
}

/* ---- the whole ---- */

static const struct http_field both_fields[] = {
    { "model", parse_model },
    { "modeld", parse_modeld },
    { "max_tokens", parse_max_tokens },
    { "temperature", parse_temperature },
    { "top_k", parse_top_k },
    { "top_p", parse_top_p },
    { "min_p", parse_min_p },
    { "repeat_penalty", parse_repeat_penalty },
    { "repeat_last_n", parse_repeat_last_n },
    { "frequency_penalty", parse_frequency_penalty },
    { "presence_penalty", parse_presence_penalty },
    { "logit_bias", parse_logit_bias },
    { "seed", parse_seed },
    { "stop", parse_stop },
    { "stream", parse_stream },
    { "stream_options", parse_stream_options },
    { "return_progress", parse_return_progress },
    { "n", parse_n },
    { "logprobs", refuse_unless_empty },
    { "grammar", md_http_parse_grammar },
    { "json_schema", md_http_parse_json_schema },
    { "response_format", md_http_parse_response_format },
    { "mirostat", refuse_unless_zero },
    { "xtc_probability", refuse_unless_zero },
    { "dry_multiplier", refuse_unless_zero },
    { "dynatemp_range", refuse_unless_zero },
    { "typical_p", refuse_unless_one },
    { NULL, NULL },
};
static const struct http_field chat_fields[] = {
    { "messages", md_http_parse_messages },
    { "max_completion_tokens", parse_max_completion },
    { "add_generation_prompt", parse_add_generation_prompt },
    { "continue_final_message", refuse_unless_empty },
    { "tools", md_http_parse_tools },
    { "tool_choice", md_http_parse_tool_choice },
    { "parallel_tool_calls", md_http_parse_parallel },
    { "functions", refuse_unless_empty },
    { "function_call", parse_function_call },
    { "reasoning_effort", md_http_parse_effort },
    { "top_logprobs", refuse_unless_zero },
    { "modalities", parse_modalities },
    { "audio", refuse_unless_empty },
    { "web_search_options", refuse_unless_empty },
    { "chat_template", refuse_unless_empty },
    { "chat_template_kwargs", md_http_parse_kwargs },
    { NULL, NULL },
};
static const struct http_field completion_fields[] = {
    { "prompt", parse_prompt },        { "best_of", parse_n }, { "echo", refuse_unless_empty },
    { "suffix", refuse_unless_empty }, { NULL, NULL },
};

static int find_field(const struct http_field *fields, yyjson_val *key)
{
    for (int i = 0; fields[i].name != NULL; i++)
        if (yyjson_equals_str(key, fields[i].name))
            return i;
    return -1;
}

static enum md_status parse_fields(struct http_parser *p, yyjson_val *root)
{
    const struct http_field *tables[] = { both_fields, p->r->chat ? chat_fields : completion_fields };
    yyjson_obj_iter it = yyjson_obj_iter_with(root);
    yyjson_val *key;
    while ((key = yyjson_obj_iter_next(&it)) != NULL) {
        for (int t = 0; t < 2; t++) {
            int i = find_field(tables[t], key);
            if (i < 0)
                continue;
            const char *name = tables[t][i].name;
            yyjson_val *value = yyjson_obj_iter_get_val(key);
            enum md_status s = yyjson_is_null(value) ? MD_OK : tables[t][i].parse(p, name, value);
            if (s != MD_OK)
                return s;
        }
    }
    if (p->r->chat && p->r->in.messages == NULL)
        return md_http_refuse(p->e, MD_INVALID, "messages", "messages is missing");
    if (!p->r->chat && p->r->prompt.data == NULL && p->r->prompt_ids == NULL)
        return md_http_refuse(p->e, MD_INVALID, "prompt", "prompt is missing");
    enum md_status s = md_http_check_tools(p);
    return s == MD_OK ? md_http_check_manifest(p) : s;
}

/* Ranges belong to the sampler; its message begins with the name of the field. */
static enum md_status check_sampling(struct http_parser *p)
{
    struct md_err err;
    enum md_status s = md_sample_check(&p->r->sample, p->vocab_count, &err);
    if (s == MD_OK)
        return MD_OK;
    char name[48];
    snprintf(name, sizeof name, "%.*s", (int)strspn(err.text, "abcdefghijklmnopqrstuvwxyz_"), err.text);
    return md_http_refuse(p->e, s, name, "%s", err.text);
}

static enum md_status parse_document(struct http_parser *p, char *body, size_t len)
{
    struct md_err err;
    if (len == 0)
        return md_http_refuse(p->e, MD_INVALID, NULL, "the body is empty: send a JSON object");
    enum md_status s = md_json_guard(body, len, MD_HTTP_DEPTH_MAX, &err);
    if (s != MD_OK)
        return md_http_refuse(p->e, s, NULL, "%s", err.text);
    yyjson_read_err why;
    p->r->document = yyjson_read_opts(body, len, YYJSON_READ_NOFLAG, NULL, &why);
    if (p->r->document == NULL && why.code == YYJSON_READ_ERROR_MEMORY_ALLOCATION)
        return md_http_parser_no_memory(p);
    if (p->r->document == NULL) {
        struct md_bytes key = md_json_key_before(body, len, why.pos);
        char name[48];
        snprintf(name, sizeof name, "%.*s", (int)key.len, key.len > 0 ? (const char *)key.data : "");
        return md_http_refuse(p->e, MD_INVALID, key.len > 0 ? name : NULL,
                              "the body is not valid JSON: %s at byte %zu%s%s", why.msg, why.pos,
                              key.len > 0 ? ", in " : "", name);
    }
    yyjson_val *root = yyjson_doc_get_root(p->r->document);
    if (!yyjson_is_obj(root))
        return md_http_refuse(p->e, MD_INVALID, NULL, "the body must be a JSON object, got %s",
                              yyjson_get_type_desc(root));
    char where[200];
    s = md_json_unique(root, where, sizeof where, &err);
    return s == MD_OK ? parse_fields(p, root) : md_http_refuse(p->e, s, where, "%s", err.text);
}

struct md_http_defaults md_http_defaults(void)
{
    return (struct md_http_defaults){ .sample = md_sample_defaults(), .max_tokens = -1 };
}

enum md_status md_http_request_parse(char *body, size_t len, bool chat, int32_t vocab_count,
                                     const struct md_http_defaults *defaults,
                                     struct md_http_request *ret_request, struct md_http_error *ret_error)
{
    struct md_http_request r = { .chat = chat,
                                 .in = { .add_generation_prompt = true, .parallel_tool_calls = true },
                                 .max_tokens = defaults->max_tokens,
                                 .sample = defaults->sample };
    struct http_parser p = { .r = &r, .e = ret_error, .vocab_count = vocab_count };
    /* joined parts, ids and messages: never more than a small multiple of the body */
    md_arena_init(&r.arena, NULL, 64 * len + (1 << 20));
    enum md_status s = parse_document(&p, body, len);
    if (s == MD_OK)
        s = check_sampling(&p);
    if (s != MD_OK) {
        md_http_request_done(&r);
        return s;
    }
    *ret_request = r;
    return MD_OK;
}

void md_http_request_done(struct md_http_request *r)
{
    yyjson_doc_free(r->document);
    md_arena_done(&r->arena);
    *r = (struct md_http_request){ 0 };
}
