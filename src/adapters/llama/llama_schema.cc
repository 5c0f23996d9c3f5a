/* llama_schema.cc - see llama_schema.h.  Goes through a schema in the order of the library's SchemaConverter::visit. */
#include "adapters/llama/llama_schema.h"

#include <json-schema-to-grammar.h>

#include <algorithm>
#include <set>

namespace
{

/* A second or so each, on one busy core; schemas of real tools stay far below. */
constexpr int kDepthMax = 256, kReferenceHopsMax = 64;
constexpr double kVisitsMax = 20000, kOptionalMax = 256, kChoicesMax = 1000, kCopiedMax = 32 << 20;
constexpr size_t kPatternsMax = 256, kMembersMax = 4096, kKeyBytesMax = 256, kPathBytesMax = 4096;
constexpr double kNodesMax = 100000;

[[noreturn]] void refuse(const std::string &why)
{
    throw md_refused("the JSON schema " + why);
}

const char *const kTypes[] = { "object", "array", "string", "number", "integer", "boolean", "null" };

std::string number(double n)
{
    return std::to_string(static_cast<long long>(n));
}

const common_json *member(const common_json &node, const char *key)
{
    return node.is_object() && node.contains(key) ? &node.at(key) : nullptr;
}

/* The library says so on stderr only; where it drops a pattern, any string is its rule. */
bool is_dropped(const common_json &pattern)
{
    common_json schema = common_json::object();
    schema["type"] = "string";
    schema["pattern"] = pattern;
    return ("\n" + json_schema_to_grammar(schema, true) + "\n").find("\nroot ::= string\n") !=
           std::string::npos;
}

} // namespace

struct md_schema_reader {
    md_schema_cost &cost;
    const common_json &root;
    const size_t bytes;
    const bool strict;
    std::set<std::string> named = {}, seen = {};

    /* What a reference of this document names; NULL: nothing. */
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

    /* Everything, schema or not, for the library looks for references everywhere, copies the whole for each, and names
     * its rules by the keys on the way to them, which it reads by recursion. */
    void survey(const common_json &node, size_t path_bytes, int depth)
    {
        if (!node.is_object() && !node.is_array())
            return;
        if (depth > kDepthMax)
            refuse("is nested deeper than " + std::to_string(kDepthMax) + " levels");
        if (node.is_object() &&
            node.size() > kMembersMax) /* and looking at them takes their number squared */
            refuse("has an object of " + std::to_string(node.size()) + " members, at most " +
                   std::to_string(kMembersMax) + " are allowed");
        cost.nodes += static_cast<double>(node.size());
        if (cost.nodes > kNodesMax)
            refuse("has more than " + number(kNodesMax) + " members and items");
        if (const common_json *ref = member(node, "$ref"))
            survey_reference(*ref);
        for (size_t i = 0; node.is_array() && i < node.size(); i++)
            survey(node.at(i), path_bytes, depth + 1);
        if (node.is_object())
            for (const auto &[key, value] : node.items()) {
                if (key.size() > kKeyBytesMax || path_bytes + key.size() > kPathBytesMax)
                    refuse("has a name of " + std::to_string(key.size()) + " bytes, at most " +
                           std::to_string(kKeyBytesMax) + " are allowed, and " +
                           std::to_string(kPathBytesMax) + " of those inside each other");
                survey(value, path_bytes + key.size(), depth + 1);
            }
    }

    void survey_reference(const common_json &ref)
    {
        const std::string name = ref.is_string() ? ref.get<std::string>() : ref.dump();
        if (target(ref) == nullptr)
            refuse("has the reference '" + name.substr(0, 100) +
                   "', which names nothing in it: references are like #/$defs/name");
        if (!named.insert(name).second)
            return;
        cost.copied += static_cast<double>(bytes);
        if (cost.copied > kCopiedMax)
            refuse("has too many references for its size: " + std::to_string(named.size()) + " and " +
                   std::to_string(bytes) + " bytes (at most " + number(kCopiedMax) + " as a product)");
    }

    void count_choices(size_t n)
    {
        cost.choices += static_cast<double>(n) * static_cast<double>(n);
        if (cost.choices > kChoicesMax * kChoicesMax)
            refuse("has too many alternatives: one enum, anyOf or oneOf may have " + number(kChoicesMax) +
                   ", several together fewer (the last one has " + std::to_string(n) + ")");
    }

    void count_optional(size_t n)
    {
        const double d = static_cast<double>(n);
        cost.optional += d * d * d;
        if (cost.optional > kOptionalMax * kOptionalMax * kOptionalMax)
            refuse("has too many optional properties: one object may have " + number(kOptionalMax) +
                   ", several together fewer (the last one has " + std::to_string(n) +
                   "); name them in \"required\" where they are");
    }

    /* The library takes an object for a list as well, and a list for an object. */
    static const common_json &list(const common_json &node, const char *key)
    {
        if (!node.at(key).is_array())
            refuse(std::string("has a \"") + key + "\" that is no array");
        return node.at(key);
    }

    static const common_json *properties_of(const common_json &node)
    {
        const common_json *properties = member(node, "properties");
        if (properties != nullptr && !properties->is_object())
            refuse("has \"properties\" that are no object");
        return properties;
    }

    void each(const common_json &list, int depth)
    {
        if (list.is_array() || list.is_object())
            for (const auto &item : list.items())
                visit(item.value(), depth + 1);
    }

