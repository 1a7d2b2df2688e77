// rlx train: a language model from a text file.
#include "rlx/train.h"

#include <fmt/format.h>

#include <csignal>

#include "base/progress.h"
#include "cli/command.h"
#include "train/config.h"
#include "train/precision.h"

namespace rlx::cli {
namespace {

volatile std::sig_atomic_t stop_asked = 0;

// The first signal asks for a stop at the next step; a second one kills.
void on_signal(int signal) {
  stop_asked = 1;
  std::signal(signal, SIG_DFL);
}

struct Options {
  std::string data, out, config, resume, optimizer, precision;
  std::int64_t steps = 0;
  double minutes = 0;
  std::uint64_t seed = 0;
  bool overwrite = false;
};

TrainConfig config_of(const CLI::App& command, const Options& o) {
  TrainConfig c = o.config.empty() ? TrainConfig{} : load_config(o.config);
  if (command.count("--steps")) c.steps = o.steps, c.minutes = 0;
  if (command.count("--minutes")) c.minutes = o.minutes, c.steps = 0;
  if (command.count("--seed")) c.seed = o.seed;
  if (command.count("--optimizer")) c.optimizer = o.optimizer;
  if (command.count("--precision")) c.model.precision = o.precision;
  return c;
}

void report(const TrainResult& r, const std::string& run, const Context& context) {
  if (context.json) {
    Json object = {{"run", run},
                   {"params", r.params},
                   {"step", r.step},
                   {"steps", r.steps},
                   {"loss", r.loss},
                   {"val_bits_per_byte", r.interrupted ? Json() : Json(r.val_bits_per_byte)},
                   {"tokens_per_s", r.tokens_per_s},
                   {"seconds", r.seconds},
                   {"interrupted", r.interrupted}};
    print_json(object);
  } else if (!r.interrupted) {
    print(fmt::format("{}: {} steps in {}, {} parameters, validation {:.4f} bits per byte, {:.0f} tokens/s\n", run,
                      r.steps, format_duration(r.seconds), r.params, r.val_bits_per_byte, r.tokens_per_s));
  }
  if (r.interrupted)
    std::fputs(fmt::format("rlx: interrupted after step {} of {}, saved. Go on with: rlx train --resume {}\n", r.step,
                           r.steps, run)
                   .c_str(),
               stderr);
}

}  // namespace

void add_train(CLI::App& app, Context& context) {
  auto* command = app.add_subcommand("train", "Train a language model on a text file");
  auto o = std::make_shared<Options>();
  auto* data = command->add_option("--data", o->data, "The text, UTF-8");
  auto* out = command->add_option("--out", o->out, "The run's folder");
  data->needs(out);
  out->needs(data);
  std::vector<CLI::Option*> fresh = {data, out};
  fresh.push_back(command->add_option("--config", o->config, "A JSON file: the model and how it is trained"));
  auto* steps = command->add_option("--steps", o->steps, "How many steps")
                    ->check(CLI::Range(std::int64_t(1), std::int64_t(1) << 31));
  auto* minutes = command->add_option("--minutes", o->minutes, "About how long, from which the number of steps follows")
                      ->check(CLI::Range(1e-3, 1e6));
  steps->excludes(minutes);
  fresh.insert(fresh.end(), {steps, minutes});
  fresh.push_back(command->add_option("--seed", o->seed, "Of the weights and the order of the data"));
  fresh.push_back(
      command->add_option("--optimizer", o->optimizer, "How params are stepped")->check(CLI::IsMember(optimizer_names())));
  fresh.push_back(
      command->add_option("--precision", o->precision, "Of the linear weights and their products (docs/precisions.md)")
          ->check(CLI::IsMember(precision_names())));
  fresh.push_back(command->add_flag("--overwrite", o->overwrite, "Replace the run that is in the folder"));
  auto* resume = command->add_option("--resume", o->resume, "Go on with this run");
  for (auto* option : fresh) resume->excludes(option);
  add_common_options(*command, context, true);
  command->callback([=, &context] {
    if (o->resume.empty() && o->out.empty()) throw CLI::RequiredError("--data and --out, or --resume");
    std::signal(SIGINT, on_signal);
    std::signal(SIGTERM, on_signal);
    TrainOptions options{.device = context.target(), .interrupted = [] { return stop_asked != 0; }};
    bool resumes = !o->resume.empty();
    TrainResult result = resumes ? resume_run(o->resume, options)
                                 : start_run(config_of(*command, *o), o->data, o->out, o->overwrite, options);
    report(result, resumes ? o->resume : o->out, context);
    if (result.interrupted) context.status = 1;
  });
}

}  // namespace rlx::cli
