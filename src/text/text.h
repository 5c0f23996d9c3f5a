/* text.h - text to tokens and back: tokenizer, chat template, sampler.  Made by adapters/llama for
 * every engine; needs only the vocabulary of the model file, not its weights.
 *
 * Text is UTF-8 with a length; NUL bytes inside are kept.  Nothing here knows of KV.
 *
 * Threads: tokenize, piece, render and the predicates may be called from any thread at once; a
 * sampler belongs to one thread at a time. */
#ifndef MD_TEXT_TEXT_H
#define MD_TEXT_TEXT_H

#include "base/err.h"
#include "base/mem.h"
#include "base/types.h"

#ifdef __cplusplus
extern "C" {
#endif

struct md_text;
struct md_sampler;

struct md_text_info {
    int32_t vocab_count;
    md_token bos, eos;           /* -1 = none */
    bool adds_bos;               /* the tokenizer puts bos first by itself */
    int32_t longest_piece_bytes; /* no token covers more bytes of text; 0 = not known */
    bool has_chat_template;      /* the model file brings one */
};

/* What is optional has data NULL when it is not there. */
struct md_chat_message {
    struct md_bytes role, content;
    struct md_bytes tool_calls;         /* of an assistant: JSON, an array as OpenAI writes `tool_calls` */
    struct md_bytes tool_call_id, name; /* of a tool's result: which call it answers */
    struct md_bytes reasoning_content;
};

enum md_tool_choice { MD_TOOLS_AUTO, MD_TOOLS_NONE, MD_TOOLS_REQUIRED, MD_TOOLS_NAMED };
enum md_thinking {
    MD_THINKING_DEFAULT,
    MD_THINKING_ON,
    MD_THINKING_OFF
}; /* default: the template is not told */

/* All that a chat template may be told, and how the answer is bound.  All is borrowed.
 * json_schema, grammar and tools that may be called exclude each other. */
struct md_chat_input {
    const struct md_chat_message *messages;
    size_t count;
    bool add_generation_prompt;
    struct md_bytes tools; /* JSON, OpenAI's array; given to the template as it stands */
    enum md_tool_choice tool_choice;
    struct md_bytes tool_name; /* MD_TOOLS_NAMED: one of tools */
    bool parallel_tool_calls;
    enum md_thinking thinking;
    struct md_bytes reasoning_effort;     /* a word for the template */
    struct md_bytes chat_template_kwargs; /* a JSON object: more variables for the template */
    struct md_bytes json_schema;          /* the answer is JSON of this schema; "{}": any object */
    struct md_bytes grammar;              /* the answer is of this GBNF grammar */
};

/* How an answer is to be read and what it is bound to; see text/form.h.  Counted; threads: any. */
struct md_chat_form;
struct md_chat_form *md_chat_form_ref(struct md_chat_form *f);
void md_chat_form_unref(struct md_chat_form *f); /* accepts NULL */
/* Is this control token part of the answer's text?  NULL: none is. */
bool md_chat_form_keeps(const struct md_chat_form *f, md_token token);

/* Sampling parameters; md_sample_defaults() gives those of the field (llama.cpp common/common.h).
 * Ranges are checked by md_sample_check: fronts call it to refuse a request by field. */
struct md_logit_bias {
    md_token token;
    float bias; /* added to the logit; -100 or lower bans, as OpenAI documents */
};

struct md_sample_params {
    float temperature;                /* [0, 100]; 0 (and anything below 1e-3) is greedy       */
    int32_t top_k;                    /* [0, 2^31); 0 = off                                    */
    float top_p;                      /* (0, 1]; 1 = off                                       */
    float min_p;                      /* [0, 1]; 0 = off                                       */
    float repeat_penalty;             /* (0, 10]; 1 = off                                */
    int32_t repeat_last_n;            /* [0, 32768] tokens the penalties look back       */
    float frequency_penalty;          /* [-2, 2]                                         */
    float presence_penalty;           /* [-2, 2]                                         */
    int64_t seed;                     /* [0, 2^32); -1 = a new random one each time      */
    const struct md_logit_bias *bias; /* borrowed until the sampler is made     */
    size_t bias_count;
    struct md_chat_form *form; /* borrowed until the sampler is made; NULL: nothing binds the answer */
};

struct md_sample_params md_sample_defaults(void);
/* MD_INVALID names the field: "temperature must be between 0 and 100, got -1". */
MD_MUST_USE enum md_status md_sample_check(const struct md_sample_params *p, int32_t vocab_count,
                                           struct md_err *err);

/* Growing list of tokens; the caller frees it with md_tokens_done. */
struct md_tokens {
    const struct md_alloc *alloc;
    md_token *ids;
    size_t count, cap;
};
MD_MUST_USE enum md_status md_tokens_append(struct md_tokens *t, const md_token *ids, size_t count,
                                            struct md_err *err);
void md_tokens_done(struct md_tokens *t);

struct md_text_ops {
    const char *name;
    void (*close)(struct md_text *t); /* frees t; accepts half-built */
    enum md_status (*tokenize)(const struct md_text *t, struct md_bytes text, bool add_special,
                               bool parse_special, struct md_tokens *ret_tokens, struct md_err *err);
    /* Appends the bytes of one token; control tokens give nothing unless special is true. */
    enum md_status (*piece)(const struct md_text *t, md_token token, bool special, struct md_buf *ret_bytes,
                            struct md_err *err);
    bool (*is_end)(const struct md_text *t, md_token token); /* end of generation */
    enum md_status (*render_chat)(const struct md_text *t, const struct md_chat_input *in,
                                  struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                  struct md_err *err);
    /* NULL: this text cannot. */
    enum md_status (*constrain)(const struct md_text *t, struct md_bytes json_schema, struct md_bytes grammar,
                                struct md_chat_form **ret_form, struct md_err *err);
    enum md_status (*sampler_open)(const struct md_text *t, const struct md_sample_params *params,
                                   struct md_sampler **ret_sampler, struct md_err *err);
};
struct md_text {
    const struct md_text_ops *ops;
    struct md_text_info info;
};

struct md_sampler_ops {
    void (*close)(struct md_sampler *s);
    void (*accept)(struct md_sampler *s, md_token token);
    enum md_status (*sample)(struct md_sampler *s, const float *logits, int32_t count, md_token *ret_token,
                             struct md_err *err);
};
struct md_sampler {
    const struct md_sampler_ops *ops;
};

void md_text_close(struct md_text *t); /* accepts NULL */

/* Append the tokens of `text`.
 *
 * add_special    let the model's rule put its first token (B049: at most once, never twice)
 * parse_special  "<|im_start|>" becomes its control token: for rendered templates, not for user text
 * MD_NO_MEMORY   ret_tokens as before */
MD_MUST_USE enum md_status md_text_tokenize(const struct md_text *t, struct md_bytes text, bool add_special,
                                            bool parse_special, struct md_tokens *ret_tokens,
                                            struct md_err *err);
MD_MUST_USE enum md_status md_text_piece(const struct md_text *t, md_token token, bool special,
                                         struct md_buf *ret_bytes, struct md_err *err);
bool md_text_is_end(const struct md_text *t, md_token token);

/* The model's own chat template over the messages, ready for md_text_tokenize with both flags set.
 *
 * ret_form        NULL when the answer is plain text and nothing binds it; else the caller's reference
 * MD_INVALID      the template refused (its own message), no messages, a role it does not know, tools it has no
 *                 place for, a schema or a grammar that cannot be used
 * MD_UNSUPPORTED  the model has no chat template, or it cannot bind answers
 * After a failure ret_prompt is as before. */
MD_MUST_USE enum md_status md_text_render_chat(const struct md_text *t, const struct md_chat_input *in,
                                               struct md_buf *ret_prompt, struct md_chat_form **ret_form,
                                               struct md_err *err);
/* The form of plain text that is bound by one of the two; the other is empty.  Errors as above. */
MD_MUST_USE enum md_status md_text_constrain(const struct md_text *t, struct md_bytes json_schema,
                                             struct md_bytes grammar, struct md_chat_form **ret_form,
                                             struct md_err *err);

MD_MUST_USE enum md_status md_sampler_open(const struct md_text *t, const struct md_sample_params *params,
                                           struct md_sampler **ret_sampler, struct md_err *err);
/* Tell the penalties of a token that was not sampled here (the end of the prompt). */
void md_sampler_accept(struct md_sampler *s, md_token token);
/* Choose from `count` logits (left unchanged) and accept the choice.
 * MD_INTERNAL: the logits hold a NaN; MD_INVALID: the request's own logit_bias bans every token, or every one
 * that its grammar allows. */
MD_MUST_USE enum md_status md_sampler_sample(struct md_sampler *s, const float *logits, int32_t count,
                                             md_token *ret_token, struct md_err *err);
void md_sampler_close(struct md_sampler *s); /* accepts NULL */

#ifdef __cplusplus
}
#endif
#endif
