// What the commands share. Each add_* puts one command on the program; it runs after the command line is parsed.
#pragma once
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "rlx/session.h"

namespace rlx::cli {

using Json = nlohmann::ordered_json;

struct Context {
  bool json = false;
  std::string device = "cpu";
  int status = 0;  // what the program exits with

  Device target() const { return {device}; }
};

/// --json; where a command computes, --threads and --device too.
void add_common_options(CLI::App& command, Context&, bool computes);
/// To stdout. Throws DeviceError where that cannot be written.
void print(std::string_view text);
void print_json(const Json& object);

void add_train(CLI::App&, Context&);
void add_eval(CLI::App&, Context&);
void add_export(CLI::App&, Context&);
void add_generate(CLI::App&, Context&);
void add_logits(CLI::App&, Context&);
void add_quantize(CLI::App&, Context&);
void add_run(CLI::App&, Context&);
void add_formats(CLI::App&, Context&);
void add_inspect(CLI::App&, Context&);
void add_devices(CLI::App&, Context&);
void add_version(CLI::App&, Context&);

}  // namespace rlx::cli
