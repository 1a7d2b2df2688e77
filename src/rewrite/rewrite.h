// Rewrites as data: a rule is a name, a pattern and a replacement, both built with the ops' own functions on a pattern
// graph, so it reads as its equation. The driver checks that shape and dtype stay the same.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <variant>

#include "rlx/op_def.h"

namespace rlx {

// ---------------------------------------------------------------------------------------------- rules

/// The real nodes that a pattern's nodes stand for.
class Match {
 public:
  /// Throws InternalError where the pattern has no such node.
  Node operator[](Node pattern) const;

 private:
  friend class Matcher;
  std::vector<std::pair<int, Node>> bound_;
};

/// A node of the pattern's graph, or a function that gives a real one, or none where the rule does not fit after all.
using Replacement = std::variant<Node, std::function<Node(const Match&)>>;

enum RuleFlags : unsigned {
  kExact = 0,
  kInexact = 1,    // not the same for NaN, infinity, signed zero or rounding: only where asked for
  kSingleUse = 2,  // only where nothing else uses the nodes inside the pattern
};

struct Rule {
  std::string name;
  Node pattern;  // attributes match whatever they are (`when` asks); a number matches a constant of that value, also
                 // expanded
  Replacement replacement;
  unsigned flags = kExact;
  std::function<bool(const Match&)> when = nullptr;
};

struct RuleSet {
  std::vector<Graph> patterns;  // what the rules' nodes live in
  std::vector<Rule> rules;
};
RuleSet operator+(RuleSet a, const RuleSet& b);

/// How often each rule fired.
using Fired = std::map<std::string, int>;
struct Rewritten {
  Graph graph;  // the source itself where nothing fired
  Fired fired;
};
/// Applies the rules until none fits, inexact ones only where `allowed` has kInexact. Names and origins stay; what a
/// rule makes has the origin of the node it replaces and "by <rule>". Throws InternalError that names rules which never
/// end.
Rewritten rewrite(const Graph& graph, const RuleSet& rules, unsigned allowed = kExact);
/// Why a rule does not fire at a node, or that it does. It may add the replacement to the node's graph.
std::string explain(Node at, const Rule& rule);
/// Builds a pattern for real in `graph`, its free nodes as `stands_for` says; a bare number stays one.
Node instantiate(Node pattern, const Graph& graph, const std::function<Node(Node)>& stands_for);

// ---------------------------------------------------------------------------------------------- what passes share

/// What takes the place of a node, and by which rule or pass. No node: the copy stays.
struct Replaced {
  Node node = none;
  std::string rule = {};
};
enum class Keep { Needed, All };  // nodes that an output needs, and leaves; or every node
struct Rebuilt {
  Graph graph;
  Nodes copies;  // by the id in the source: what stands for each node now; none where it was not kept
};
/// Copies a graph in order, each node handed to `f` on its new inputs together with the source's node. Outputs keep
/// their places, nodes their names and origins; leaves stay even when nothing needs them.
Rebuilt rebuild(const Graph& source, const std::function<Replaced(Node copy, Node source)>& f,
                Keep keep = Keep::Needed);
/// Replaces the composites for which `which` holds by their bodies, again in what the bodies are made of.
Rewritten expand_bodies(const Graph& graph, const std::function<bool(Node)>& which, Keep keep = Keep::Needed);
/// The origin of a node and "by <rule>", for set_origin.
std::string origin_by(Node node, std::string_view rule);
/// The one value that all elements of a node have, where its making shows it.
std::optional<double> uniform_value(Node node);
/// A node that `grad` made, or none. What rewrites the forward pass alone must come before gradients.
Node find_gradient(const Graph& graph);
/// Whether an output or a leaf needs each node, by id.
std::vector<bool> needed_nodes(const Graph& graph);

}  // namespace rlx
