// What may go once gradients are taken.
#include "passes/passes.h"
#include "rlx/ops.h"

namespace rlx {

RuleSet straight_through_rules() {
  Graph p(Graph::Mode::Pattern);
  Node v = p.any("v"), q = p.any("q");
  // Inexact: in floats v + (q - v) is q only nearly, and q is what is meant.
  return {{p}, {{"collapse_straight_through", v + stop_gradient(q - v), q, kInexact}}};
}

Rewritten collapse_straight_through(const Graph& graph) {
  static const RuleSet rules = straight_through_rules();
  return rewrite(graph, rules, kInexact);
}

Rewritten drop_stop_gradients(const Graph& graph) {
  static const RuleSet rules = [] {
    Graph p(Graph::Mode::Pattern);
    Node x = p.any("x");
    return RuleSet{{p}, {{"drop_stop_gradient", stop_gradient(x), x}}};
  }();
  return rewrite(graph, rules);
}

}  // namespace rlx
