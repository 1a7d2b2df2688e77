// The program `rlx`: exits with 0 on success only, 1 on failure, 2 on a command line it does not understand.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/parallel.h"
#include "cli/command.h"

namespace rlx::cli {

void add_common_options(CLI::App& command, Context& context, bool computes) {
  command.add_flag("--json", context.json, "Print the result as one JSON object");
  if (!computes) return;
  command
      .add_option_function<int>(
          "--threads", [](int n) { set_num_threads(n); }, "At most this many threads")
      ->check(CLI::Range(1, 4096));
  command.add_option("--device", context.device, "Where it runs: see `rlx devices`")->capture_default_str();
}

void print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    throw DeviceError(fmt::format("cannot write the output: {}", std::strerror(errno)));
}
void print_json(const Json& object) { print(object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"); }

namespace {

int fail(std::string_view message, int status) {
  std::fflush(stdout);
  std::string line(message);  // one line, whatever a library put into its message
  while (!line.empty() && (line.back() == '\n' || line.back() == ' ')) line.pop_back();
  for (char& c : line)
    if (c == '\n') c = ' ';
  std::fputs(fmt::format("rlx: error: {}\n", line).c_str(), stderr);
  return status;
}

int run(int argc, char** argv) {
  CLI::App app("Trains, converts and runs low-precision models.", "rlx");
  app.require_subcommand(1);
  Context context;
  for (auto add :
       {add_train, add_eval, add_export, add_generate, add_logits, add_quantize, add_run, add_inspect, add_formats, add_devices, add_version})
    add(app, context);
  auto is_command = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (auto all = app.get_subcommands({});
      argc > 1 && argv[1][0] != '-' && std::none_of(all.begin(), all.end(), is_command))
    return fail(fmt::format("unknown command \"{}\" (see rlx --help)", argv[1]), 2);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    return fail(std::string(error.what()) + " (see rlx --help)", 2);
  } catch (const Error& error) {
    return fail(error.what(), 1);
  } catch (const std::bad_alloc&) {
    return fail("out of memory", 1);
  } catch (const std::exception& error) {
    return fail(error.what(), 1);
  }
  return context.status;
}

}  // namespace
}  // namespace rlx::cli

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error of the write, with a message
  return rlx::cli::run(argc, argv);
}
