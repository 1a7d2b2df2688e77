// Matching, one rule at one node, and the driver that applies a set until nothing fits.
#include "rewrite/rewrite.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>

#include "ir/graph_data.h"
#include "rlx/ops.h"

namespace rlx {

Node Match::operator[](Node pattern) const {
  for (auto& [id, node] : bound_)
    if (id == pattern.id()) return node;
  throw InternalError("match: the pattern has no node " + pattern.text());
}

std::optional<double> uniform_value(Node node) {
  while (node.is(ops::expand) || node.is(ops::reshape)) node = node.input(0);
  if (!node.is(constant_op) || node.dtype() == DType::C64) return {};
  auto& value = node.attrs<ConstantAttrs>().value;
  if (value.size() < 1 || value.size() > 64) return {};
  std::size_t width = size_of(value.dtype());
  for (std::int64_t i = 1; i < value.size(); ++i)
    if (!std::equal(value.bytes(), value.bytes() + width, value.bytes() + std::size_t(i) * width)) return {};
  return value.at(0);
}

// ---------------------------------------------------------------------------------------------- matching

class Matcher {
 public:
  explicit Matcher(bool explains) : explains_(explains) {}

  bool match(Node pattern, Node node) {
    Pairs todo{{pattern, node}};
    return solve(todo);
  }

  Match found;
  std::string why;

 private:
  using Pairs = std::vector<std::pair<Node, Node>>;

  // Matches all pairs, trying both orders of each commutative op.
  bool solve(Pairs& todo) {
    while (!todo.empty()) {
      auto [pattern, node] = todo.back();
      todo.pop_back();
      if (Node* bound = find(pattern)) {
        if (!same(*bound, node))
          return fail(node, [&] { return "the same node as " + bound->text() + " for " + pattern.name(); });
        continue;
      }
      if (!fits(pattern, node)) return false;
      found.bound_.emplace_back(pattern.id(), node);
      if (pattern.is(any_op) || pattern.is(constant_op)) continue;
      auto &want = pattern.inputs(), &have = node.inputs();
      if (pattern.op().commutative && want.size() == 2) {
        Pairs swapped = todo;
        std::size_t depth = found.bound_.size();
        todo.insert(todo.end(), {{want[1], have[1]}, {want[0], have[0]}});
        if (solve(todo)) return true;
        found.bound_.resize(depth);
        swapped.insert(swapped.end(), {{want[1], have[0]}, {want[0], have[1]}});
        todo = std::move(swapped);
        continue;
      }
      for (std::size_t i = want.size(); i-- > 0;) todo.emplace_back(want[i], have[i]);
    }
    return true;
  }

  // Whether the node looks like the pattern's node, its inputs left aside.
  bool fits(Node pattern, Node node) {
    if (pattern.is(any_op)) return true;
    if (pattern.is(constant_op)) {
      double wanted = pattern.attrs<ConstantAttrs>().value.at(0);
      auto value = uniform_value(node);
      return (value && *value == wanted && std::signbit(*value) == std::signbit(wanted)) ||
             fail(node, [&] { return fmt::format("the number {}", wanted); });
    }
    if (&pattern.op() == &node.op() && pattern.inputs().size() == node.inputs().size()) return true;
    return fail(node, [&] { return fmt::format("{} of {}", pattern.op().name, pattern.inputs().size()); });
  }

  Node* find(Node pattern) {
    for (auto& [id, node] : found.bound_)
      if (id == pattern.id()) return &node;
    return nullptr;
  }
  template <class Wanted>
  bool fail(Node node, Wanted&& wanted) {
    if (explains_ && why.empty()) why = fmt::format("wanted {}, got {} {}", wanted(), node.op().name, node.text());
    return false;
  }

