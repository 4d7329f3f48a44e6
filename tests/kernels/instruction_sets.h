// Runs a check with the kernels of every instruction set that this machine has.
#pragma once

#include <catch2/catch.hpp>

#include "kernels/cpu/matmul_inner.h"

namespace motley::kernels {

template <class Body>
void on_every_instruction_set(Body&& body) {
  for (int set = 0; set < cpu::instruction_sets(); ++set) {
    cpu::use_instruction_set(set);
    INFO("instruction set " << set);
    body();
  }
  cpu::use_best_instruction_set();
}

}  // namespace motley::kernels
