// The number formats and block types as tables, as the page docs/formats.md and as pictures of their values.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "rlx/base.h"

namespace rlx {

/// A table for people.
struct FormatTable {
  std::string title;
  std::vector<std::string> headers;
  std::vector<std::vector<std::string>> rows;
};
/// Floats, the scale and integers; custom floats; scaled layouts; GGUF's types.
std::vector<FormatTable> format_tables();
/// What the codes of a format are beside finite numbers: "NaN 7f ff", "no -0", …; "none" where there is nothing to say.
std::string format_specials(Format);

/// The page, and the pictures by their names in docs/formats/.
std::string formats_markdown();
std::map<std::string, std::string> format_pictures();

}  // namespace rlx
