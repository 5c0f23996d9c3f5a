/* llama_schema.cc - see llama_schema.h.  Goes through a schema in the order of the library's SchemaConverter::visit. */
#include "adapters/llama/llama_schema.h"

#include <json-schema-to-grammar.h>

#include <algorithm>
#include <set>

namespace
{

/* A second or so each, on one busy core; schemas of real tools stay far below. */
constexpr int kDepthMax = 256, kReferenceHopsMax = 64, kParenthesesMax = 64;
constexpr double kVisitsMax = 20000, kOptionalMax = 256, kChoicesMax = 1000, kCopiedMax = 32 << 20;
constexpr size_t kPatternsMax = 256;

[[noreturn]] void refuse(const std::string &why)
{
    throw md_refused("the JSON schema " + why);
}

std::string number(double n)
{
    return std::to_string(static_cast<long long>(n));
}

const common_json *member(const common_json &node, const char *key)
{
    return node.is_object() && node.contains(key) ? &node.at(key) : nullptr;
}

/* The library would read a pattern with more by as much recursion. */
void check_parentheses(const common_json &pattern)
{
    int depth = 0, most = 0;
    if (pattern.is_string())
        for (char c : pattern.get<std::string>()) {
            depth += c == '(' ? 1 : c == ')' && depth > 0 ? -1 : 0;
            most = std::max(most, depth);
        }
    if (most > kParenthesesMax)
        refuse("has a pattern with more than " + std::to_string(kParenthesesMax) +
               " parentheses inside each other");
}

} // namespace

struct md_schema_reader {
    md_schema_cost &cost;
    const common_json &root;
    const size_t bytes;
    std::set<std::string> seen = {};

    /* What a reference of this document names; NULL: nothing, which the library says itself. */
    const common_json *target(const common_json &ref) const
    {
        if (!ref.is_string())
            return nullptr;
        const std::string path = ref.get<std::string>();
        if (path.compare(0, 2, "#/") != 0)
            return nullptr;
        const common_json *at = &root;
        for (size_t from = 2, end; at != nullptr && from <= path.size(); from = end + 1) {
            end = std::min(path.find('/', from), path.size());
            const std::string name = path.substr(from, end - from);
            if (at->is_array())
                at = !name.empty() && name.size() < 6 && name.find_first_not_of("0123456789") == name.npos &&
                             std::stoul(name) < at->size()
                         ? &at->at(std::stoul(name))
                         : nullptr;
            else
                at = member(*at, name.c_str());
        }
        return at;
    }

    void count_choices(size_t n, double times)
    {
        cost.choices += times * static_cast<double>(n) * static_cast<double>(n);
        if (cost.choices > kChoicesMax * kChoicesMax)
            refuse("has too many alternatives: one enum, anyOf or oneOf may have " + number(kChoicesMax) +
                   ", several together fewer (the last one has " + std::to_string(n) + ")");
    }

    void count_optional(size_t n, double times)
    {
        const double d = static_cast<double>(n);
        cost.optional += times * d * d * d;
        if (cost.optional > kOptionalMax * kOptionalMax * kOptionalMax)
            refuse("has too many optional properties: one object may have " + number(kOptionalMax) +
                   ", several together fewer (the last one has " + std::to_string(n) +
                   "); name them in \"required\" where they are");
    }

    void each(const common_json &list, double times, int depth)
    {
        if (list.is_array() || list.is_object())
            for (const auto &item : list.items())
                visit(item.value(), times, depth + 1);
    }

    size_t optional_of(const common_json &node) const
    {
        const common_json *properties = member(node, "properties"), *required = member(node, "required");
        std::set<std::string> names;
        if (required != nullptr && required->is_array())
            for (const auto &name : required->items())
                if (name.value().is_string())
                    names.insert(name.value().get<std::string>());
        size_t n = 0;
        if (properties != nullptr && properties->is_object())
            for (const auto &property : properties->items())
                n += names.count(property.key()) == 0;
        return n;
    }

    void visit_object(const common_json &node, double times, int depth)
    {
        const common_json *more = member(node, "additionalProperties");
        count_optional(optional_of(node) + (more != nullptr && more->is_object()), times);
        if (const common_json *properties = member(node, "properties"))
            each(*properties, times, depth);
        if (more != nullptr)
            visit(*more, times, depth + 1);
    }

    /* One of allOf: its properties become those of the whole.  The library follows references here as they come. */
    size_t visit_component(const common_json *part, double times, int depth)
    {
        for (int hops = 0; part != nullptr && part->is_object() && part->contains("$ref"); hops++) {
            if (hops == kReferenceHopsMax)
                refuse("has references under allOf that lead to each other more than " +
                       std::to_string(kReferenceHopsMax) + " times, or in a circle");
            part = target(part->at("$ref"));
        }
        const common_json *properties = part != nullptr ? member(*part, "properties") : nullptr;
        if (properties == nullptr)
            return 0;
        each(*properties, times, depth);
        return properties->size();
    }

