// Symbolic dims: a polynomial with whole coefficients over atoms (symbols, floor quotients, min and max). Terms are
// kept in graded lexicographic order of the atoms' texts, so that equal polynomials have equal texts.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "rlx/array.h"

namespace rlx {
namespace {

// Bounds on what a text can make us build.
constexpr std::size_t kMaxTerms = 256, kMaxDegree = 32, kMaxDepth = 64, kMaxText = 1 << 16;

[[noreturn]] void overflow(std::string_view what) {
  throw UserError(fmt::format("dim: {} does not fit 64 bits", what));
}
std::int64_t add(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_add_overflow(a, b, &r)) overflow(fmt::format("{} + {}", a, b));
  return r;
}
std::int64_t subtract(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) overflow(fmt::format("{} - {}", a, b));
  return r;
}
std::int64_t multiply(std::int64_t a, std::int64_t b) {
  std::int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) overflow(fmt::format("{} * {}", a, b));
  return r;
}
std::int64_t floor_quotient(std::int64_t a, std::int64_t b) {
  if (b == 0) throw UserError(fmt::format("dim: floor({}, 0) divides by zero", a));
  if (b == -1) return subtract(0, a);
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_in_name(char c) { return is_letter(c) || is_digit(c) || c == '.'; }

enum class Kind { Symbol, Floor, Min, Max };
struct Atom {
  Kind kind;
  std::string text;
  Dim a, b;  // the arguments of a floor, min or max
};
using AtomPtr = std::shared_ptr<const Atom>;
// Atoms in order of their texts, one as often as its power. No atoms: the constant term.
using Monomial = std::vector<AtomPtr>;
bool text_less(const AtomPtr& a, const AtomPtr& b) { return a->text < b->text; }
struct GradedOrder {
  bool operator()(const Monomial& a, const Monomial& b) const {
    if (a.size() != b.size()) return a.size() > b.size();
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), text_less);
  }
};
using Polynomial = std::map<Monomial, std::int64_t, GradedOrder>;

void add_to(Polynomial& p, const Monomial& m, std::int64_t coefficient) {
  auto& c = p[m];
  c = add(c, coefficient);
  if (c == 0) p.erase(m);
}
Monomial product(const Monomial& a, const Monomial& b) {
  if (a.size() + b.size() > kMaxDegree)
    throw UserError(fmt::format("dim: a product of more than {} symbols", kMaxDegree));
  Monomial out(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin(), text_less);
  return out;
}
// a / b where b's atoms are all among a's.
std::optional<Monomial> quotient(const Monomial& a, const Monomial& b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end(), text_less)) return {};
  Monomial out;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(out), text_less);
  return out;
}

std::string print(const Polynomial& p) {
  std::string out;
  for (auto& [atoms, c] : p) {
    // The most negative number has no magnitude, so it prints with its own sign.
    bool minus = c < 0 && c != std::numeric_limits<std::int64_t>::min();
    auto magnitude = minus ? -c : c;
    out += out.empty() ? (minus ? "-" : "") : (minus ? " - " : " + ");
    if (atoms.empty() || magnitude != 1) out += std::to_string(magnitude) + (atoms.empty() ? "" : "*");
    for (std::size_t i = 0; i < atoms.size(); ++i) out += (i ? "*" : "") + atoms[i]->text;
  }
  if (out.size() > kMaxText) throw UserError(fmt::format("dim: an expression of more than {} characters", kMaxText));
  return out;
}

}  // namespace

struct Dim::Terms {
  Polynomial polynomial;
  std::string text;

  static Polynomial of(const Dim& d) {
    if (d.terms_) return d.terms_->polynomial;
    if (d.number_ == 0) return {};
    return {{Monomial{}, d.number_}};
  }
  static Dim make(Polynomial p) {
    if (p.empty()) return 0;
    if (p.size() == 1 && p.begin()->first.empty()) return p.begin()->second;
    if (p.size() > kMaxTerms) throw UserError(fmt::format("dim: an expression of more than {} terms", kMaxTerms));
    Dim d;
    auto text = print(p);
    d.terms_ = std::make_shared<const Terms>(Terms{std::move(p), std::move(text)});
    return d;
  }
  static Dim of_atom(Kind kind, std::string text, Dim a = {}, Dim b = {}) {
    return make({{Monomial{std::make_shared<const Atom>(Atom{kind, std::move(text), std::move(a), std::move(b)})}, 1}});
  }
  static Dim of_call(Kind kind, const char* name, const Dim& a, const Dim& b) {
    return of_atom(kind, fmt::format("{}({}, {})", name, a.text(), b.text()), a, b);
  }
};

