// The model that decoding and training are timed at.
#pragma once

#include "tensor/engine.h"

namespace motley::device_bench {

/// Qwen3-0.6B by its config.json (huggingface.co/Qwen/Qwen3-0.6B): 596 million parameters. Tiny: for the emulator.
inline TransformerConfig qwen3(bool tiny) {
  TransformerConfig config;
  config.vocabulary = tiny ? 32 : 151936;
  config.layers = tiny ? 1 : 28;
  config.width = tiny ? 16 : 1024;
  config.heads = tiny ? 2 : 16;
  config.kv_heads = tiny ? 1 : 8;
  config.head_dim = tiny ? 8 : 128;
  config.ffn = tiny ? 16 : 3072;
  config.qk_norm = true;
  config.tied_head = true;
  config.rope_theta = 1e6;
  config.max_positions = tiny ? 32 : 4096;
  return config.resolved();
}

}  // namespace motley::device_bench
