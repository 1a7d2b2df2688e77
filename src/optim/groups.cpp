// Which param takes which optimizer.
#include <fmt/format.h>

#include "optim/define.h"

namespace rlx {

bool fits_pattern(std::string_view name, std::string_view pattern) {
  std::size_t n = 0, p = 0, star = pattern.npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++, resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != pattern.npos) {  // the last star takes one more
      p = star + 1, n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

const ParamGroup& group_of(const ParamGroups& groups, std::string_view name, const Extents& shape) {
  for (auto& group : groups)
    if (fits_pattern(name, group.pattern) && (!group.matches || group.matches(name, shape))) return group;
  throw UserError(
      fmt::format("[optimizer] \"{}\" {} is of none of the {} groups", name, to_string(shape), groups.size()));
}

std::vector<std::string> muon_fallback_patterns() {
  return {"*embed*", "*embd*",   "wte*",      "*.wte*", "wpe*",     "*.wpe*", "head",  "head.*",
          "*.head",  "*.head.*", "*lm_head*", "output", "output.*", "*norm*", "*bias*"};
}

ParamGroups muon_groups(const Muon& muon, const Optimizer& fallback, double fallback_rate_factor,
                        const std::vector<std::string>& fallback_patterns) {
  auto named = [fallback_patterns](std::string_view name) {
    for (auto& pattern : fallback_patterns)
      if (fits_pattern(name, pattern)) return true;
    return false;
  };
  auto is_vector = [](std::string_view, const Extents& shape) { return shape.size() < 2; };
  auto is_orthogonal = [named, flatten = muon.flatten](std::string_view name, const Extents& shape) {
    return !named(name) && (shape.size() == 2 || flatten);
  };
  return {{.optimizer = fallback,
           .matches = is_vector,
           .learning_rate_factor = fallback_rate_factor,
           .weight_decay = false},
          {.optimizer = muon, .matches = is_orthogonal},
          {.optimizer = fallback, .learning_rate_factor = fallback_rate_factor}};
}

}  // namespace rlx
