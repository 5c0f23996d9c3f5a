/* llama_form.cc - forms by llama-common: it knows how the models of each template write thoughts and tool calls,
 * makes a parser for them, and a grammar from the tools or from a JSON schema.
 *
 * It learns this by running the template over samples.  That is done with our guarded program, so it ends. */
#include "adapters/llama/llama_form.h"

#include "adapters/llama/llama_gbnf.h"
#include "adapters/llama/llama_schema.h"
#include "adapters/llama/llama_template.h"

#include <json-schema-to-grammar.h>

#include <algorithm>
#include <new>
#include <regex>

namespace
{

constexpr size_t kSchemaBytesMax = 256 << 10, kGrammarBytesMax = 64 << 10;

std::string trimmed(const std::string &s)
{
    const char *blank = " \t\r\n";
    size_t a = s.find_first_not_of(blank);
    return a == s.npos ? std::string() : s.substr(a, s.find_last_not_of(blank) + 1 - a);
}

/* ---- a form ---- */

md_bytes kept_copy(md_arena *arena, const std::string &s)
{
    char *copy = md_arena_strndup(arena, s.data(), s.size());
    if (copy == nullptr)
        throw std::bad_alloc();
    return { copy, s.size() };
}

void form_close(md_chat_form *f)
{
    delete static_cast<md_llama_form *>(f);
}

void fill_parsed(const common_chat_msg &m, md_chat_parsed *ret)
{
    size_t bytes = m.content.size() + m.reasoning_content.size();
    for (const auto &c : m.tool_calls)
        bytes += c.name.size() + c.arguments.size() + sizeof(md_chat_call) + 64;
    md_arena_init(&ret->arena, nullptr, 2 * bytes + (1 << 16));
    ret->content = kept_copy(&ret->arena, m.content);
    ret->reasoning = kept_copy(&ret->arena, m.reasoning_content);
    ret->calls =
        static_cast<md_chat_call *>(md_arena_get(&ret->arena, m.tool_calls.size() + 1, sizeof(md_chat_call)));
    if (ret->calls == nullptr)
        throw std::bad_alloc();
    for (const auto &c : m.tool_calls)
        ret->calls[ret->call_count++] = { {},
                                          kept_copy(&ret->arena, c.name),
                                          kept_copy(&ret->arena, c.arguments) };
}

md_status form_parse(const md_chat_form *f, md_bytes text, bool whole, md_chat_parsed *ret, md_err *err)
{
    try {
        const std::string input = md_to_string(text);
        if (md_deepest(input, "[{", "]}") > kMdNestingMax)
            return md_fail(err, MD_INVALID, "the answer is nested deeper than %d levels", kMdNestingMax);
        fill_parsed(common_chat_parse(input, !whole, static_cast<const md_llama_form *>(f)->parser), ret);
        return MD_OK;
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "answer of %zu bytes", text.len);
    } catch (const std::exception &e) {
        return md_fail(err, MD_INVALID, "%.200s", e.what());
    } catch (...) {
        return md_fail(err, MD_INTERNAL, "the answer cannot be read");
    }
}

const md_chat_form_ops form_ops = { form_close, form_parse };

/* The lists of the C side, once the strings stand still. */
void finish_lists(md_llama_form &f)
{
    for (const std::string &s : f.marker_texts)
        f.marker_list.push_back({ s.data(), s.size() });
    for (const std::string &s : f.stop_texts)
        f.stop_list.push_back({ s.data(), s.size() });
    f.markers = f.marker_list.data();
    f.marker_count = f.marker_list.size();
    f.stops = f.stop_list.data();
    f.stop_count = f.stop_list.size();
    f.kept = f.kept_list.data();
    f.kept_count = f.kept_list.size();
    f.lead = { f.lead_text.data(), f.lead_text.size() };
}

std::unique_ptr<md_llama_form> new_form(const llama_vocab *vocab)
{
    auto f = std::make_unique<md_llama_form>();
    static_cast<md_chat_form &>(*f) = {};
    f->ops = &form_ops;
    f->refs = 1;
    f->vocab = vocab;
    return f;
}

/* ---- grammars ---- */

