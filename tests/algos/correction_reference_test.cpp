// Every correction of the registry against its formula, written again as a loss over whole distributions and
// differentiated by a tape: coefficients, and the learner's gradient of every parameter.
#include <catch2/catch.hpp>
#include <optional>

#include "tests/algos/episodes.h"
#include "tests/algos/reference_cases.h"
#include "tests/algos/reference_learner.h"
#include "tests/algos/reference_rules.h"

namespace motley::algos {
namespace {

using kernels::RandomStream;
using reference::DenseSequence;
using reference::largest;
using reference::largest_difference;

constexpr double kBound = 1e-6;  // of the largest entry
constexpr size_t kVocabulary = 12;

const std::vector<RecordStyle> kStyles{RecordStyle::sampled, RecordStyle::candidates, RecordStyle::top_k,
                                       RecordStyle::full};

/// Every piece alone, and sums of them.
std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const CorrectionInfo& info : corrections()) all.push_back(info.name);
  for (const char* rule : {"token-is", "tis", "mis", "dppo-tv", "dppo-kl"}) all.push_back(std::string("sc+") + rule);
  for (const char* sum : {"tis+geo-mask", "token-is+veto", "mis+opsm", "ppo-clip+veto+geo-mask"}) all.push_back(sum);
  return all;
}

/// The defaults of a piece, with what the case says of it.
reference::Settings settings_of(const CorrectionInfo& piece, const CorrectionParameters& given) {
  reference::Settings settings;
  for (const ParameterInfo& parameter : piece.parameters) {
    const auto found = given.find(piece.name + "." + parameter.name);
    const ParameterValue& value = found == given.end() ? parameter.default_value : found->second;
    if (const double* number = std::get_if<double>(&value))
      settings.numbers[parameter.name] = *number;
    else
      settings.texts[parameter.name] = std::get<std::string>(value);
  }
  return settings;
}

/// The loss of a sum of pieces, times the factor of each sequence.
class ReferenceLoss {
 public:
  ReferenceLoss(const std::string& name, const CorrectionParameters& given, double steps, std::vector<double> factor)
      : steps_(steps), factor_(std::move(factor)) {
    for (const CorrectionInfo* info : correction_pieces(name)) {
      const auto settings = settings_of(*info, given);
      if (info->centering)
        center_ = settings;
      else if (info->filter)
        filters_.emplace_back(info->name, settings);
      else
        rule_ = info->name, rule_settings_ = settings;
    }
  }
  reference::Scalar operator()(const reference::Terms& terms) const {
    const reference::Surrogates surrogates = reference::surrogates(rule_, terms, rule_settings_, steps_);
    reference::Scalar loss;
    for (size_t s = 0; s < terms.size(); ++s) {
      bool keeps = true;
      for (const auto& [filter, settings] : filters_) keeps = keeps && reference::keeps(filter, terms[s], settings);
      for (size_t t = 0; keeps && t < terms[s].size(); ++t) {
        if (terms[s][t].advantage() == 0.0) continue;
        reference::Scalar term = surrogates[s][t];
        if (center_) term = term - reference::centering(terms[s][t], rule_, rule_settings_, *center_);
        loss = loss - term * factor_[s];
      }
    }
    return loss;
  }

 private:
  double steps_;
  std::vector<double> factor_;
  std::string rule_ = "grpo";
  reference::Settings rule_settings_;
  std::vector<std::pair<std::string, reference::Settings>> filters_;
  std::optional<reference::Settings> center_;
};

/// Four responses: one of a single token, one of either sign of A, and one of a group of equal rewards.
std::vector<DenseSequence> random_batch(RandomStream& random, RecordStyle style) {
  const double mismatches[] = {0.004, 0.1, 0.8};
  const double mismatch = mismatches[random.below(3)];
  std::vector<DenseSequence> batch;
  for (const double advantage : {random.normal(), random.uniform(), -random.uniform(), 0.0}) {
    batch.emplace_back();
    const uint64_t length = batch.size() == 1 ? 1 : 1 + random.below(6);
    for (uint64_t t = 0; t < length; ++t) {
      batch.back().push_back(random_dense_token(random, kVocabulary, style, mismatch));
      batch.back().back().advantage = advantage;
      batch.back().back().staleness = static_cast<int64_t>(random.below(4));
    }
  }
  return batch;
}

/// Concatenated, to compare entries of all tokens with the largest of all.
std::vector<double> flat(const std::vector<std::vector<double>>& rows) {
  std::vector<double> all;
  for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
  return all;
}

