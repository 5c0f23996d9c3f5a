/* llama_chat.cc - chat templates by llama-common's Jinja, run over the messages as they are.
 *
 * The ready-made entry (common_chat_templates_apply) prepares messages for tool parsers and may rewrite
 * them; a prompt must be what the model's template says, so the parsed template is executed directly.
 *
 * The runtime has no limits of its own.  We put a statement of ours at the start of each loop and macro
 * body and at the start of the program; it throws something that is no std::exception, which passes
 * through every handler of the runtime.  What llama-common learns about a template (llama_form.cc) it learns by
 * running this same guarded program. */
#include "adapters/llama/llama_template.h"

#include <log.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>

namespace
{

constexpr double kCpuSeconds = 2;          /* of this thread; a long chat takes milliseconds */
constexpr int64_t kRangeMax = 10000;       /* the runtime makes a list of all of it first */
constexpr ptrdiff_t kStackBytes = 1 << 20; /* of 8 MiB; recursion of macros ends here */
constexpr unsigned kChecksPerClock = 16;   /* asking for the CPU time is a system call */

struct bounds {
    double deadline;
    const char *stack;
    unsigned checks;
};
thread_local bounds limit;

double cpu_seconds()
{
    timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

/* Not shared with the other files: gcc's sanitizer takes a thread_local of another file for a null pointer. */
thread_local bool hide_thinking = false;

} // namespace

void md_hide_thinking(bool hide)
{
    hide_thinking = hide;
}

void md_start_bounds()
{
    limit.deadline = cpu_seconds() + kCpuSeconds;
    limit.stack = static_cast<const char *>(__builtin_frame_address(0));
    limit.checks = 0;
}

namespace
{

struct guard final : jinja::statement {
    std::string type() const override
    {
        return "Guard";
    }
    jinja::value execute_impl(jinja::context &) override
    {
        if (limit.stack - static_cast<const char *>(__builtin_frame_address(0)) > kStackBytes)
            throw md_stopped{ "calls itself too deeply" };
        if (++limit.checks % kChecksPerClock == 0 && cpu_seconds() > limit.deadline)
            throw md_stopped{ "ran too long" };
        return jinja::mk_val<jinja::value_undefined>();
    }
};

jinja::value bounded_range(const jinja::func_args &args)
{
    args.ensure_count(1, 3);
    args.ensure_vals<jinja::value_int, jinja::value_int, jinja::value_int>(true, false, false);
    int64_t first = args.get_pos(0)->as_int(), start = 0, stop = first, step = 1;
    if (args.count() > 1) {
        start = first;
        stop = args.get_pos(1)->as_int();
    }
    if (args.count() > 2)
        step = args.get_pos(2)->as_int();
    if (step == 0)
        throw jinja::raised_exception("range() with a step of 0");
    auto out = jinja::mk_val<jinja::value_array>();
    for (int64_t i = start, n = 0; step > 0 ? i < stop : i > stop; n++) {
        if (n == kRangeMax)
            throw md_stopped{ "asks for a range() of more than 10000" };
        out->push_back(jinja::mk_val<jinja::value_int>(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return out;
}

/* First statement of the program: every scope is copied from the outermost one. */
struct prologue final : jinja::statement {
    std::string type() const override
    {
        return "Prologue";
    }
    jinja::value execute_impl(jinja::context &ctx) override
    {
        ctx.set_val("range", jinja::mk_val<jinja::value_func>("range", bounded_range));
        if (hide_thinking)
            ctx.set_val("enable_thinking", jinja::mk_val<jinja::value_undefined>("enable_thinking"));
        return jinja::mk_val<jinja::value_undefined>();
    }
};

void add_guards(jinja::statements &body);

void add_guards(jinja::statement *s)
{
    auto front = [](jinja::statements &body) { body.insert(body.begin(), std::make_unique<guard>()); };
    if (auto *loop = dynamic_cast<jinja::for_statement *>(s)) {
        add_guards(loop->body);
        add_guards(loop->default_block);
        front(loop->body);
    } else if (auto *macro = dynamic_cast<jinja::macro_statement *>(s)) {
        add_guards(macro->body);
        front(macro->body);
    } else if (auto *cond = dynamic_cast<jinja::if_statement *>(s)) {
        add_guards(cond->body);
        add_guards(cond->alternate);
    } else if (auto *set = dynamic_cast<jinja::set_statement *>(s)) {
        add_guards(set->body);
    } else if (auto *filter = dynamic_cast<jinja::filter_statement *>(s)) {
        add_guards(filter->body);
    } else if (auto *call = dynamic_cast<jinja::call_statement *>(s)) {
        add_guards(call->body);
    }
}

void add_guards(jinja::statements &body)
{
    for (auto &s : body)
        add_guards(s.get());
}

/* The runtime wraps a message in a drawing of the source; people want the message. */
std::string own_words(const std::string &what)
{
    static const char raised[] = "Jinja Exception: ", error[] = "Error: ";
    size_t at = what.rfind(raised);
    if (at != std::string::npos)
        return what.substr(at + sizeof raised - 1);
    at = what.rfind(error);
    std::string text = at != std::string::npos ? what.substr(at + sizeof error - 1) : what;
    while (!text.empty() && text.front() == '\n')
        text.erase(0, 1);
    return text.substr(0, text.find('\n'));
}

std::string_view trimmed(std::string_view s)
{
    const char *blank = " \t\r\n\v\f";
    size_t a = s.find_first_not_of(blank);
    return a == s.npos ? std::string_view() : s.substr(a, s.find_last_not_of(blank) + 1 - a);
}

} // namespace

int md_deepest(const std::string &s, const char *open, const char *close)
{
    int depth = 0, most = 0;
    for (char c : s) {
        if (c != '\0' && strchr(open, c) != nullptr)
            most = std::max(most, ++depth);
        else if (c != '\0' && strchr(close, c) != nullptr)
            depth = std::max(0, depth - 1);
    }
    return most;
}

std::string md_one_line(std::string s)
{
    for (char &c : s)
        c = c == '\n' ? ' ' : c;
    return s;
}

std::string md_to_string(md_bytes b)
{
    return b.len == 0 ? std::string() : std::string(static_cast<const char *>(b.data), b.len);
}

void md_chat_template::parse(const char *source)
{
    jinja::lexer lexer;
    auto tokens = lexer.tokenize(source);
    jinja::program program = jinja::parse_from_tokens(tokens);
    add_guards(program.body);
    program.body.insert(program.body.begin(), std::make_unique<prologue>());
    common.src = tokens.source;
    common.prog = std::move(program);
    md_start_bounds();
    common.caps = jinja::caps_get(common.prog); /* renders a few samples */
}

/* Of the brackets of a JSON text: it is read and copied by recursion.  Those in its strings are none. */
static int json_depth(const std::string &s)
{
    int depth = 0, most = 0;
    bool in_string = false;
    for (size_t i = 0; i < s.size(); i++)
        if (in_string && s[i] == '\\')
            i++;
        else if (s[i] == '"')
            in_string = !in_string;
        else if (!in_string && (s[i] == '[' || s[i] == '{'))
            most = std::max(most, ++depth);
        else if (!in_string && (s[i] == ']' || s[i] == '}'))
            depth--;
    return most;
}

/* Arguments are text in OpenAI's form; many templates want to look into them. */
static common_json tool_calls_json(const md_chat_template &t, md_bytes calls, size_t index)
{
    common_json list = common_json::parse(md_to_string(calls));
    for (size_t i = 0; i < list.size(); i++) {
        common_json &function = list[i]["function"];
        if (!function.contains("arguments") || !function["arguments"].is_string()) {
            if (!t.common.caps.supports_object_arguments)
                function["arguments"] = function["arguments"].dump();
            continue;
        }
        if (!t.common.caps.supports_object_arguments)
            continue;
        const std::string text = function["arguments"].get<std::string>();
        if (json_depth(text) > kMdNestingMax)
            throw md_refused("the arguments of tool call " + std::to_string(i + 1) + " of message " +
                             std::to_string(index + 1) + " are nested deeper than " +
                             std::to_string(kMdNestingMax) + " levels");
        common_json parsed = common_json::parse_no_throw(text);
        if (parsed.is_discarded())
            throw md_refused("the arguments of tool call " + std::to_string(i + 1) + " of message " +
                             std::to_string(index + 1) + " are not valid JSON");
        function["arguments"] = parsed;
    }
    return list;
}

common_json md_chat_template::messages_json(const md_chat_message *messages, size_t count) const
{
    const bool typed = common.caps.supports_typed_content && !common.caps.supports_string_content;
    common_json list = common_json::array();
    for (size_t i = 0; i < count; i++) {
        const md_chat_message &m = messages[i];
        common_json one = common_json::object();
        one["role"] = md_to_string(m.role);
        if (typed) {
            common_json part = common_json::object();
            part["type"] = "text";
            part["text"] = md_to_string(m.content);
            common_json parts = common_json::array();
            parts.push_back(part);
            one["content"] = parts;
        } else {
            one["content"] = md_to_string(m.content);
        }
        if (m.reasoning_content.len > 0)
            one["reasoning_content"] = md_to_string(m.reasoning_content);
        if (m.name.len > 0)
            one["name"] = md_to_string(m.name);
        if (m.tool_call_id.len > 0)
            one["tool_call_id"] = md_to_string(m.tool_call_id);
        if (m.tool_calls.len > 0)
            one["tool_calls"] = tool_calls_json(*this, m.tool_calls, i);
        list.push_back(one);
    }
    return list;
}

common_json md_chat_template::extra_json(const md_chat_input &in) const
{
    common_json extra = in.chat_template_kwargs.len > 0
                            ? common_json::parse(md_to_string(in.chat_template_kwargs))
                            : common_json::object();
    if (in.reasoning_effort.len > 0)
        extra["reasoning_effort"] = md_to_string(in.reasoning_effort);
    return extra;
}

std::string md_chat_template::run(const md_chat_input &in, const common_json &messages)
{
    jinja::context ctx(common.src);
    common_json vars = common_json::object();
    vars["messages"] = messages;
    vars["bos_token"] = common.bos_tok;
    vars["eos_token"] = common.eos_tok;
    vars["add_generation_prompt"] = in.add_generation_prompt;
    if (in.tools.len > 0)
        vars["tools"] = common_json::parse(md_to_string(in.tools));
    if (in.thinking != MD_THINKING_DEFAULT)
        vars["enable_thinking"] = in.thinking == MD_THINKING_ON;
    common_json extra = extra_json(in);
    for (const auto &[key, value] : extra.items())
        vars[key] = value;
    if (in.reasoning_effort.len > 0)
        jinja::caps_apply_reasoning_effort(ctx, md_to_string(in.reasoning_effort));
    if (extra.contains("preserve_reasoning") && extra["preserve_reasoning"].is_boolean())
        jinja::caps_apply_preserve_reasoning(ctx, extra["preserve_reasoning"].get<bool>());
    jinja::global_from_json(ctx, vars, false);
    md_start_bounds();
    jinja::runtime runtime(ctx);
    return jinja::runtime::gather_string_parts(runtime.execute(common.prog))->as_string().str();
}

/* std::string::find takes time squared on text that repeats itself; memmem does not. */
static size_t find_text(const std::string &in, std::string_view what, size_t from)
{
    if (what.empty())
        return from;
    const void *at = memmem(in.data() + from, in.size() - from, what.data(), what.size());
    return at == nullptr ? std::string::npos : size_t(static_cast<const char *>(at) - in.data());
}

/* A template that knows no such role often just writes nothing for it: the model would answer without what
 * it was told.  Assistants are left out: templates cut their old reasoning on purpose. */
static const md_chat_message *left_out(const std::string &prompt, const md_chat_message *messages,
                                       size_t count)
{
    size_t from = 0;
    for (size_t i = 0; i < count; i++) {
        std::string_view role(static_cast<const char *>(messages[i].role.data), messages[i].role.len);
        if (role != "system" && role != "developer" && role != "user")
            continue;
        std::string_view text;
        if (messages[i].content.len > 0)
            text = trimmed({ static_cast<const char *>(messages[i].content.data), messages[i].content.len });
        size_t at = find_text(prompt, text, from);
        if (at == std::string::npos)
            at = find_text(prompt, text, 0);
        if (at == std::string::npos)
            return &messages[i];
        from = at + text.size();
    }
    return nullptr;
}

/* A template without a place for tools renders on without them, and the model never hears of them. */
static void check_tools_are_there(const std::string &prompt, const md_chat_input &in)
{
    if (in.tools.len == 0 || in.tool_choice == MD_TOOLS_NONE)
        return;
    common_json tools = common_json::parse(md_to_string(in.tools));
    for (size_t i = 0; i < tools.size(); i++) {
        std::string name = tools[i].at("function").at("name").get<std::string>();
        if (find_text(prompt, name, 0) == std::string::npos)
            throw md_refused("this model's chat template has no place for tools: it leaves out '" + name +
                             "'");
    }
}

static md_status failed(md_err *err, const std::string &what)
{
    return md_fail(err, MD_INVALID, "the chat template refused: %s", own_words(what).c_str());
}

md_status md_chat_template_open(const char *source, const char *bos, const char *eos,
                                md_chat_template **ret_template, md_err *err)
{
    md_llama_common_quiet();
    try {
        auto t = std::make_unique<md_chat_template>(bos, eos);
        try {
            t->parse(source);
        } catch (const md_stopped &s) {
            t->broken = s.why;
        } catch (const std::bad_alloc &) {
            throw;
        } catch (const std::exception &e) {
            t->broken = "cannot be parsed: " + own_words(e.what());
        }
        *ret_template = t.release();
        return MD_OK;
    } catch (...) {
        return md_fail(err, MD_NO_MEMORY, "chat template");
    }
}

void md_chat_template_close(md_chat_template *t)
{
    delete t;
}

md_status md_chat_template_render(md_chat_template *t, const llama_vocab *vocab, const md_chat_input *in,
                                  md_buf *ret_prompt, md_chat_form **ret_form, md_err *err)
{
    try {
        std::lock_guard<std::mutex> hold(t->lock);
        if (!t->broken.empty())
            return md_fail(err, MD_INVALID, "the model's chat template %s", t->broken.c_str());
        const common_json messages = t->messages_json(in->messages, in->count);
        const std::string prompt = t->run(*in, messages);
        if (const md_chat_message *m = left_out(prompt, in->messages, in->count))
            return md_fail(err, MD_INVALID, "the chat template leaves out the message %zu of role '%.*s'",
                           size_t(m - in->messages) + 1, int(m->role.len),
                           static_cast<const char *>(m->role.data));
        check_tools_are_there(prompt, *in);
        md_status s = md_buf_append(ret_prompt, prompt.data(), prompt.size(), err);
        if (s == MD_OK)
            *ret_form = md_form_of_template(*t, vocab, *in, messages);
        return s;
    } catch (const md_refused &e) {
        return md_fail(err, MD_INVALID, "%s", e.what());
    } catch (const md_stopped &s) {
        return md_fail(err, MD_INVALID, "the chat template %s", s.why);
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "chat template");
    } catch (const std::exception &e) {
        return failed(err, e.what());
    } catch (...) {
        return failed(err, "it failed in an unknown way");
    }
}

md_status md_llama_tokenize(const llama_vocab *vocab, const char *text, int32_t len, md_token *tokens,
                            int32_t max, bool parse_special, int32_t *ret_count, md_err *err)
{
    try {
        *ret_count = llama_tokenize(vocab, text, len, tokens, max, false, parse_special);
        return MD_OK;
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "tokens of %d bytes", len);
    } catch (const std::exception &e) {
        return md_fail(err, MD_INVALID, "tokenize: %s", e.what());
    } catch (...) {
        return md_fail(err, MD_INTERNAL, "tokenize");
    }
}

void md_llama_common_quiet(void)
{
    static std::once_flag once;
    std::call_once(once, [] { common_log_set_verbosity_thold(-1); });
}