    size_t optional_of(const common_json &node) const
    {
        const common_json *properties = properties_of(node), *required = member(node, "required");
        std::set<std::string> names;
        if (required != nullptr && required->is_array())
            for (const auto &name : required->items())
                if (name.value().is_string())
                    names.insert(name.value().get<std::string>());
        size_t n = 0;
        if (properties != nullptr)
            for (const auto &property : properties->items())
                n += names.count(property.key()) == 0;
        return n;
    }

    void visit_object(const common_json &node, int depth)
    {
        const common_json *more = member(node, "additionalProperties");
        count_optional(optional_of(node) + (more != nullptr && more->is_object()));
        if (const common_json *properties = properties_of(node))
            each(*properties, depth);
        if (more != nullptr)
            visit(*more, depth + 1);
    }

    /* One of allOf: its properties become those of the whole.  The library follows references here as they come. */
    size_t visit_component(const common_json *part, int depth)
    {
        for (int hops = 0; member(*part, "$ref") != nullptr; hops++) {
            if (hops == kReferenceHopsMax)
                refuse("has references under allOf that lead to each other more than " +
                       std::to_string(kReferenceHopsMax) + " times, or in a circle");
            part = target(part->at("$ref"));
        }
        const common_json *properties = properties_of(*part), *values = member(*part, "enum");
        if (properties == nullptr && values != nullptr)
            count_choices(values->size());
        if (properties == nullptr)
            return 0;
        each(*properties, depth);
        return properties->size();
    }

    void visit_all_of(const common_json &parts, int depth)
    {
        size_t optional = 0;
        for (const auto &part : parts.items()) {
            if (member(part.value(), "anyOf") == nullptr)
                visit_component(&part.value(), depth);
            else
                for (const auto &one : list(part.value(), "anyOf").items())
                    optional += visit_component(&one.value(), depth);
        }
        count_optional(optional);
    }

    /* type: one of the node's; empty: it gives none. */
    void visit_typed(const common_json &node, const std::string &type, int depth)
    {
        const bool object = type.empty() || type == "object", array = type.empty() || type == "array";
        const common_json *more = member(node, "additionalProperties");
        const bool bound = more != nullptr && !(more->is_boolean() && more->get<bool>());
        if (const common_json *values = member(node, "enum")) {
            count_choices(values->size());
        } else if (object && (node.contains("properties") || bound)) {
            visit_object(node, depth);
        } else if ((object || type == "string") && node.contains("allOf")) {
            visit_all_of(list(node, "allOf"), depth);
        } else if (array && (node.contains("items") || node.contains("prefixItems"))) {
            const common_json &items = node.at(node.contains("items") ? "items" : "prefixItems");
            if (items.is_array())
                each(items, depth);
            else
                visit(items, depth + 1);
        } else if ((type.empty() || type == "string") && node.contains("pattern")) {
            check_pattern(node.at("pattern"));
            if (++cost.patterns > kPatternsMax)
                refuse("has more than " + std::to_string(kPatternsMax) + " patterns");
        }
    }

    void check_pattern(const common_json &pattern) const
    {
        if (pattern.is_string() && md_deepest(pattern.get<std::string>(), "(", ")") > kMdParenthesesMax)
            refuse("has a pattern with more than " + std::to_string(kMdParenthesesMax) +
                   " parentheses inside each other");
        if (strict && pattern.is_string() && is_dropped(pattern))
            refuse("has a pattern that answers cannot be bound to: '" + pattern.get<std::string>() +
                   "' (it must begin with ^, end with $, and use neither \\d \\w \\s nor look-ahead)");
    }

    void visit_reference(const common_json &ref, int depth)
    {
        if (seen.insert(ref.get<std::string>()).second) /* it is made once */
            visit(*target(ref), depth + 1);
    }

    void visit(const common_json &node, int depth)
    {
        if (depth > kDepthMax)
            refuse("is nested deeper than " + std::to_string(kDepthMax) + " levels");
        cost.visits += 1;
        if (cost.visits > kVisitsMax)
            refuse("has more than " + number(kVisitsMax) + " parts, one in a list of types counted for each");
        if (!node.is_object())
            return;
        const common_json *types = member(node, "type");
        if (const common_json *ref = member(node, "$ref")) {
            visit_reference(*ref, depth);
        } else if (node.contains("oneOf") || node.contains("anyOf")) {
            const common_json &ways = list(node, node.contains("oneOf") ? "oneOf" : "anyOf");
            count_choices(ways.size());
            each(ways, depth);
        } else if (types != nullptr && types->is_array()) {
            visit_types(node, *types, depth);
        } else if (!node.contains("const")) {
            visit_typed(node, types != nullptr && types->is_string() ? types->get<std::string>() : "", depth);
        }
    }

    void visit_types(const common_json &node, const common_json &types, int depth)
    {
        std::set<std::string> names;
        for (const auto &type : types.items()) {
            const std::string name = type.value().is_string() ? type.value().get<std::string>() : "";
            if (std::find(std::begin(kTypes), std::end(kTypes), name) == std::end(kTypes))
                refuse("lists '" + name.substr(0, 100) + "' among its types, which is none");
            if (!names.insert(name).second)
                refuse("lists the type '" + name + "' twice");
        }
        for (const std::string &name : names)
            if (name != "null" && !node.contains("const"))
                visit_typed(node, name, depth);
    }
};

void md_schema_cost::add(const common_json &schema, size_t bytes, bool strict)
{
    md_schema_reader reader{ *this, schema, bytes, strict };
    reader.survey(schema, 0, 0);
    reader.visit(schema, 0);
}