/* "{}" asks for any object, as OpenAI's json_object does; to the library it would mean any value. */
common_json read_schema(md_bytes text)
{
    if (text.len > kSchemaBytesMax)
        throw md_refused("the JSON schema has " + std::to_string(text.len) + " bytes, " +
                         std::to_string(kSchemaBytesMax) + " are allowed");
    common_json schema = common_json::parse_no_throw(md_to_string(text));
    if (schema.is_discarded() || !schema.is_object())
        throw md_refused("the JSON schema is not a JSON object");
    md_schema_cost().add(schema, text.len, true);
    if (schema.empty())
        schema["type"] = "object";
    return schema;
}

void check_grammar(const std::string &grammar)
{
    if (grammar.size() > kGrammarBytesMax)
        throw md_refused("the grammar has " + std::to_string(grammar.size()) + " bytes, " +
                         std::to_string(kGrammarBytesMax) + " are allowed");
    if (md_deepest(grammar, "(", ")") > kMdParenthesesMax)
        throw md_refused("the grammar has more than " + std::to_string(kMdParenthesesMax) +
                         " parentheses inside each other");
}

std::string grammar_of_schema(const common_json &schema)
{
    try {
        return json_schema_to_grammar(schema, true);
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const std::exception &e) {
        throw md_refused(std::string("the JSON schema cannot be used: ") + e.what());
    }
}

/* Parse it now, so that a bad one is told before the answer begins. */
void bind_form(md_llama_form &f, const std::string &grammar, const char *what)
{
    const std::string trouble = md_gbnf_trouble(grammar);
    if (!trouble.empty())
        throw md_refused(std::string(what) + " cannot be used: " + trouble);
    if (f.vocab == nullptr || grammar.empty())
        return;
    if (f.lazy) {
        std::vector<std::string> escaped;
        std::vector<const char *> patterns;
        for (const auto &t : f.triggers)
            escaped.push_back(t.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD ? regex_escape(t.value) : t.value);
        for (const std::string &s : escaped)
            patterns.push_back(s.c_str());
        f.grammar = llama_sampler_init_grammar_lazy_patterns(f.vocab, grammar.c_str(), "root",
                                                             patterns.data(), patterns.size(), nullptr, 0);
    } else {
        f.grammar = llama_sampler_init_grammar(f.vocab, grammar.c_str(), "root");
    }
    if (f.grammar == nullptr)
        throw md_refused(std::string(what) + " cannot be parsed");
}

/* Where a call is required the library's grammar still lets any text come before it, and a small model may never end
 * that.  The rule of this text is an optional one named until-N in the root. */
std::string without_preamble(const std::string &grammar)
{
    static const std::regex root("(^|\n)(root ::= [^\n]*)"), preamble(" until-[0-9]+\\?");
    std::smatch found;
    if (!std::regex_search(grammar, found, root))
        return grammar;
    std::string line = std::regex_replace(found.str(2), preamble, "");
    return found.prefix().str() + found.str(1) + line + found.suffix().str();
}

/* The grammar of a template begins with the generation prompt, which has been written already. */
void skip_lead(md_llama_form &f)
{
    if (f.grammar == nullptr || f.lazy || f.lead_text.empty())
        return;
    bool first = true;
    for (const llama_token token : common_tokenize(f.vocab, f.lead_text, false, true)) {
        const std::string piece = common_token_to_piece(f.vocab, token, true);
        const bool blank = !piece.empty() && piece[0] == ' ' && f.lead_text[0] != ' ';
        if (!first || !blank) /* some tokenizers put a blank before the first one */
            llama_sampler_accept(f.grammar, token);
        first = false;
    }
}

/* ---- what a template says ---- */

bool calls_may_come(const md_chat_input &in)
{
    return in.tools.len > 0 && in.tool_choice != MD_TOOLS_NONE;
}

/* Their patterns need not be ones that the library can express: where it cannot, it takes any string, as docs/serve.md
 * says, for agents bring such schemas and read the arguments themselves. */
void check_tools(const std::vector<common_chat_tool> &tools)
{
    md_schema_cost cost;
    for (const auto &t : tools) {
        const common_json schema = common_json::parse_no_throw(t.parameters);
        try {
            if (!schema.is_discarded())
                cost.add(schema, t.parameters.size(), false);
        } catch (const md_refused &e) {
            throw md_refused("tool '" + t.name + "': " + e.what());
        }
    }
}

