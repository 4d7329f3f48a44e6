#!/usr/bin/python3
"""An environment of several replies: guess a digit, told too low (<) or too high (>). Run: guess.py tcp://127.0.0.1:5702"""
import sys

from motley_env import Observation, Reward, serve


class Game:
    def __init__(self, secret):
        self.secret, self.guesses, self.low, self.high = secret, 0, 0, 9

    def reply(self, text, ended):
        self.guesses += 1
        if not (ended and text.isdigit() and len(text) == 1):
            return Reward(0, format_error=True, end="malformed")
        guess = int(text)
        if guess == self.secret:
            return Reward(1 if self.guesses <= 4 else 0.5, {"guesses": self.guesses}, end="found")
        self.low, self.high = (guess + 1, self.high) if guess < self.secret else (self.low, guess - 1)
        return Observation("<" if guess < self.secret else ">")

    def end(self, reason):
        return 0

    def demonstration(self):
        return str((self.low + self.high) // 2)


class Guess:
    name, version, demonstrations = "guess", "1", True
    symbols = list("0123456789?<>")

    def problem(self, seed, index, held_out):
        return {"prompt": "?", "answer": str((seed + 7 * index) % 10)}

    def begin(self, prompt, answer):
        return Game(int(answer))


if __name__ == "__main__":
    serve(Guess(), sys.argv[1])
