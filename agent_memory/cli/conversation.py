"""The conversation that `agent-memory demo` plays: Sarah asks HR about remote work."""

from __future__ import annotations

SESSION = "hr-remote-work"
USER = "sarah"

FACTS = (
    "Remote work is possible up to 3 days a week, with the manager's approval.",
    "Eligible are employees with at least 6 months of service, satisfactory reviews, a suitable "
    "role, and the equipment and internet it takes.",
)

SYSTEM = "You are the HR assistant of Northwind. Answer from the policy, briefly and kindly."

TURNS = (
    ("Hi, I'm Sarah from Marketing. Could you explain the remote work policy to me?",
     "Hello Sarah! You can work remotely up to 3 days a week, as long as your manager approves "
     "it. Tell me what you would like to know more about."),
    ("Who is eligible for it?",
     "There are four conditions: at least 6 months of service, satisfactory performance reviews, "
     "a role that suits remote work, and the equipment and an internet connection to do it with."),
    ("I've been here for 2 years, and my reviews have been good. Does that do?",
     "It does. With 2 years of service and good reviews you're eligible, Sarah, and roles in "
     "Marketing suit remote work. What's left is your manager's approval."),
    ("Lovely. How do I apply?",
     "For remote work you need form HR-101. You'll find it on the employee portal, and it goes to "
     "your manager once you submit it."),
    ("And if my manager says no?",
     "Then ask for feedback first, so that you know the reasons. Propose a trial period next; it "
     "often settles doubts. If you still can't agree, HR offers mediation between the two of you."),
    ("What equipment would I get?",
     "A company laptop, and an allowance of up to $300 for a proper chair. Keep the receipt."),
    ("My sister lives in Lisbon. Could I work from there for a while?",
     "From abroad you can work at most 2 weeks a year. It has to be approved 30 days ahead, since "
     "taxes and insurance need checking."),
    ("So for two weeks from June 1 I'd need the approval by May 2?",
     "Exactly, by May 2. I'd hand the request in by the middle of April, so that there's time for "
     "questions."),
    ("Then I'd stay home on Mondays, Wednesdays and Fridays, once it's approved.",
     "That makes 3 days a week, just within the policy. Put those days on the form, and your "
     "manager can say yes or suggest others."),
)  # fmt: skip

QUESTION = "Do I qualify for working from home, and which document do I fill in?"


CLAIMS = {
    "her name": r"\bSarah\b",
    "her department": r"\bMarketing\b",
    "her eligibility": r"(?i)\b(2|two) years\b|\b(she|you|sarah)( is|'re| are) eligible",
}
"""Facts that memory must have after the overflow, each with a pattern that matches it."""


def messages() -> list[dict[str, str]]:
    """Return the whole conversation as chat messages."""
    turns = [zip(("user", "assistant"), turn, strict=True) for turn in TURNS]
    said = [("system", SYSTEM), *(one for turn in turns for one in turn)]
    return [{"role": role, "content": text} for role, text in said]
