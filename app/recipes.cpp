#include "app/recipes.h"

namespace motley::app {
namespace {

/// Enters `value` at `path` below `table` unless something stands there.
void enter(Node& table, const std::vector<std::string>& path, const std::string& value, const Position& at) {
  Node* here = &table;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    if (!here->find(path[i])) here->members.push_back({path[i], at, Node::empty(Node::Kind::table, at)});
    here = &here->find(path[i])->value;
    if (here->kind != Node::Kind::table) return;  // the loader refuses it, at its place
  }
  if (!here->find(path.back())) here->members.push_back({path.back(), at, parse_toml_value(value, at)});
}

std::string text_at(const Node& document, const std::string& section, const std::string& key) {
  const Member* table = document.find(section);
  const Member* member = table ? table->value.find(key) : nullptr;
  return member ? member->value.text : "";
}

}  // namespace

const std::vector<Recipe>& recipes() {
  static const std::vector<Recipe> all{
      {"cispo",
       "clipped weights of p / pi_old: every token keeps its gradient",
       "arXiv 2506.13585 (section 3.1: 16 rounds of updates per batch), cap of arXiv 2510.13786 (ScaleRL)",
       {{"algo.advantage", "\"grpo\""},
        {"algo.reduction", "\"token_mean\""},
        {"algo.correction", "\"cispo\""},
        {"algo.parameters.cispo.cap", "5.0"},
        {"algo.minibatches", "16"}}},
      {"dapo",
       "PPO's clip with a higher upper bound, equal groups drawn again, a soft penalty for overlong replies, no KL",
       "arXiv 2503.14476 (section 4.1: 16 gradient updates per batch)",
       {{"algo.advantage", "\"grpo\""},
        {"algo.reduction", "\"token_mean\""},
        {"algo.correction", "\"ppo-clip\""},
        {"algo.parameters.ppo-clip.low", "0.2"},
        {"algo.parameters.ppo-clip.high", "0.28"},
        {"algo.drop_equal_groups", "true"},
        {"algo.overlong", "\"penalty\""},
        {"algo.minibatches", "16"}}},
      {"dr_grpo",
       "GRPO without its two normalizations",
       "arXiv 2503.20783; 8 steps a batch as in sail-sg/understand-r1-zero, examples/qwen2.5-math-7b.sh",
       {{"algo.advantage", "\"dr_grpo\""},
        {"algo.reduction", "\"constant\""},
        {"algo.correction", "\"ppo-clip\""},
        {"algo.parameters.ppo-clip.low", "0.2"},
        {"algo.parameters.ppo-clip.high", "0.2"},
        {"algo.minibatches", "8"}}},
      {"grpo-seq-mis",
       "PPO's clip times the masked product of pi_old / q over the response",
       "Liu et al. 2025 on Dr. GRPO, as compared in arXiv 2510.26788: 4 steps a batch; C = 3 (10 in "
       "sail-sg/Precision-RL)",
       {{"algo.advantage", "\"dr_grpo\""},
        {"algo.reduction", "\"constant\""},
        {"algo.correction", "\"decoupled\""},
        {"algo.parameters.decoupled.level", "\"sequence\""},
        {"algo.parameters.decoupled.weight", "\"mask\""},
        {"algo.parameters.decoupled.low", "0.0"},
        {"algo.parameters.decoupled.high", "3.0"},
        {"algo.minibatches", "4"}}},
      {"grpo-token-tis",
       "PPO's clip times the token's pi_old / q, truncated",
       "Yao et al. 2025 on Dr. GRPO, as compared in arXiv 2510.26788: C = 2, 4 steps a batch (sail-sg/Precision-RL)",
       {{"algo.advantage", "\"dr_grpo\""},
        {"algo.reduction", "\"constant\""},
        {"algo.correction", "\"decoupled\""},
        {"algo.parameters.decoupled.level", "\"token\""},
        {"algo.parameters.decoupled.weight", "\"truncate\""},
        {"algo.parameters.decoupled.low", "0.0"},
        {"algo.parameters.decoupled.high", "2.0"},
        {"algo.minibatches", "4"}}},
      {"gspo",
       "PPO's clip on the geometric mean of a response's ratios",
       "arXiv 2507.18071 (section 5.1: four mini-batches per batch)",
       {{"algo.advantage", "\"grpo\""},
        {"algo.reduction", "\"sequence_mean\""},
        {"algo.correction", "\"gspo\""},
        {"algo.parameters.gspo.low", "3e-4"},
        {"algo.parameters.gspo.high", "4e-4"},
        {"algo.minibatches", "4"}}},
      {"icepop",
       "masked importance sampling, one step a batch",
       "arXiv 2510.18855, in the setting of the mixed-fleet study: modal-projects/stitch, IcePop arm",
       {{"algo.advantage", "\"grpo\""},
        {"algo.reduction", "\"token_mean\""},
        {"algo.correction", "\"mis\""},
        {"algo.parameters.mis.low", "0.5"},
        {"algo.parameters.mis.high", "5.0"},
        {"algo.minibatches", "1"}}},
      {"modal-sc-mis-top-p",
       "score centering with masked importance sampling under replayed top-p: the mixed-fleet study's last recipe",
       "modal-projects/stitch, configs/qwen3_6_35b_a3b_hetero_score_centering_mis.py and its top-p arm",
       {{"algo.advantage", "\"dr_grpo\""},
        {"algo.reduction", "\"token_mean\""},
        {"algo.correction", "\"sc+mis\""},
        {"algo.parameters.mis.low", "0.5"},
        {"algo.parameters.mis.high", "5.0"},
        {"algo.minibatches", "1"},
        {"sampling.temperature", "1.0"},
        {"sampling.top_p", "0.97"},
        {"sampling.top_k", "64"}}},
      {"pg-seq-is-fp16",
       "policy gradient with importance sampling of the response, fp16 in trainer and samplers",
       "arXiv 2510.26788, C = 3; 4 steps a batch (sail-sg/Precision-RL); sampler groups of other profiles keep them",
       {{"algo.advantage", "\"dr_grpo\""},
        {"algo.reduction", "\"constant\""},
        {"algo.correction", "\"pg-seq-is\""},
        {"algo.parameters.pg-seq-is.cap", "3.0"},
        {"algo.parameters.pg-seq-is.mode", "\"truncate\""},
        {"algo.minibatches", "4"},
        {"trainer.profile", "\"fp16\""}}},
  };
  return all;
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const Recipe& recipe : recipes()) names.push_back(recipe.name);
  return names;
}

void apply_recipe(Node& document) {
  const std::string name = text_at(document, "algo", "recipe");
  if (name.empty()) return;  // none, or no text: the loader says so
  const Position at = document.find("algo")->value.find("recipe")->value.at;
  for (const Recipe& recipe : recipes()) {
    if (recipe.name != name) continue;
    bool own_correction = true;
    for (const auto& [key, value] : recipe.keys) {
      if (key.starts_with("algo.parameters.") && !own_correction) continue;
      enter(document, split_path(key), value, at);
      if (key == "algo.correction") own_correction = toml_text(text_at(document, "algo", "correction")) == value;
    }
    return;
  }
}

}  // namespace motley::app