  bool explains_;
};

Node instantiate(Node pattern, const Graph& graph, const std::function<Node(Node)>& stands_for) {
  if (pattern.is_number()) return pattern;
  if (pattern.is(any_op)) return stands_for(pattern);
  if (pattern.is(constant_op)) return pattern.attrs<ConstantAttrs>().value.at(0);
  Nodes inputs;
  for (auto& in : pattern.inputs()) inputs.push_back(instantiate(in, graph, stands_for));
  return Graph(graph).make(pattern.op(), std::move(inputs), pattern.attrs());
}

std::string origin_by(Node node, std::string_view rule) {
  std::string origin = node.origins().empty() ? "" : node.origins().front();
  return fmt::format("{}{}by {}", origin, origin.empty() ? "" : ", ", rule);
}

namespace {

using Uses = std::function<int(Node)>;

// Whether nothing outside the match uses the nodes inside it.
bool used_once(Node pattern, const Match& match, const Uses& uses, bool is_root = true) {
  if (pattern.is(any_op) || pattern.is(constant_op)) return true;
  if (!is_root && uses(match[pattern]) > 1) return false;
  return std::ranges::all_of(pattern.inputs(), [&](Node in) { return used_once(in, match, uses, false); });
}

// What the rule turns `at` into, or none; then `why` not.
Node apply(const Rule& rule, Node at, const Uses& uses, std::string* why = nullptr) {
  auto no = [&](auto&& reason) {
    if (why) *why = reason();
    return none;
  };
  Matcher matcher(why != nullptr);
  if (!matcher.match(rule.pattern, at)) return no([&] { return matcher.why; });
  if ((rule.flags & kSingleUse) && !used_once(rule.pattern, matcher.found, uses))
    return no([] { return "something else uses a node inside it"; });
  if (rule.when && !rule.when(matcher.found)) return no([] { return "it matches, but its condition does not hold"; });
  Graph graph = at.graph();
  std::string saved = graph.origin();
  graph.set_origin(origin_by(at, rule.name));
  Node out = none;
  try {
    if (auto* to = std::get_if<Node>(&rule.replacement))
      out = instantiate(*to, graph, [&](Node free) { return matcher.found[free]; });
    else
      out = std::get<1>(rule.replacement)(matcher.found);
    if (out.is_number()) out = expand(graph.constant(out.number(), at.dtype()), at.shape());
  } catch (const UserError& e) {  // as where it changes the dtype: the rule is not for these types
    graph.set_origin(std::move(saved));
    return no([&] { return e.what(); });
  }
  graph.set_origin(std::move(saved));
  if (!out) return no([] { return "it matches, but does not fit the attributes"; });
  if (out.type() == at.type()) return out;
  return no(
      [&] { return fmt::format("it would give {}, and the node is {}", to_string(out.type()), to_string(at.type())); });
}

std::vector<int> count_uses(const Graph& graph, const std::vector<bool>& needed) {
  std::vector<int> out(std::size_t(graph.size()));
  for (int id = 0; id < graph.size(); ++id)
    if (needed[std::size_t(id)])
      for (auto& in : graph.node(id).inputs()) ++out[std::size_t(in.id())];
  for (auto& n : graph.outputs()) ++out[std::size_t(n.id())];
  return out;
}

// The rules by the op at their root.
class Dispatch {
 public:
  Dispatch(const RuleSet& set, unsigned allowed) {
    for (auto& rule : set.rules)
      if (!(rule.flags & kInexact & ~allowed)) by_op_[&rule.pattern.op()].push_back(&rule);
  }
  template <class F>
  void for_each(const OpDef& op, F&& f) const {
    for (const OpDef* key : {&op, &any_op})
      if (auto it = by_op_.find(key); it != by_op_.end())
        for (const Rule* rule : it->second)
          if (f(*rule)) return;
  }

 private:
  std::unordered_map<const OpDef*, std::vector<const Rule*>> by_op_;
};

constexpr int kMostSteps = 100;  // rules at one node, and rounds over the graph

// Copies the graph once, each node rewritten until no rule fits it. In a round that changes nothing the counts of uses
// are exact; before, they are never too low.
Graph rewrite_round(const Graph& source, const Dispatch& dispatch, Fired& fired) {
  std::vector<int> source_uses = count_uses(source, needed_nodes(source)), uses;
  auto use_count = [&](Node n) { return std::size_t(n.id()) < uses.size() ? uses[std::size_t(n.id())] : 0; };
  auto add_uses = [&](Node n, int more) {
    if (uses.size() <= std::size_t(n.id())) uses.resize(std::size_t(n.id()) + 1);
    uses[std::size_t(n.id())] += more;
  };
  auto settle = [&](Node copy, Node original) -> Replaced {
    Graph graph = copy.graph();
    int users = source_uses[std::size_t(original.id())];
    std::string path;
    Replaced out;
    Node at = copy;
    add_uses(at, users);
    for (int steps = 0;; ++steps) {
      Node next = none;
      int before = graph.size();
      const Rule* by = nullptr;
      dispatch.for_each(at.op(), [&](const Rule& rule) {
        next = apply(rule, at, use_count);
        by = &rule;
        return next && !same(next, at);
      });
      if (!next || same(next, at)) return out;
      if (steps == kMostSteps)
        throw InternalError(fmt::format("rewrite: rules that never end at {}: …{}", original.text(),
                                        path.substr(path.size() - std::min<std::size_t>(path.size(), 200))));
      path += " " + by->name;
      ++fired[by->name];
      for (int id = before; id < graph.size(); ++id)
        for (auto& in : graph.node(id).inputs()) add_uses(in, 1);
      add_uses(next, users);
      out = {at = next, out.rule.empty() ? by->name : out.rule + ", by " + by->name};
    }
  };
  return rebuild(source, settle, Keep::Needed).graph;
}

}  // namespace

Rewritten rewrite(const Graph& graph, const RuleSet& rules, unsigned allowed) {
  Dispatch dispatch(rules, allowed);
  Rewritten out{graph, {}};
  for (int round = 0;; ++round) {
    Fired fired;
    Graph next = rewrite_round(out.graph, dispatch, fired);
    if (fired.empty()) return out;
    for (auto& [name, times] : fired) out.fired[name] += times;
    out.graph = std::move(next);
    if (round == kMostSteps)
      throw InternalError(fmt::format("rewrite: rules that never end, the last: {}", fired.begin()->first));
  }
}

std::string explain(Node at, const Rule& rule) {
  std::string why;
  Graph graph = at.graph();
  std::vector<int> uses = count_uses(graph, needed_nodes(graph));
  bool fires = bool(apply(
      rule, at, [&](Node n) { return uses[std::size_t(n.id())]; }, &why));
  std::string equation = expression(rule.pattern);
  if (auto* to = std::get_if<Node>(&rule.replacement)) equation += " -> " + expression(*to);
  return fmt::format("{}, {}, {} at {} {}{}", rule.name, equation, fires ? "fires" : "does not fire", at.op().name,
                     at.text(), fires ? "" : ": " + why);
}

RuleSet operator+(RuleSet a, const RuleSet& b) {
  a.patterns.insert(a.patterns.end(), b.patterns.begin(), b.patterns.end());
  a.rules.insert(a.rules.end(), b.rules.begin(), b.rules.end());
  return a;
}

}  // namespace rlx
