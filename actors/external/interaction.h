// An episode that a program elsewhere plays: its texts are read with loss mask 0, replies are decoded for it alone.
#pragma once

#include "actors/external/environment.h"
#include "envs/interaction.h"

namespace motley::actors {

/// A task's own limits of an episode.
struct ExternalEpisodeLimits {
  int64_t turns = 16;
  int64_t tokens = 0;  // read and drawn; 0: as many as the model has room for
};

class ExternalInteraction final : public envs::Interaction {
 public:
  /// Begins the episode at the server. The tokenizer must outlive it. Throws ExternalError.
  ExternalInteraction(std::shared_ptr<ExternalClient> client, std::shared_ptr<const ExternalInfo> info,
                      const envs::Problem& problem, const envs::Tokenizer& tokenizer,
                      const envs::InteractionLimits& model, const ExternalEpisodeLimits& own);
  /// Tells the server to forget the episode.
  ~ExternalInteraction() override;

  std::optional<int64_t> begin() override;
  std::optional<int64_t> replied(std::span<const int32_t> prompt, std::span<const int32_t> reply) override;
  const std::vector<int32_t>& context() const override { return context_; }
  const std::vector<uint8_t>& drawn() const override { return drawn_; }
  envs::InteractionOutcome outcome() override;
  /// The reply that the server demonstrates here; nothing: it has said none.
  const std::optional<std::string>& demonstration() const { return demonstration_; }

 private:
  ExternalRequest request(std::string what) const;
  void read(std::string_view text);
  std::optional<int64_t> ask();
  std::optional<int64_t> finish(std::string end, bool truncated);
  std::optional<int64_t> fail(const std::string& reason);
  /// The reward and the words of the end, from an answer that has them.
  void take_reward(ExternalAnswer& answer);
  int64_t room() const { return tokens_ - static_cast<int64_t>(context_.size()); }

  std::shared_ptr<ExternalClient> client_;
  std::shared_ptr<const ExternalInfo> info_;
  const envs::Tokenizer* tokenizer_;
  int64_t turns_left_, tokens_, reply_tokens_;
  std::string episode_;  // its name at the server
  int64_t turn_ = 0;
  std::vector<int32_t> context_;
  std::vector<uint8_t> drawn_;
  std::optional<std::string> demonstration_;
  envs::InteractionOutcome outcome_;
  bool scored_ = false;
};

}  // namespace motley::actors