    void visit_all_of(const common_json &list, double times, int depth)
    {
        size_t optional = 0;
        if (list.is_array())
            for (const auto &part : list.items()) {
                const common_json *any = member(part.value(), "anyOf");
                if (any == nullptr || !any->is_array()) {
                    visit_component(&part.value(), times, depth);
                    continue;
                }
                for (const auto &one : any->items())
                    optional += visit_component(&one.value(), times, depth);
            }
        count_optional(optional, times);
    }

    /* type: one of the node's; empty: it gives none. */
    void visit_typed(const common_json &node, const std::string &type, double times, int depth)
    {
        const bool object = type.empty() || type == "object", array = type.empty() || type == "array";
        if (const common_json *values = member(node, "enum")) {
            count_choices(values->size(), times);
        } else if (object && (node.contains("properties") || node.contains("additionalProperties"))) {
            visit_object(node, times, depth);
        } else if ((object || type == "string") && node.contains("allOf")) {
            visit_all_of(node.at("allOf"), times, depth);
        } else if (array && (node.contains("items") || node.contains("prefixItems"))) {
            const common_json &items = node.at(node.contains("items") ? "items" : "prefixItems");
            if (items.is_array())
                each(items, times, depth);
            else
                visit(items, times, depth + 1);
        } else if ((type.empty() || type == "string") && node.contains("pattern")) {
            check_parentheses(node.at("pattern"));
            if (++cost.patterns > kPatternsMax)
                refuse("has more than " + std::to_string(kPatternsMax) + " patterns");
        }
    }

    void visit_reference(const common_json &ref, int depth)
    {
        const common_json *to = target(ref);
        if (to == nullptr || !seen.insert(ref.get<std::string>()).second)
            return; /* it is made once */
        cost.copied += static_cast<double>(bytes);
        if (cost.copied > kCopiedMax)
            refuse("has too many references for its size: " + std::to_string(seen.size()) + " and " +
                   std::to_string(bytes) + " bytes (at most " + number(kCopiedMax) + " as a product)");
        visit(*to, 1, depth + 1);
    }

    void visit(const common_json &node, double times, int depth)
    {
        if (depth > kDepthMax)
            refuse("is nested deeper than " + std::to_string(kDepthMax) + " levels");
        cost.visits += times;
        if (cost.visits > kVisitsMax)
            refuse("has more than " + number(kVisitsMax) + " parts, one in a list of types counted for each");
        if (!node.is_object())
            return;
        const common_json *types = member(node, "type");
        if (const common_json *ref = member(node, "$ref")) {
            visit_reference(*ref, depth);
        } else if (node.contains("oneOf") || node.contains("anyOf")) {
            const common_json &list = node.at(node.contains("oneOf") ? "oneOf" : "anyOf");
            count_choices(list.size(), times);
            each(list, times, depth);
        } else if (types != nullptr && types->is_array()) {
            visit_types(node, *types, times, depth);
        } else if (!node.contains("const")) {
            visit_typed(node, types != nullptr && types->is_string() ? types->get<std::string>() : "", times,
                        depth);
        }
    }

    void visit_types(const common_json &node, const common_json &types, double times, int depth)
    {
        std::set<std::string> names;
        for (const auto &type : types.items()) {
            const std::string name = type.value().is_string() ? type.value().get<std::string>() : "";
            if (!names.insert(name).second)
                refuse("lists the type '" + name + "' twice");
        }
        for (const std::string &name : names)
            if (!node.contains("const"))
                visit_typed(node, name, times * (name == "null" ? 0 : 1), depth);
    }
};

void md_schema_cost::add(const common_json &schema, size_t bytes)
{
    md_schema_reader{ *this, schema, bytes }.visit(schema, 1, 0);
}

static std::string grammar_of_pattern(const common_json &pattern)
{
    common_json schema = common_json::object();
    schema["type"] = "string";
    schema["pattern"] = pattern;
    return json_schema_to_grammar(schema, true);
}

/* The library says so on stderr only; where it drops a pattern, any string is its rule. */
static bool is_dropped(const common_json &pattern)
{
    return ("\n" + grammar_of_pattern(pattern) + "\n").find("\nroot ::= string\n") != std::string::npos;
}

void md_schema_check_patterns(const common_json &schema)
{
    if (!schema.is_object() && !schema.is_array())
        return;
    for (const auto &[key, value] : schema.items()) {
        if (schema.is_object() && key == "pattern" && value.is_string() && is_dropped(value))
            refuse("has a pattern that answers cannot be bound to: '" + value.get<std::string>() +
                   "' (it must begin with ^, end with $, and use neither \\d \\w \\s nor look-ahead)");
        const bool is_data = key == "const" || key == "enum" || key == "default" || key == "examples";
        if (!schema.is_object() || !is_data)
            md_schema_check_patterns(value);
    }
}