/// d loss / d logits of every token.
std::vector<double> correction_gradients(const std::string& name, const CorrectionParameters& given,
                                         const std::vector<DenseSequence>& batch) {
  const ShownBatch shown(batch);
  Coefficients out(shown.view());
  make_correction(name, given)->coefficients(shown.view(), out);
  return flat(shown.logit_gradients(out));
}
void check_coefficients(const std::string& name, const CorrectionParameters& given,
                        const std::vector<DenseSequence>& batch) {
  const auto found = correction_gradients(name, given, batch);
  const ReferenceLoss loss(name, given, 1.0 * ShownBatch::kStepsSinceOld / ShownBatch::kStepsPerBatch,
                           std::vector<double>(batch.size(), 1.0));
  const auto expected = flat(reference::logit_gradients(batch, loss));
  // Where nothing is left, the engine's bound on log-ratios leaves e^-20 = 2e-9 of an advantage.
  REQUIRE(largest_difference(found, expected) <= kBound * largest(expected) + 1e-8);
}

/// What is looked at besides the defaults.
const std::vector<std::pair<std::string, CorrectionParameters>> kVariants{
    {"pg-seq-is", {{"pg-seq-is.mode", "mask"}}},
    {"sc", {{"sc.tail", "off"}}},
    {"sc", {{"sc.tail", "guard"}, {"sc.guard_low", 0.9}, {"sc.guard_high", 1.1}}},
    {"sc+mis", {{"sc.tail", "guard"}, {"sc.guard_low", 0.9}, {"sc.guard_high", 1.1}}},
    {"sc+tis", {{"tis.low", 0.7}, {"tis.cap", 1.2}}},
    {"decoupled", {{"decoupled.proximal", "loglinear"}}},
    {"decoupled", {{"decoupled.weight", "truncate"}, {"decoupled.high", 1.2}}},
    {"decoupled", {{"decoupled.weight", "none"}}},
    {"decoupled", {{"decoupled.level", "sequence"}, {"decoupled.high", 1.5}}},
    {"ppo-clip", {{"ppo-clip.dual", 1.1}, {"ppo-clip.anchor", "sampler"}}},
    {"cispo", {{"cispo.anchor", "sampler"}, {"cispo.cap", 1.1}}},
    {"gspo", {{"gspo.anchor", "sampler"}}},
    {"cumulative", {{"cumulative.cap", 1.3}}},
    {"seq-mis", {{"seq-mis.low", 0.9}}},
    {"dppo-tv", {{"dppo-tv.delta", 0.02}, {"dppo-tv.cap", 1.1}}},
    {"dppo-kl", {{"dppo-kl.delta", 0.002}}},
    {"m2po", {{"m2po.threshold", 0.004}}},
    {"ais", {{"ais.kl", 1.0}, {"ais.cap", 1.5}}},
    {"opsm", {{"opsm.delta", 0.01}}},
    {"veto", {{"veto.low", 0.8}}},
};

}  // namespace

TEST_CASE("every correction's coefficients give the gradient of its loss") {
  std::vector<std::pair<std::string, CorrectionParameters>> cases = kVariants;
  for (const std::string& name : names()) cases.emplace_back(name, CorrectionParameters());
  for (const auto& [name, given] : cases) {
    for (const RecordStyle style : kStyles) {
      for (uint64_t seed = 1; seed <= 60; ++seed) {
        INFO(name << ", style " << static_cast<int>(style) << ", seed " << seed << ", " << given.size() << " given");
        RandomStream random({seed, kernels::Purpose::data, static_cast<uint64_t>(style), 0});
        check_coefficients(name, given, random_batch(random, style));
      }
    }
  }
}

TEST_CASE("a token of probability 0, and NaN where there is no advantage, change nothing else") {
  for (const std::string& name : names()) {
    for (const RecordStyle style : {RecordStyle::candidates, RecordStyle::top_k, RecordStyle::full}) {
      for (uint64_t seed = 1; seed <= 30; ++seed) {
        INFO(name << ", style " << static_cast<int>(style) << ", seed " << seed);
        RandomStream random({seed, kernels::Purpose::data, 77, 0});
        auto batch = random_batch(random, style);
        reference::DenseToken& token = batch[1].front();
        // The trainer gives nothing to an id that is recorded: another one, or the drawn one itself.
        const bool drawn = seed % 2 == 0;
        for (size_t v = 0; v < kVocabulary; ++v) {
          if (!token.listed[v] || (v == token.drawn) != drawn) continue;
          token.z[v] = kMinusInfinity;
          break;
        }
        check_coefficients(name, {}, batch);
        // A response without an advantage may hold anything; the others are what they are without it.
        batch.back().resize(1);
        batch.back()[0].log_q.assign(kVocabulary, std::numeric_limits<double>::quiet_NaN());
        const auto with = correction_gradients(name, {}, batch);
        batch.pop_back();
        auto without = correction_gradients(name, {}, batch);
        without.insert(without.end(), kVocabulary, 0.0);
        REQUIRE(with == without);
      }
    }
  }
}