namespace {

// a / b where it leaves no remainder, by long division.
std::optional<Polynomial> exact_quotient(Polynomial a, const Polynomial& b) {
  Polynomial out;
  auto& [lead, lead_coefficient] = *b.begin();
  for (int steps = 0; !a.empty(); ++steps) {
    auto& [atoms, c] = *a.begin();
    auto rest = quotient(atoms, lead);
    if (!rest || c % lead_coefficient || steps > int(kMaxTerms)) return {};
    auto q = floor_quotient(c, lead_coefficient);
    add_to(out, *rest, q);
    for (auto& [m, k] : b) add_to(a, product(m, *rest), multiply(-1, multiply(k, q)));
  }
  return out;
}

std::int64_t value_of(const Atom& atom, const Bindings& symbols) {
  if (atom.kind == Kind::Symbol) {
    auto it = symbols.find(atom.text);
    if (it == symbols.end()) throw UserError(fmt::format("dim: the symbol '{}' has no value", atom.text));
    return it->second;
  }
  auto a = atom.a.evaluate(symbols), b = atom.b.evaluate(symbols);
  switch (atom.kind) {
    case Kind::Floor:
      return floor_quotient(a, b);
    case Kind::Min:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {
    if (text.size() > kMaxText) throw UserError(fmt::format("dim: a text of more than {} characters", kMaxText));
  }
  Dim all() {
    auto d = sum();
    skip();
    if (at_ != text_.size()) fail("the end or an operator");
    return d;
  }

 private:
  [[noreturn]] void fail(std::string_view expected) const {
    throw UserError(fmt::format("dim '{}': got {} at character {}, expected {}", text_.substr(0, 200),
                                at_ < text_.size() ? fmt::format("'{}'", text_[at_]) : "the end", at_ + 1, expected));
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) {
    if (!take(c)) fail(fmt::format("'{}'", c));
  }
  Dim sum() {
    auto d = term();
    for (;;) {
      if (take('+')) {
        d = d + term();
      } else if (take('-')) {
        d = d - term();
      } else {
        return d;
      }
    }
  }
  Dim term() {
    auto d = factor();
    while (take('*')) d = d * factor();
    return d;
  }
  Dim number() {
    std::int64_t v = 0;
    auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), v);
    if (error != std::errc()) fail("a number of 64 bits");
    at_ = std::size_t(end - text_.data());
    if (at_ < text_.size() && is_in_name(text_[at_])) fail("an operator");
    return v;
  }
  Dim factor() {
    if (++depth_ > kMaxDepth) fail(fmt::format("at most {} levels", kMaxDepth));
    auto d = unchecked_factor();
    --depth_;
    return d;
  }
  Dim unchecked_factor() {
    skip();
    if (at_ == text_.size()) fail("a number, a symbol or '('");
    if (is_digit(text_[at_])) return number();
    if (text_[at_] == '-') {
      if (at_ + 1 < text_.size() && is_digit(text_[at_ + 1])) return number();
      ++at_;
      return -factor();
    }
    if (take('(')) {
      auto d = sum();
      need(')');
      return d;
    }
    if (!is_letter(text_[at_])) fail("a number, a symbol or '('");
    auto start = at_;
    while (at_ < text_.size() && is_in_name(text_[at_])) ++at_;
    auto name = text_.substr(start, at_ - start);
    if (!take('(')) return Dim::symbol(name);
    auto a = sum();
    need(',');
    auto b = sum();
    need(')');
    if (name == "floor") return floor_div(a, b);
    if (name == "min") return min(a, b);
    if (name == "max") return max(a, b);
    at_ = start;
    fail("floor(, min( or max(");
  }

  std::string_view text_;
  std::size_t at_ = 0, depth_ = 0;
};

// What a min and a max share: the answer where it does not depend on the symbols.
std::optional<bool> is_less(const Dim& a, const Dim& b) {
  auto difference = a - b;
  if (!difference.is_number()) return {};
  return difference.number() < 0;
}

}  // namespace

Dim Dim::symbol(std::string_view name) {
  bool ok =
      !name.empty() && name.size() <= 1024 && is_letter(name[0]) && std::all_of(name.begin(), name.end(), is_in_name);
  if (!ok)
    throw UserError(
        fmt::format("dim: got the symbol name '{}', expected a letter or '_', then letters, digits, '_' or '.'",
                    name.substr(0, 200)));
  return Terms::of_atom(Kind::Symbol, std::string(name));
}

Dim Dim::parse(std::string_view text) { return Parser(text).all(); }

std::int64_t Dim::number() const {
  if (terms_) throw UserError(fmt::format("dim: got '{}', expected a number", terms_->text));
  return number_;
}

std::int64_t Dim::evaluate(const Bindings& symbols) const {
  if (!terms_) return number_;
  std::int64_t sum = 0;
  for (auto& [atoms, c] : terms_->polynomial) {
    auto product = c;
    for (auto& atom : atoms) product = multiply(product, value_of(*atom, symbols));
    sum = add(sum, product);
  }
  return sum;
}

