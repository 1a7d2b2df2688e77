// Reading UTF-8.
#pragma once
#include <cstddef>
#include <string_view>

namespace rlx {

/// The length of the well-formed character at `text[at]`, 0 where the bytes there are not one (Unicode 15, table 3-7).
std::size_t utf8_length(std::string_view text, std::size_t at);
/// The offset of the first byte that is not part of well-formed UTF-8, npos where there is none.
std::size_t find_invalid_utf8(std::string_view text);
/// How many characters a string has, an ill-formed byte counted as one.
std::size_t count_characters(std::string_view text);

}  // namespace rlx
