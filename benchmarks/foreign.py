"""Requests that no conversation of the data has anything to do with.

What an assistant is asked every day. A memory has nothing to say to them, and should not.
"""

from __future__ import annotations

FOREIGN = (
    "Convert this CSV file into JSON with pandas.",
    "What does the error 'segmentation fault (core dumped)' mean?",
    "Explain the difference between TCP and UDP.",
    "Give me a regular expression that matches IPv6 addresses.",
    "Who won the Nobel Prize in Chemistry in 1911?",
    "How many moons does Neptune have?",
    "Solve the equation 3x + 7 = 22.",
    "Summarise the plot of Hamlet in three sentences.",
    "Rewrite this paragraph in the passive voice.",
    "What is the boiling point of ethanol at sea level?",
    "Write a Dockerfile for a Go service.",
    "Translate 'the invoice is overdue' into German.",
    "What is the difference between a mutex and a semaphore?",
    "Name five rivers in Siberia.",
    "Draft a cease and desist letter about a trademark.",
    "How do I rebase a branch onto main in git?",
    "What is the derivative of sin(x) times e to the x?",
    "Which vitamins are soluble in fat?",
    "Sort these numbers in descending order: 4, 19, 7, 2.",
    "When did the Ottoman Empire end?",
)