common_json tools_json(const md_chat_input &in)
{
    if (in.tools.len == 0)
        return common_json();
    common_json all = common_json::parse(md_to_string(in.tools));
    for (size_t i = 0; i < all.size(); i++)
        for (const char *key : { "description", "parameters" }) {
            common_json &function = all[i].at("function");
            if (function.contains(key) && function.at(key).is_null())
                function.erase(std::string(key));
        }
    auto tools = common_chat_tools_parse_oaicompat(all);
    if (in.tool_choice == MD_TOOLS_NAMED) {
        const std::string name = md_to_string(in.tool_name);
        tools.erase(std::remove_if(tools.begin(), tools.end(), [&](const auto &t) { return t.name != name; }),
                    tools.end());
    }
    check_tools(tools);
    return common_chat_tools_to_json_oaicompat(tools);
}

autoparser::generation_params parser_input(const md_chat_template &t, const md_chat_input &in,
                                           const common_json &messages)
{
    autoparser::generation_params p;
    p.messages = messages;
    p.tools = tools_json(in);
    p.tool_choice = in.tools.len == 0 || in.tool_choice == MD_TOOLS_NONE ? COMMON_CHAT_TOOL_CHOICE_NONE
                    : in.tool_choice == MD_TOOLS_AUTO                    ? COMMON_CHAT_TOOL_CHOICE_AUTO
                                                                         : COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    if (in.json_schema.len > 0)
        p.json_schema = read_schema(in.json_schema);
    p.parallel_tool_calls = in.parallel_tool_calls;
    p.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    p.enable_thinking = in.thinking != MD_THINKING_OFF;
    p.add_generation_prompt = true;
    p.extra_context = t.extra_json(in);
    return p;
}

/* Once for each template: some hundred renderings of small samples. */
void analyze(md_chat_template &t)
{
    if (t.analysis != nullptr)
        return;
    auto found = std::make_unique<autoparser::autoparser>();
    md_start_bounds();
    found->analyze_template(t.common);
    autoparser::generation_params p;
    common_json message = common_json::object();
    message["role"] = "user";
    message["content"] = "x";
    p.messages = common_json::array();
    p.messages.push_back(message);
    p.add_generation_prompt = true;
    t.special = common_chat_try_specialized_template(t.common, t.common.src, p).has_value();
    t.analysis = std::move(found);
}

struct hidden_thinking { /* for as long as it lives */
    explicit hidden_thinking(bool hide)
    {
        md_hide_thinking(hide);
    }
    ~hidden_thinking()
    {
        md_hide_thinking(false);
    }
};

common_chat_params describe(md_chat_template &t, const md_chat_input &in, const common_json &messages)
{
    autoparser::generation_params p = parser_input(t, in, messages);
    hidden_thinking hide(in.thinking == MD_THINKING_DEFAULT);
    md_start_bounds();
    if (auto special = common_chat_try_specialized_template(t.common, t.common.src, p))
        return *special;
    if (calls_may_come(in) && (t.analysis->tools.format.mode == autoparser::tool_format::NONE ||
                               !t.common.caps.supports_tool_calls))
        throw md_refused("this model's chat template does not say how tools are called");
    common_chat_params d = autoparser::peg_generator::generate_parser(t.common, p, *t.analysis);
    d.supports_thinking = t.analysis->reasoning.mode != autoparser::reasoning_mode::NONE;
    if (d.supports_thinking) {
        d.thinking_start_tag = trimmed(t.analysis->reasoning.start);
        d.thinking_end_tags = { trimmed(t.analysis->reasoning.end) };
    }
    return d;
}

void add_markers(md_llama_form &f, const common_chat_params &d, const md_chat_input &in)
{
    std::vector<std::string> all = d.preserved_tokens;
    all.push_back(d.thinking_start_tag);
    all.insert(all.end(), d.thinking_end_tags.begin(), d.thinking_end_tags.end());
    all.insert(all.end(), d.additional_stops.begin(), d.additional_stops.end());
    bool words = true;
    for (const auto &t : d.grammar_triggers) {
        words = words && t.type == COMMON_GRAMMAR_TRIGGER_TYPE_WORD;
        all.push_back(t.value);
    }
    for (const std::string &s : all)
        if (!trimmed(s).empty())
            f.marker_texts.push_back(trimmed(s));
    f.markers_known =
        in.json_schema.len == 0 && (!calls_may_come(in) || (words && !d.grammar_triggers.empty()));
}

