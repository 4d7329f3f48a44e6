#!/usr/bin/python3
"""An environment of one reply: the letters of the prompt backwards. Run: reverse.py tcp://127.0.0.1:5701"""
import random
import sys

from motley_env import Reward, serve


class Reverse:
    name, version = "reverse", "1"
    symbols = list("abcdefgh>")
    demonstrations = True

    def problem(self, seed, index, held_out):
        drawn = random.Random(f"{seed} {index} {held_out}")
        while True:  # a word is held out or not by itself, so that no prompt is in both sets
            word = "".join(drawn.choices("abcdefgh", k=3))
            if (sum(map(ord, word)) % 8 == 0) == held_out:
                return {"prompt": word + ">", "answer": word[::-1], "demonstration": word[::-1]}

    def score(self, prompt, answer, reply, ended):
        right = sum(a == b for a, b in zip(reply, answer)) / len(answer)
        return Reward(float(ended and reply == answer), {"letters": right}, format_error=len(reply) != len(answer))


serve(Reverse(), sys.argv[1])