void Dim::collect_symbols(std::vector<std::string>& into) const {
  if (!terms_) return;
  for (auto& [atoms, c] : terms_->polynomial)
    for (auto& atom : atoms) {
      if (atom->kind != Kind::Symbol) {
        atom->a.collect_symbols(into);
        atom->b.collect_symbols(into);
      } else if (std::find(into.begin(), into.end(), atom->text) == into.end()) {
        into.push_back(atom->text);
      }
    }
}

bool Dim::solve(std::int64_t value, Bindings& symbols) const {
  std::vector<std::string> names;
  collect_symbols(names);
  std::erase_if(names, [&](auto& n) { return symbols.count(n) > 0; });
  if (names.size() != 1) return false;
  auto& unknown = names[0];
  std::int64_t slope = 0, rest = 0;
  for (auto& [atoms, c] : terms_->polynomial) {
    auto product = c;
    bool has_unknown = false;
    for (auto& atom : atoms) {
      if (atom->kind == Kind::Symbol && atom->text == unknown) {
        if (has_unknown) return false;
        has_unknown = true;
        continue;
      }
      std::vector<std::string> inside;
      if (atom->kind != Kind::Symbol) {
        atom->a.collect_symbols(inside);
        atom->b.collect_symbols(inside);
      }
      if (std::find(inside.begin(), inside.end(), unknown) != inside.end()) return false;
      product = multiply(product, value_of(*atom, symbols));
    }
    auto& sum = has_unknown ? slope : rest;
    sum = add(sum, product);
  }
  auto difference = subtract(value, rest);
  if (slope == 0 || (slope != -1 && difference % slope)) return false;
  auto solution = floor_quotient(difference, slope);
  if (solution < 0) return false;
  symbols[unknown] = solution;
  return true;
}

std::string Dim::text() const { return terms_ ? terms_->text : std::to_string(number_); }

Dim operator+(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return add(a.number_, b.number_);
  auto p = Dim::Terms::of(a);
  for (auto& [m, c] : Dim::Terms::of(b)) add_to(p, m, c);
  return Dim::Terms::make(std::move(p));
}
Dim operator-(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return subtract(a.number_, b.number_);
  auto p = Dim::Terms::of(a);
  for (auto& [m, c] : Dim::Terms::of(b)) add_to(p, m, subtract(0, c));
  return Dim::Terms::make(std::move(p));
}
Dim operator*(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return multiply(a.number_, b.number_);
  Polynomial p;
  auto q = Dim::Terms::of(b);
  for (auto& [m, c] : Dim::Terms::of(a)) {
    for (auto& [n, d] : q) add_to(p, product(m, n), multiply(c, d));
    if (p.size() > kMaxTerms) break;  // make() says so
  }
  return Dim::Terms::make(std::move(p));
}
bool operator==(const Dim& a, const Dim& b) {
  if (a.is_number() || b.is_number()) return a.is_number() && b.is_number() && a.number_ == b.number_;
  return a.terms_ == b.terms_ || a.terms_->text == b.terms_->text;
}

// A symbolic divisor is taken as not zero, so (batch*seq) / batch is seq.
Dim floor_div(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return floor_quotient(a.number_, b.number_);
  if (b.is_number() && b.number_ <= 0) {
    if (b.number_ == 0) throw UserError(fmt::format("dim: floor({}, 0) divides by zero", a.text()));
    return floor_div(-a, -b);
  }
  if (!b.is_number()) {
    auto q = exact_quotient(Dim::Terms::of(a), Dim::Terms::of(b));
    return q ? Dim::Terms::make(std::move(*q)) : Dim::Terms::of_call(Kind::Floor, "floor", a, b);
  }
  // Whole multiples of the divisor come out, so that every coefficient left is in [0, b).
  Polynomial whole, rest;
  for (auto& [m, c] : Dim::Terms::of(a)) {
    auto q = floor_quotient(c, b.number_);
    if (q) whole[m] = q;
    if (auto r = c - q * b.number_) rest[m] = r;
  }
  auto left = Dim::Terms::make(std::move(rest)), out = Dim::Terms::make(std::move(whole));
  return left.is_number() ? out : out + Dim::Terms::of_call(Kind::Floor, "floor", left, b);
}

Dim ceil_div(const Dim& a, const Dim& b) { return -floor_div(-a, b); }

Dim min(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return std::min(a.number_, b.number_);
  if (auto less = is_less(a, b)) return *less ? a : b;
  return a.text() < b.text() ? Dim::Terms::of_call(Kind::Min, "min", a, b)
                             : Dim::Terms::of_call(Kind::Min, "min", b, a);
}
Dim max(const Dim& a, const Dim& b) {
  if (a.is_number() && b.is_number()) return std::max(a.number_, b.number_);
  if (auto less = is_less(a, b)) return *less ? b : a;
  return a.text() < b.text() ? Dim::Terms::of_call(Kind::Max, "max", a, b)
                             : Dim::Terms::of_call(Kind::Max, "max", b, a);
}

}  // namespace rlx
