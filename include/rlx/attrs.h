// Attributes: any plain struct that lists its members in `fields`. Typed where an op is written and where it is built;
// erased in the node, so that a new struct (a user's too) touches nothing else.
#pragma once
#include <memory>

#include "rlx/array.h"

namespace rlx {

// How one field is printed and read back. A user's field types overload these two, an enum gives its names by
// `std::span<const std::string_view> enum_names(E)`.
std::string field_text(double);
std::string field_text(std::int64_t);
std::string field_text(std::uint64_t);
std::string field_text(int);
std::string field_text(bool);
std::string field_text(DType);
std::string field_text(const std::string&);
std::string field_text(const Dim&);
std::string field_text(const Shape&);
std::string field_text(const Extents&);
std::string field_text(const Axes&);
std::string field_text(const Type&);
std::string field_text(const Array&);
void parse_field(std::string_view, double&);
void parse_field(std::string_view, std::int64_t&);
void parse_field(std::string_view, std::uint64_t&);
void parse_field(std::string_view, int&);
void parse_field(std::string_view, bool&);
void parse_field(std::string_view, DType&);
void parse_field(std::string_view, std::string&);
void parse_field(std::string_view, Dim&);
void parse_field(std::string_view, Shape&);
void parse_field(std::string_view, Extents&);
void parse_field(std::string_view, Axes&);
void parse_field(std::string_view, Type&);
void parse_field(std::string_view, Array&);
template <class E>
  requires std::is_enum_v<E>
std::string field_text(E value) {
  return std::string(enum_names(value)[std::size_t(value)]);
}
template <class E>
  requires std::is_enum_v<E>
void parse_field(std::string_view text, E& value) {
  auto names = enum_names(value);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (names[i] == text) return void(value = E(i));
  throw UserError("unknown value '" + std::string(text) + "'");
}

namespace detail {

struct Anything {
  template <class T> operator T() const;
};
template <class T, class... A> consteval int member_count() {
  if constexpr (requires { T{A{}..., Anything{}}; }) return member_count<T, A..., Anything>();
  else return sizeof...(A);
}
template <class T> consteval int field_count() {
  int n = 0;
  T attrs{};
  T::fields(attrs, [&](const char*, auto&) { ++n; });
  return n;
}
void append_field(std::string& out, const char* name, const std::string& value);
/// Splits `a = 1, b = [2, 3]` at its top level; throws UserError.
std::vector<std::pair<std::string, std::string>> split_fields(std::string_view text);
[[noreturn]] void unknown_field(const std::string& name);

}  // namespace detail

class Attrs;
/// How to print, compare and read one attribute struct. The text is also what a file holds.
struct AttrsInfo {
  std::string (*text)(const void*);
  Attrs (*parse)(std::string_view);
};
struct NoAttrs {
  static constexpr void fields(auto&, auto&&) {}
};
template <class T> std::string attrs_text(const void* attrs) {
  if constexpr (requires { T{.value = Array()}; } || requires { T{.depth = Dim()}; }) {  // no constexpr destructor
  } else {
    static_assert(detail::member_count<T>() == detail::field_count<T>(), "fields() must visit every member");
  }
  std::string out;
  T::fields(*static_cast<const T*>(attrs),
            [&](const char* name, auto& value) { detail::append_field(out, name, field_text(value)); });
  return out;
}
template <class T> Attrs parse_attrs(std::string_view text);
template <class T> inline constexpr AttrsInfo kAttrsInfo = {attrs_text<T>, parse_attrs<T>};

class Attrs {
 public:
  Attrs() = default;
  template <class T>
    requires(!std::same_as<std::remove_cvref_t<T>, Attrs>)
  Attrs(T value) : info_(&kAttrsInfo<T>), value_(std::make_shared<const T>(std::move(value))) {}

  template <class T> const T& as() const {
    if (info_ != &kAttrsInfo<T>) throw InternalError("attributes are of another type: {" + text() + "}");
    if constexpr (std::same_as<T, NoAttrs>) return no_attrs();
    else return *static_cast<const T*>(value_.get());
  }
  const AttrsInfo* info() const { return info_; }
  std::string text() const { return value_ ? info_->text(value_.get()) : ""; }

 private:
  static const NoAttrs& no_attrs() {
    static const NoAttrs instance;
    return instance;
  }
  const AttrsInfo* info_ = &kAttrsInfo<NoAttrs>;
  std::shared_ptr<const void> value_;
};

template <class T> Attrs parse_attrs(std::string_view text) {
  T attrs{};
  for (auto& [name, value] : detail::split_fields(text)) {
    bool found = false;
    T::fields(attrs, [&](const char* field, auto& member) {
      if (name == field) parse_field(value, member), found = true;
    });
    if (!found) detail::unknown_field(name);
  }
  return attrs;
}

}  // namespace rlx