void add_kept(md_llama_form &f, const common_chat_params &d)
{
    if (f.vocab == nullptr)
        return;
    for (const std::string &s : d.preserved_tokens) {
        const auto tokens = common_tokenize(f.vocab, s, false, true);
        if (tokens.size() == 1)
            f.kept_list.push_back(tokens[0]);
    }
}

std::unique_ptr<md_llama_form> form_of(const common_chat_params &d, const llama_vocab *vocab,
                                       const md_chat_input &in)
{
    auto f = new_form(vocab);
    f->parser = common_chat_parser_params(d);
    f->parser.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;
    if (!d.parser.empty())
        f->parser.parser.load(d.parser);
    f->tools = calls_may_come(in);
    f->lead_text = d.generation_prompt;
    f->lazy = d.grammar_lazy;
    f->triggers = d.grammar_triggers;
    f->think_start = d.thinking_start_tag;
    f->think_ends = d.thinking_end_tags;
    if (d.additional_stops.size() > MD_FORM_STOPS_MAX)
        throw md_refused("this model's chat template wants more stop strings than there is room for");
    f->stop_texts = d.additional_stops;
    add_markers(*f, d, in);
    add_kept(*f, d);
    if (in.grammar.len > 0) {
        const std::string grammar = md_to_string(in.grammar);
        check_grammar(grammar);
        bind_form(*f, grammar, "the grammar");
    } else {
        const bool required = calls_may_come(in) && in.tool_choice != MD_TOOLS_AUTO;
        bind_form(*f, required ? without_preamble(d.grammar) : d.grammar,
                  in.json_schema.len > 0 ? "the grammar of this JSON schema" : "the grammar of these tools");
        skip_lead(*f);
    }
    finish_lists(*f);
    return f;
}

void check_request(const md_chat_input &in)
{
    if ((in.tools.len > 0 && in.tool_choice != MD_TOOLS_NONE) + (in.json_schema.len > 0) +
            (in.grammar.len > 0) >
        1)
        throw md_refused("tools, a JSON schema and a grammar cannot be used together");
}

} // namespace

md_llama_form::~md_llama_form()
{
    if (grammar != nullptr)
        llama_sampler_free(grammar);
}

md_chat_form *md_form_of_template(md_chat_template &t, const llama_vocab *vocab, const md_chat_input &in,
                                  const common_json &messages)
{
    const bool asks = calls_may_come(in) || in.json_schema.len > 0 || in.grammar.len > 0;
    check_request(in);
    try {
        analyze(t);
        if (!asks && !t.special && t.analysis->reasoning.mode == autoparser::reasoning_mode::NONE &&
            !t.analysis->content.is_always_wrapped())
            return nullptr;
        const common_chat_params d = describe(t, in, messages);
        if (calls_may_come(in) && in.tool_choice != MD_TOOLS_AUTO && d.grammar.empty())
            throw md_refused("this model's chat template gives no way to require a tool call");
        return form_of(d, vocab, in).release();
    } catch (const std::bad_alloc &) {
        throw;
    } catch (const md_refused &) {
        throw;
    } catch (const std::exception &e) {
        if (!asks)
            return nullptr; /* its answers are plain text to us, as they were before anyone asked */
        throw md_refused(std::string("this model's chat template cannot be used for that: ") + e.what());
    }
}

md_status md_llama_constrain(const llama_vocab *vocab, md_bytes json_schema, md_bytes grammar,
                             md_chat_form **ret_form, md_err *err)
{
    try {
        auto f = new_form(vocab);
        f->markers_known = true;
        if (json_schema.len > 0 && grammar.len > 0)
            throw md_refused("a JSON schema and a grammar cannot be used together");
        std::string text = md_to_string(grammar);
        if (json_schema.len > 0)
            text = grammar_of_schema(read_schema(json_schema));
        else
            check_grammar(text);
        bind_form(*f, text, json_schema.len > 0 ? "the grammar of this JSON schema" : "the grammar");
        finish_lists(*f);
        *ret_form = f.release();
        return MD_OK;
    } catch (const std::bad_alloc &) {
        return md_fail(err, MD_NO_MEMORY, "grammar");
    } catch (const std::exception &e) {
        return md_fail(err, MD_INVALID, "%s", e.what());
    } catch (...) {
        return md_fail(err, MD_INTERNAL, "grammar");
    }
}
