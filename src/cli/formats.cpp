// rlx formats: the number formats and block types, and the exhaustive check of their encoders.
#include <fmt/format.h>

#include "base/table.h"
#include "cli/command.h"
#include "quant/block_format.h"
#include "quant/format_check.h"
#include "quant/format_docs.h"

namespace rlx::cli {
namespace {

Json format_json(Format format) {
  auto& f = info(format);
  Json nans = Json::array(), infinities = Json::array();
  for (int code = 0; code < 1 << f.bits; ++code) {
    double v = decode(format, std::uint8_t(code));
    if (std::isnan(v)) nans.push_back(code);
    if (std::isinf(v)) infinities.push_back(code);
  }
  return {{"name", f.name},
          {"bits", f.bits},
          {"exponent_bits", f.exponent_bits},
          {"mantissa_bits", f.mantissa_bits},
          {"bias", f.bias},
          {"custom", int(format) >= int(Format::FirstCustom)},
          {"max", f.max},
          {"max_code", f.max_code},
          {"min_normal", f.min_normal},
          {"min_subnormal", f.min_subnormal},
          {"infinity_codes", infinities},
          {"nan_codes", nans}};
}
Json block_json(const BlockFormat& f) {
  bool plain = f.dtype != DType::Any;
  return {{"name", f.name},
          {"id", f.id},
          {"elements", f.elements},
          {"bytes", f.bytes},
          {"bits", f.bits_per_element()},
          {"read", plain || f.decode},
          {"write", plain || f.can_encode()}};
}

void list(bool json) {
  auto tables = format_tables();
  if (!json) {
    std::string text;
    for (auto& t : tables) {
      Table table(t.headers);
      for (auto& row : t.rows) table.add_row(row);
      text += fmt::format("{}{}\n\n{}", text.empty() ? "" : "\n", t.title, table.text());
    }
    return print(text);
  }
  Json formats = Json::array(), layouts = Json::array(), blocks = Json::array();
  for (int i = 0; i < kFormatCount; ++i) formats.push_back(format_json(Format(i)));
  for (auto& row : tables[2].rows) {
    Json layout;
    for (std::size_t i = 0; i < row.size(); ++i) layout[tables[2].headers[i]] = row[i];
    layouts.push_back(layout);
  }
  for (auto& f : block_formats()) blocks.push_back(block_json(f));
  print_json(Json{{"formats", formats}, {"layouts", layouts}, {"gguf", blocks}});
}

void check(Context& context) {
  Table table(
      {"format", "codes", "16-bit numbers", "midpoints ± 1 ulp", "decoding differs", "saturating", "not saturating"});
  Json rows = Json::array();
  FormatCheck all;
  std::string faults;
  auto add = [&](std::string_view name, const FormatCheck& c) {
    table.add_row({std::string(name), fmt::to_string(c.codes), fmt::to_string(c.patterns), fmt::to_string(c.midpoints),
                   fmt::to_string(c.decode_differences), fmt::to_string(c.saturating_differences),
                   fmt::to_string(c.other_differences)});
  };
  for (auto& c : check_formats()) {
    add(to_string(c.format), c);
    rows.push_back({{"format", to_string(c.format)},
                    {"codes", c.codes},
                    {"patterns", c.patterns},
                    {"midpoints", c.midpoints},
                    {"decode_differences", c.decode_differences},
                    {"saturating_differences", c.saturating_differences},
                    {"other_differences", c.other_differences},
                    {"first", c.first}});
    all.codes += c.codes, all.patterns += c.patterns, all.midpoints += c.midpoints;
    all.decode_differences += c.decode_differences;
    all.saturating_differences += c.saturating_differences;
    all.other_differences += c.other_differences;
    if (c.differences()) faults += fmt::format("{}: {}\n", to_string(c.format), c.first);
  }
  add("all", all);
  if (context.json)
    print_json(Json{{"formats", rows}, {"differences", all.differences()}});
  else
    print(table.text() + faults + fmt::format("{} differences\n", all.differences()));
  if (all.differences()) context.status = 1;
}

}  // namespace

void add_formats(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("formats", "List the number formats and block types, or check them");
  auto checks = std::make_shared<bool>(false);
  command->add_flag("--check", *checks,
                    "Encode every bf16 and f16 number and what lies in the middle of two codes, and compare with the "
                    "nearest of all codes; exits with 1 where one differs");
  add_common_options(*command, context, false);
  command->callback([=, &context] { *checks ? check(context) : list(context.json); });
}

}  // namespace rlx::cli
