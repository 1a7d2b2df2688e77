// The text form of a graph: one line a node, exact, read back to an equal graph.
//
//     rlx-graph 1
//     %0 "x" : f32[batch,4] = input() {type = f32[batch,4]}
//     %1 : f32[batch,4] = exp(%0) # model.cpp:12
//     outputs %1
#include <fmt/format.h>

#include <charconv>

#include "ir/graph_data.h"

namespace rlx {
namespace {

constexpr std::string_view kHeader = "rlx-graph 1";

std::string node_text(Node node) {
  std::string out = fmt::format("%{}", node.id());
  for (auto& name : node.names()) out += " " + quoted(name);
  if (!node.graph().is_pattern()) out += " : " + to_string(node.type());
  out += fmt::format(" = {}(", node.op().name);
  for (std::size_t i = 0; i < node.inputs().size(); ++i) out += fmt::format("{}%{}", i ? ", " : "", node.inputs()[i].id());
  out += ")";
  if (auto attrs = node.attrs().text(); !attrs.empty()) out += " {" + attrs + "}";
  for (auto& origin : node.origins()) out += " # " + quoted(origin);
  return out;
}

// Reads one line from left to right.
class Line {
 public:
  Line(std::string_view text, int number) : rest_(text), number_(number) {}

  [[noreturn]] void fail(const std::string& why) const { throw UserError(fmt::format("graph text, line {}: {}", number_, why)); }
  bool done() {
    skip();
    return rest_.empty();
  }
  bool accept(std::string_view token) {
    skip();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) fail(fmt::format("expected '{}' at '{}'", token, rest_.substr(0, 30)));
  }
  std::string_view until(std::string_view stops) {
    skip();
    std::size_t end = rest_.find_first_of(stops);
    auto out = rest_.substr(0, end);
    rest_.remove_prefix(out.size());
    while (!out.empty() && out.back() == ' ') out.remove_suffix(1);
    return out;
  }
  int id() {
    expect("%");
    int value = -1;
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc()) fail("expected a node number after '%'");
    rest_.remove_prefix(std::size_t(end - rest_.data()));
    return value;
  }
  bool at(char c) {
    skip();
    return !rest_.empty() && rest_.front() == c;
  }
  std::string string() {
    skip();
    std::size_t end = 1;
    while (end < rest_.size() && rest_[end] != '"') end += rest_[end] == '\\' ? 2 : 1;
    if (end >= rest_.size()) fail("a quoted name does not end");
    std::string out;
    parse_field(rest_.substr(0, end + 1), out);
    rest_.remove_prefix(end + 1);
    return out;
  }
  // What stands between a brace that was read and the one that closes it.
  std::string_view braces() {
    int depth = 1;
    bool in_string = false;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      char c = rest_[i];
      if (in_string && c == '\\') ++i;
      else if (c == '"') in_string = !in_string;
      else if (!in_string && c == '{') ++depth;
      else if (!in_string && c == '}' && --depth == 0) {
        auto out = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return out;
      }
    }
    fail("a '{' does not end");
  }

 private:
  void skip() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  std::string_view rest_;
  int number_;
};

struct Parser {
  Graph graph;
  std::vector<Node> nodes;  // by the number in the text

  Node lookup(Line& line) {
    int id = line.id();
    if (id < 0 || id >= int(nodes.size())) line.fail(fmt::format("%{} is not defined above", id));
    return nodes[std::size_t(id)];
  }
  void outputs(Line& line) {
    Nodes out;
    while (!line.done()) {
      out.push_back(lookup(line));
      if (!line.done()) line.expect(",");
    }
    graph.set_outputs(std::move(out));
  }
  void node(Line& line) {
    if (line.id() != int(nodes.size())) line.fail(fmt::format("nodes are numbered in order: expected %{}", nodes.size()));
    std::vector<std::string> names;
    while (line.at('"')) names.push_back(line.string());
    line.expect(":");
    Type declared = type_from_string(line.until("="));
    line.expect("=");
    auto op_name = line.until("(");
    const OpDef* op = find_op(op_name);
    if (!op) line.fail(fmt::format("there is no op '{}'", op_name));
    line.expect("(");
    Nodes inputs;
    while (!line.accept(")")) {
      if (!inputs.empty()) line.expect(",");
      inputs.push_back(lookup(line));
    }
    Attrs attrs = op->attrs->parse(line.accept("{") ? line.braces() : "");
    std::vector<std::string> origins;
    while (line.accept("#")) origins.push_back(line.string());
    if (!line.done()) line.fail("something follows the node");
    nodes.push_back(make(line, *op, std::move(inputs), std::move(attrs), names));
    finish(line, declared, names, origins);
  }
  Node make(Line& line, const OpDef& op, Nodes inputs, Attrs attrs, const std::vector<std::string>& names) {
    if (&op == &any_op) line.fail("'any' stands in patterns only");
    if (&op == &constant_op) return graph.constant(attrs.as<ConstantAttrs>().value, names.empty() ? "" : names.front());
    if (&op != &input_op && &op != &param_op) return graph.make(op, std::move(inputs), std::move(attrs));
    if (names.size() != 1) line.fail("a leaf has one name");
    auto& type = attrs.as<LeafAttrs>().type;
    return &op == &input_op ? graph.input(names[0], type) : graph.param(names[0], type);
  }
  void finish(Line& line, const Type& declared, const std::vector<std::string>& names, const std::vector<std::string>& origins) {
    Node made = nodes.back();
    if (made.id() + 1 != int(nodes.size())) line.fail("an equal node stands above");
    if (made.type() != declared) line.fail(fmt::format("[{}] has type {}, the text says {}", made.op().name, to_string(made.type()), to_string(declared)));
    auto& data = graph.data().nodes[std::size_t(made.id())];
    data.names = names;
    data.origins = origins;
  }
};

}  // namespace

std::string Graph::text() const {
  std::string out(kHeader);
  out += "\n";
  if (data_->next_stream) out += fmt::format("streams {}\n", data_->next_stream);
  for (int id = 0; id < size(); ++id) out += node_text(node(id)) + "\n";
  out += "outputs";
  for (std::size_t i = 0; i < outputs().size(); ++i) out += fmt::format("{} %{}", i ? "," : "", outputs()[i].id());
  return out + "\n";
}

Graph Graph::parse(std::string_view text) {
  Parser parser;
  int number = 0;
  bool ended = false;
  while (!text.empty()) {
    auto end = text.find('\n');
    Line line(text.substr(0, end), ++number);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (number == 1) {
      if (!line.accept(kHeader) || !line.done()) line.fail(fmt::format("expected '{}'", kHeader));
      continue;
    }
    if (line.done()) continue;
    if (ended) line.fail("something follows the outputs");
    try {
      if (line.accept("outputs")) parser.outputs(line), ended = true;
      else if (line.accept("streams")) parse_field(line.until(" "), parser.graph.data().next_stream);
      else parser.node(line);
    } catch (const Error& e) {
      if (std::string_view(e.what()).starts_with("graph text")) throw;
      line.fail(e.what());
    }
  }
  if (!ended) throw UserError(number == 0 ? "graph text: it is empty" : fmt::format("graph text, line {}: it ends without an 'outputs' line", number));
  return parser.graph;
}

}  // namespace rlx