TEST_CASE("the learner's gradient is that of every correction's loss, for every split into micro-batches") {
  const TransformerConfig model = tiny_model();
  for (const std::string& name : names()) {
    for (const char* style : {"candidates", "top_k", "full"}) {
      INFO(name << ", " << style);
      std::vector<Trajectory> batch = four_episodes(style);
      for (Trajectory extra : four_episodes(style, 22)) {  // a group of equal rewards
        if (extra.group != 1) continue;
        extra.group = 3, extra.reward = 0.5;
        batch.push_back(extra);
      }
      const std::vector<double> advantage{0.5, -0.5, -0.375, 0.375, 0.0, 0.0};
      double tokens = 0.0;
      for (const Trajectory& t : batch) tokens += static_cast<double>(t.records.size());
      const std::vector<double> factor(batch.size(), 1.0 / tokens);

      Parameters parameters = masters(model, DType::f64);
      parameters.set_requires_grad(true);
      const DenseTrainer trainer(model, plain_profile(DType::f64));
      auto dense = trainer.tokens(parameters, batch, advantage);
      for (DenseSequence& sequence : dense)
        for (reference::DenseToken& token : sequence) token.log_p_old = reference::log_softmax(token.z)[token.drawn];
      const std::vector<double> ones(batch.size(), 1.0);
      trainer.propagate(parameters, batch, reference::logit_gradients(dense, ReferenceLoss(name, {}, 0.0, factor)),
                        ones);
      const std::vector<double> expected = gradients(parameters);
      for (const int64_t piece : {1000, 16, 1}) {  // one micro-batch, two, four
        LearnerConfig config = learner_config(name, DType::f64);
        config.micro_batch_tokens = piece;
        Parameters trained = masters(model, DType::f64);
        Learner learner(model, trained, config);
        learner.gradient(batch);
        const std::vector<double> found = gradients(trained);
        CAPTURE(piece);
        REQUIRE(largest_difference(found, expected) <= kBound * largest(expected));
      }
    }
  }
}

namespace {

/// The gradient of the learner's last step: without momentum it is the first moment.
std::vector<double> last_gradient(Learner& learner, const Parameters& parameters) {
  const AdamW::State state = learner.optimizer().state();
  std::vector<double> all;
  for (const std::string& name : parameters.names()) {
    const std::vector<double> one = state.tensors.at("adam.first/" + name).to_doubles();
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

}  // namespace

TEST_CASE("pi_old is the trainer's at the start of the batch, through every step that is taken on it") {
  const TransformerConfig model = tiny_model();
  const std::vector<Trajectory> batch = four_episodes("full");
  const std::vector<double> factor(batch.size(), 1.0 / 16), ones(batch.size(), 1.0);
  int64_t seen = 0, moved = 0;
  for (const std::string& name : names()) {
    if (!make_correction(name)->needs_old_log_probs()) continue;
    INFO(name);
    ++seen;
    LearnerConfig config = learner_config(name, DType::f64);
    Parameters start = masters(model, DType::f64), one = masters(model, DType::f64), two = masters(model, DType::f64);
    config.optimizer.beta1 = config.optimizer.clip_norm = 0.0;
    Learner(model, one, config).step(batch);
    config.epochs = 2;
    Learner learner(model, two, config);
    learner.step(batch);
    const std::vector<double> found = last_gradient(learner, two);  // at the weights after the first step

    const DenseTrainer trainer(model, plain_profile(DType::f64));
    const std::vector<double> advantage{0.5, -0.5, -0.375, 0.375};
    const auto old = trainer.tokens(start, batch, advantage);
    auto dense = trainer.tokens(one, batch, advantage);
    for (size_t s = 0; s < dense.size(); ++s)
      for (size_t t = 0; t < dense[s].size(); ++t)
        dense[s][t].log_p_old = reference::log_softmax(old[s][t].z)[dense[s][t].drawn];
    one.zero_grad();
    trainer.propagate(one, batch, reference::logit_gradients(dense, ReferenceLoss(name, {}, 0.5, factor)), ones);
    const std::vector<double> expected = gradients(one);
    moved += largest(expected) > 0.0;  // a narrow clip may leave nothing
    REQUIRE(largest_difference(found, expected) <= kBound * largest(expected));
  }
  CHECK(seen >= 5);
  CHECK(moved >= 4);
}

}  // namespace motley::algos
