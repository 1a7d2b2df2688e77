// Internal to the ops: the builders as ops.def declares them, and what a row becomes in its family's file. Everyone
// else includes rlx/ops.h, which is written from the table and has the docs.
#pragma once
#include "ir/graph_data.h"
#include "ops/scalar.h"
#include "rlx/op_attrs.h"

namespace rlx {

#define OP(kind, name, params, ...) Node name params;
#define HELPER(gives, name, params, doc) gives name params;
#define DEFAULT(...)  // the definition has it
#include "ops/ops.def"

/// A node without inputs.
inline Node make(const OpDef& op, Graph graph, Attrs attrs) { return graph.make(op, {}, std::move(attrs)); }

namespace ops {
#define OP(kind, name, ...) extern const OpDef name;
#include "ops/ops.def"
}  // namespace ops

inline Node operator-(Node x) { return neg(x); }
inline Node operator+(Node a, Node b) { return add(a, b); }
inline Node operator-(Node a, Node b) { return sub(a, b); }
inline Node operator*(Node a, Node b) { return mul(a, b); }
inline Node operator/(Node a, Node b) { return div(a, b); }
inline Node operator>(Node a, Node b) { return greater(a, b); }
inline Node operator<(Node a, Node b) { return less(a, b); }
inline Node operator>=(Node a, Node b) { return greater_equal(a, b); }
inline Node operator<=(Node a, Node b) { return less_equal(a, b); }
inline Node operator==(Node a, Node b) { return equal(a, b); }
inline Node operator!=(Node a, Node b) { return not_equal(a, b); }
inline Node operator&(Node a, Node b) { return logical_and(a, b); }
inline Node operator|(Node a, Node b) { return logical_or(a, b); }

// The gradient to each input, in the names of GradArgs.
#define GRAD(...) [](const GradArgs& args) -> Nodes GRAD_BODY(__VA_ARGS__)
#define GRAD_BODY(...)                                                \
  {                                                                   \
    [[maybe_unused]] auto& [in, x, a, b, c, y, dy, attrs, op] = args; \
    return {__VA_ARGS__};                                             \
  }
constexpr std::nullptr_t by_body = nullptr;

// The row ops::name, from `name_rules` and what ops.def says of it, and the builder function.
#define DEFINE_OP(kind, name, params, inputs, attrs_type, values, doc)                                      \
  constinit const OpDef ops::name = complete(                                                               \
      signed_as(name##_rules, Kind::kind, #name, #params, &kAttrsInfo<attrs_type>, doc));                   \
  Node name params { return make(ops::name, UNPACK inputs, attrs_type{UNPACK values}); }
#define UNPACK(...) __VA_ARGS__

// How many inputs the parameters give: each Node one, a Nodes any number.
consteval int count_of(std::string_view text, std::string_view word) {
  int n = 0;
  for (auto at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}
consteval OpDef signed_as(OpDef rules, Kind kind, std::string_view name, std::string_view signature, const AttrsInfo* attrs,
                          std::string_view doc) {
  rules.kind = kind, rules.name = name, rules.signature = signature, rules.attrs = attrs, rules.doc = doc;
  rules.backward = kind == Kind::Composite && name.find("_backward") != name.npos;
  if (rules.max_inputs == 0) {  // a row with optional inputs says so itself
    int nodes = count_of(signature, "Node "), variadic = count_of(signature, "Nodes ");
    rules.min_inputs = nodes + variadic;
    rules.max_inputs = variadic ? -1 : nodes;
  }
  return rules;
}
// The compiler shows the throw it runs into, and the row of ops.def.
consteval OpDef complete(OpDef op) {
  std::string_view missing = missing_column(op) ? missing_column(op) : "";
  if (missing == "grad") throw "the op's rules lack .grad (say none for an input without one)";
  if (missing == "formula") throw "the op's rules lack .formula";
  if (missing == "formula or eval") throw "the op's rules lack .formula or .eval";
  if (missing == "body") throw "the op's rules lack .body";
  if (missing == "infer") throw "the op's rules lack .infer";
  if (missing == "source or eval") throw "the op's rules lack .source or .eval";
  if (missing == "eval") throw "the op's rules lack .eval";
  if (!missing.empty()) throw "the op's row lacks a name, an input or a doc";
  return op;
}

}  // namespace rlx
