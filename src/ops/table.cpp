// The list of the built-in ops, those a user registers, and what is written from the list.
#include "ops/table.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "ops/define.h"

namespace rlx {
namespace {

std::map<std::string, OpDef, std::less<>>& registry() {
  static std::map<std::string, OpDef, std::less<>> ops;
  return ops;
}
std::mutex registry_mutex;

struct Helper {
  std::string_view gives, name, signature, doc;
};
#define HELPER_ROW(gives, name, params, doc) {#gives, #name, #params, doc},  // a second macro, so that DEFAULT is expanded
#define HELPER(...) HELPER_ROW(__VA_ARGS__)
constexpr Helper kHelpers[] = {
#include "ops/ops.def"
};

std::string signature(const OpDef& op) { return fmt::format("{}{}", op.name, op.signature); }

}  // namespace

std::span<const OpDef* const> builtin_ops() {
  static constexpr const OpDef* kOps[] = {
#define OP(kind, name, ...) &ops::name,
#include "ops/ops.def"
  };
  return kOps;
}

const OpDef* find_op(std::string_view name) {
  static const std::map<std::string_view, const OpDef*> builtin = [] {
    std::map<std::string_view, const OpDef*> out;
    for (const OpDef* op : builtin_ops()) out.emplace(op->name, op);
    for (const OpDef* op : {&input_op, &param_op, &constant_op, &any_op}) out.emplace(op->name, op);
    return out;
  }();
  if (auto it = builtin.find(name); it != builtin.end()) return it->second;
  std::lock_guard lock(registry_mutex);
  auto it = registry().find(name);
  return it == registry().end() ? nullptr : &it->second;
}

const OpDef& register_op(OpDef row) {
  if (const char* missing = missing_column(row))
    throw UserError(fmt::format("[{}] cannot be registered: its row lacks .{}", row.name, missing));
  if (find_op(row.name)) throw UserError(fmt::format("[{}] is already an op", row.name));
  std::lock_guard lock(registry_mutex);
  auto it = registry().emplace(std::string(row.name), row).first;
  it->second.name = it->first;
  return it->second;
}

std::span<const std::string_view> enum_names(AmpClass) {
  static constexpr std::string_view kNames[] = {"by_kind", "compute", "reduction", "elementwise", "movement", "boundary"};
  return kNames;
}

std::string ops_markdown() {
  constexpr const char* kKinds[] = {"leaf", "elementwise", "reduce", "movement", "contract", "index", "random", "pool", "quant", "composite"};
  std::string out =
      "# Ops\n\nWritten from the op table by `rlx_table --docs`; a test checks that it is current.\n\n"
      "| op | kind | precision | what it gives | formula | gradient | error (ulp) |\n|---|---|---|---|---|---|---|\n";
  auto code = [](std::string_view s) {
    std::string text;
    for (char c : s) text += c == '|' ? "\\|" : std::string(1, c);
    return text.empty() ? text : "`" + text + "`";
  };
  for (const OpDef* op : builtin_ops()) {
    std::string gradient = !op->grad ? "through its body" : op->grad_text.empty() ? "own rule" : op->grad_text == "none" || op->grad_text == "none; none" ? "none" : code(op->grad_text);
    out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", code(signature(*op)), kKinds[int(op->kind)],
                       enum_names(AmpClass())[std::size_t(amp_class(*op))], op->doc, code(op->formula_text), gradient,
                       op->kind == Kind::Elementwise ? fmt::format("{}", op->ulp) : "");
  }
  out += "\n## Helpers\n\n| function | what it gives |\n|---|---|\n";
  for (auto& h : kHelpers) out += fmt::format("| {} | {} |\n", code(fmt::format("{}{}", h.name, h.signature)), h.doc);
  return out;
}

std::string ops_header() {
  std::string out =
      "// The builder functions, one an op; each makes a node of the graph its inputs are of and throws UserError that\n"
      "// names the op, what it got and what it expected.\n"
      "// Written from the op table by `rlx_table --header`; a test checks that it is current.\n"
      "#pragma once\n#include \"rlx/op_attrs.h\"\n#include \"rlx/op_def.h\"\n\nnamespace rlx {\n\n";
  for (const OpDef* op : builtin_ops()) out += fmt::format("/// {}\nNode {};\n", op->doc, signature(*op));
  for (auto& h : kHelpers) out += fmt::format("/// {}\n{} {}{};\n", h.doc, h.gives, h.name, h.signature);
  out += "\nnamespace ops {  // the rows: n.is(ops::matmul)\n";
  for (const OpDef* op : builtin_ops()) out += fmt::format("extern const OpDef {};\n", op->name);
  out += "}  // namespace ops\n\ninline Node operator-(Node x) { return neg(x); }\n";
  for (auto [symbol, name] : std::initializer_list<std::pair<const char*, const char*>>{
           {"+", "add"}, {"-", "sub"}, {"*", "mul"}, {"/", "div"}, {">", "greater"}, {"<", "less"}, {">=", "greater_equal"},
           {"<=", "less_equal"}, {"==", "equal"}, {"!=", "not_equal"}, {"&", "logical_and"}, {"|", "logical_or"}})
    out += fmt::format("inline Node operator{}(Node a, Node b) {{ return {}(a, b); }}\n", symbol, name);
  return out + "\n}  // namespace rlx\n";
}

}  // namespace rlx
