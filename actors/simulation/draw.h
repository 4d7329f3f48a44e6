// The random numbers of a simulation. An episode's lengths depend on seed and episode alone, so that every fleet of a
// comparison serves the same episodes.
#pragma once

#include "actors/simulation/fleet_plan.h"
#include "kernels/philox.h"

namespace motley::simulation {

enum class Draw : uint64_t { turns = 1, reply = 2, speed = 3, life = 4 };

/// Numbers of one kind for one subject.
kernels::RandomStream stream(uint64_t seed, Draw kind, uint64_t subject, uint64_t repetition = 0);
/// Log-normal with mean 1 and standard deviation `spread`.
double factor(kernels::RandomStream& random, double spread);
/// At least 1.
int64_t draw(const Length& length, kernels::RandomStream& random);
/// Tokens of an episode's turn: of the plan's measured replies, or by its distribution.
int64_t draw_reply(const EpisodePlan& plan, kernels::RandomStream& random);
/// Exponential with this mean.
double draw_exponential(double mean, kernels::RandomStream& random);

}  // namespace motley::simulation
