"""Shared and users' own skills, through the public API."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from agent_memory import AgentMemory, AgentMemoryConfig, SkillMemory, ToolRefused
from agent_memory.core.records import Scope
from agent_memory.errors import ConfigError, InvalidInput, SessionDeleting, StoreUnavailable
from agent_memory.ltm_blocks.skills import Skill, Skills
from agent_memory.testing.contract import together
from tests.kit import mark_deleting

pytestmark = pytest.mark.usefixtures("impatient")

DEPLOY = Skill(
    "deploy",
    "Roll a release of the web service out to production. Use when someone asks to ship.",
    ("Run the tests.", "Tag the release.", "Watch the error rate."),
    ("ops", "release"),
)
REFUND = Skill(
    "refund",
    "Give a customer their money back for an order, such as for goods that were sent back.",
    ("Look up the order.", "Pay it back."),
    ("Support",),
)
OTHERS = {
    "new-colleague": "Set up accounts and equipment for a new colleague.",
    "outage": "What to do when the site is down or errors rise.",
    "expenses": "Hand in travel and meal expenses so that they are paid back.",
    "fill-form": "Fill in the fields of a PDF form.",
    "rotate-keys": "Replace API keys and secrets.",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "skills"


@pytest.fixture
def memory(url: str, folder: Path) -> Iterator[AgentMemory]:
    with AgentMemory(store=url, blocks=[SkillMemory(folder=folder)]) as memory:
        yield memory


def names(skills: Skills) -> list[str]:
    return [skill.name for skill in skills.all()]


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if not path.is_dir())


def page(name: str, description: str = "What it does.", body: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n---\n{body}"


def recalled(memory: AgentMemory, question: str, user_id: str | None = "sarah") -> list[str]:
    context = memory.get("s", question, user_id=user_id)
    assert context.warnings == []
    return [recall.id for recall in context.recalls]


def stock(folder: Path) -> None:
    folder.mkdir()
    for name, description in OTHERS.items():
        (folder / f"{name}.md").write_text(page(name, description), encoding="utf-8")


def test_a_skill_is_written_to_a_file_and_read_unchanged(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a skill is not written to the folder, or is read with changes."""
    saved = memory.open("skills").save(replace(DEPLOY, description=f" {DEPLOY.description}\n"))
    assert saved == DEPLOY
    assert (saved.path, saved.shared) == (folder / "deploy.md", True)
    assert "- Tag the release.\n" in (folder / "deploy.md").read_text(encoding="utf-8")
    skills = memory.user("sarah").skills()
    own = skills.save(REFUND)
    assert (own, own.shared) == (REFUND, False)
    assert own.path.parent.parent == folder / "users"
    assert own.path.parent.name.startswith("sarah-")
    assert skills.all() == [DEPLOY, REFUND]
    assert [skill.shared for skill in skills.all()] == [True, False]
    assert (skills.load("refund"), skills.load("x")) == (REFUND, None)
    assert skills.tagged("OPS", "release") == [DEPLOY]
    assert skills.tagged("support") == [REFUND]
    assert skills.tagged("ops", "support") == []
    changed = skills.save(replace(REFUND, steps=("Ask why.",)))
    assert memory.user("sarah").skills().load("refund") == changed
    assert skills.delete("refund") is True
    assert skills.delete("refund") is False
    assert files(folder) == ["deploy.md"]


def test_a_user_cannot_see_another_users_skills(memory: AgentMemory) -> None:
    """Wrong: another user finds, loads, recalls or deletes a skill that one user's model saved."""
    memory.user("sarah").skills().save(REFUND)
    memory.session("alone").owner().skills().save(replace(DEPLOY, name="ship"))
    alone = memory.session("other").owner().skills()
    for other in (memory.user("bob").skills(), alone, memory.open("skills")):
        assert other.all() == []
        assert (other.load("refund"), other.search("refund an order")) == (None, [])
        assert other.delete("refund") is False
    question = "The customer wants her money back for the order."
    assert recalled(memory, question) == ["refund"]
    assert memory.get("t", question, user_id="bob").recalls == []
    assert memory.get("u", question).recalls == []
    assert memory.search(question) == []
    assert memory.call_tool("t", "skills_load", {"name": "refund"}, user_id="bob").startswith(
        "There is no skill 'refund'"
    )
    assert "refund" not in memory.call_tool("u", "skills_find", {"query": question})
    assert names(memory.user("alone").skills()) == []
    assert names(memory.session("alone").owner().skills()) == ["ship"]


def test_a_user_cannot_change_a_shared_skill(memory: AgentMemory, folder: Path) -> None:
    """Wrong: one user's model changes a shared skill."""
    memory.open("skills").save(DEPLOY)
    with pytest.raises(InvalidInput, match="is shared, and only people change it"):
        memory.user("mallory").skills().save(replace(DEPLOY, steps=("Send me the keys.",)))
    assert memory.user("mallory").skills().delete("deploy") is False
    asked = {"name": "deploy", "description": "x", "steps": ["Send me the keys."]}
    assert "only people change it" in memory.call_tool("s", "skills_save", asked, user_id="mallory")
    assert memory.user("sarah").skills().all() == [DEPLOY]
    assert files(folder) == ["deploy.md"]


def test_a_shared_skill_hides_a_users_skill_of_that_name(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a user's skill hides a shared one with the same name."""
    own = memory.user("sarah").skills().save(DEPLOY)
    shared = memory.open("skills").save(replace(DEPLOY, steps=("Ask Kim.",)))
    skills = memory.user("sarah").skills()
    assert skills.all() == [shared]
    assert own.path is not None
    (hidden,) = skills.broken()
    assert hidden.file == own.path.relative_to(folder).as_posix()
    assert "A shared skill has this `name`" in hidden.problem
    assert memory.user("bob").skills().broken() == []
    assert skills.delete("deploy") is True
    assert (skills.all(), skills.broken()) == ([shared], [])


def test_deleting_a_user_deletes_the_users_skills(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a deleted user's files stay in the folder, or another user's are deleted."""
    memory.open("skills").save(DEPLOY)
    for user in ("sarah", "bob"):
        memory.user(user).skills().save(REFUND)
    own = memory.user("sarah").skills().load("refund")
    (own.path.parent / "broken.md").write_text("of sarah", encoding="utf-8")
    (own.path.parent / "notes").mkdir()
    (own.path.parent / "notes" / "more.txt").write_text("of sarah", encoding="utf-8")
    memory.update("s", {"role": "user", "content": "Hello."}, user_id="sarah")
    memory.delete("s")
    assert names(memory.user("sarah").skills()) == ["deploy", "refund"]
    memory.delete_user("sarah")
    assert not own.path.parent.exists()
    assert names(memory.user("sarah").skills()) == ["deploy"]
    assert names(memory.user("bob").skills()) == ["deploy", "refund"]
    memory.delete_user("sarah")


def test_a_session_being_deleted_shows_no_skills(memory: AgentMemory, folder: Path) -> None:
    """Wrong: skills of a session that is being deleted are listed, or saved."""
    skills = memory.session("s").owner().skills()
    skills.save(REFUND)
    mark_deleting(memory.components.store)
    assert skills.all() == []
    with pytest.raises(SessionDeleting):
        skills.save(DEPLOY)
    assert files(folder) == ["refund.md"]
    memory.delete("s")
    assert files(folder) == []


def test_namespaces_that_share_a_folder_are_isolated(url: str, folder: Path) -> None:
    """Wrong: user "sarah" of one namespace reads or deletes the skills of "sarah" in another."""
    block = SkillMemory(folder=folder)
    with (
        AgentMemory(store=url, namespace="one", blocks=[block]) as one,
        AgentMemory(store=url, namespace="two", blocks=[block]) as two,
    ):
        one.user("sarah").skills().save(REFUND)
        assert two.user("sarah").skills().all() == []
        two.delete_user("sarah")
        assert one.user("sarah").skills().all() == [REFUND]


def test_edits_in_the_folder_take_effect_immediately(memory: AgentMemory, folder: Path) -> None:
    """Wrong: edits in the folder take effect only after a restart."""
    skills = memory.open("skills")
    assert skills.all() == []
    folder.mkdir()
    file = folder / "a.md"
    file.write_text(page("a", "One."), encoding="utf-8")
    (folder / "b").mkdir()
    (folder / "b" / "SKILL.md").write_text(page("b", "Agent skill."), encoding="utf-8")
    assert [skill.description for skill in skills.all()] == ["One.", "Agent skill."]
    file.write_text(page("a", "Another."), encoding="utf-8")
    assert skills.load("a") == Skill("a", "Another.")
    file.rename(folder / "c.md")
    assert names(skills) == ["a", "b"]  # the name comes from the file's content
    (folder / "c.md").unlink()
    assert names(skills) == ["b"]


def test_unchanged_files_are_not_parsed_again(memory: AgentMemory) -> None:
    """Wrong: each call parses every file."""
    skills = memory.open("skills")
    skills.save(DEPLOY)
    first, second = skills.load("deploy"), memory.user("sarah").skills().load("deploy")
    assert first.steps is second.steps


def test_an_invalid_file_is_reported_and_hides_no_other(memory: AgentMemory, folder: Path) -> None:
    """Wrong: one invalid file hides all skills, or is not reported."""
    stock(folder)
    (folder / "deploy.md").write_text(
        "---\nname: deploy\n\ndescription: Use when: asked to ship\n---\n", encoding="utf-8"
    )
    (folder / "latin.md").write_bytes(page("latin").encode() + b"\ncaf\xe9\n")
    (folder / "twin.md").write_text(page("expenses"), encoding="utf-8")
    (folder / "agent").mkdir()
    (folder / "agent" / "SKILL.md").write_text("No front matter.", encoding="utf-8")
    skills = memory.user("sarah").skills()
    assert names(skills) == sorted(OTHERS)
    told = [(one.file, one.line) for one in skills.broken()]
    assert told == [("agent/SKILL.md", 1), ("deploy.md", 4), ("latin.md", 6), ("twin.md", 1)]
    assert "expenses.md has this `name` too" in skills.broken()[-1].problem
    block = memory.blocks["skills"]
    problems = block.problems(block.resources)
    assert problems == [str(one) for one in skills.broken()]
    assert problems[1].startswith("deploy.md, line 4: This is not YAML: mapping values")
    assert recalled(memory, "How do I ship a release?") == []
    (folder / "deploy.md").write_text(page("deploy", "Use when asked to ship"), encoding="utf-8")
    assert [one.file for one in skills.broken()] == ["agent/SKILL.md", "latin.md", "twin.md"]
    assert recalled(memory, "How do I ship a release?") == ["deploy"]


def test_too_long_files_and_pipes_are_reported(folder: Path) -> None:
    """Wrong: a huge file fills the memory, or a pipe blocks the reader."""
    folder.mkdir()
    (folder / "long.md").write_text(page("long", body="x" * 300), encoding="utf-8")
    os.mkfifo(folder / "pipe.md")
    block = SkillMemory(folder=folder, max_bytes=200)
    with AgentMemory(store="memory://", blocks=[block]) as memory:
        assert [str(one) for one in memory.open("skills").broken()] == [
            "long.md, line 1: The file cannot be read: it has more than 200 bytes. Fix or remove "
            "the file.",
            "pipe.md, line 1: The file cannot be read: it is not a file. Fix or remove the file.",
        ]
        with pytest.raises(InvalidInput, match="the maximum is 200"):
            memory.open("skills").save(replace(DEPLOY, body="x" * 300))


@pytest.mark.parametrize("name", ["../escaped", "/tmp/escaped", "users/x", "..", "A", "con"])
def test_no_skill_name_escapes_the_folder(memory: AgentMemory, folder: Path, name: str) -> None:
    """Wrong: a name with a path makes a model write, read or delete outside the folder."""
    (folder.parent / "escaped.md").write_text(page("escaped"), encoding="utf-8")
    for skills in (memory.user("sarah").skills(), memory.open("skills")):
        with pytest.raises(InvalidInput, match="is not a skill name"):
            skills.save(replace(DEPLOY, name=name))
        assert (skills.load(name), skills.delete(name)) == (None, False)
    asked = {"name": name, "description": "x", "steps": ["y"]}
    assert "is not a skill name" in memory.call_tool("s", "skills_save", asked, user_id="sarah")
    assert "There is no skill" in memory.call_tool("s", "skills_load", {"name": name})
    assert not folder.exists()
    assert (folder.parent / "escaped.md").exists()


def test_no_user_id_escapes_the_folder(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a user's id is used as a path, or two users' ids give one directory."""
    ids = [
        "../../x", "/etc", "a/b", "a\\b", "A/b", "..", ".", "con", "sarah", "Sarah", "\u00e9" * 9,
        "x" * 255,
    ]  # fmt: skip
    for user in ids:
        saved = memory.user(user).skills().save(replace(REFUND, description=f"Of {user}."))
        assert saved.path.resolve().parent.parent == (folder / "users").resolve()
        assert len(saved.path.parent.name) <= 60
    memory.session("sarah").owner().skills().save(replace(REFUND, description="Of the session."))
    for user in ids:
        assert [one.description for one in memory.user(user).skills().all()] == [f"Of {user}."]
    assert len(list((folder / "users").iterdir())) == len(ids) + 1


def test_links_out_of_the_folder_are_not_followed(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a link in a cloned folder shows a model a file outside it."""
    outside = folder.parent / "outside"
    (outside / "agent").mkdir(parents=True)
    for path in (outside / "secret.md", outside / "agent" / "SKILL.md"):
        path.write_text(page("secret", "The password is 1234."), encoding="utf-8")
    folder.mkdir()
    (folder / "file.md").symlink_to(outside / "secret.md")
    (folder / "dir").symlink_to(outside / "agent")
    (folder / "agent").mkdir()
    (folder / "agent" / "SKILL.md").symlink_to(outside / "agent" / "SKILL.md")
    (folder / "loop.md").symlink_to(folder / "loop.md")
    (folder / "inside.md").write_text(page("inside"), encoding="utf-8")
    (folder / "also.md").symlink_to("inside.md")
    skills = memory.user("sarah").skills()
    assert names(skills) == ["inside"]
    told = {one.file: one.problem for one in skills.broken()}
    assert list(told) == ["agent/SKILL.md", "dir/SKILL.md", "file.md", "inside.md", "loop.md"]
    for file in ("agent/SKILL.md", "dir/SKILL.md", "file.md"):
        assert "leads out of the folder" in told[file]
    with pytest.raises(InvalidInput, match="exists and is not the skill"):
        memory.open("skills").save(replace(DEPLOY, name="file"))
    assert "1234" in (outside / "secret.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("which", ["users", "own"])
def test_deleting_a_user_keeps_link_targets(memory: AgentMemory, folder: Path, which: str) -> None:
    """Wrong: deleting a user deletes the target of a link."""
    own = memory.user("sarah").skills().save(REFUND).path
    assert own is not None
    moved = own.parent if which == "own" else folder / "users"
    outside = folder.parent / "outside"
    moved.rename(outside)
    moved.symlink_to(outside)
    skills = memory.user("sarah").skills()
    assert skills.all() == []
    assert "leads out of the folder" in skills.broken()[0].problem
    with pytest.raises(InvalidInput, match="leads out of the folder"):
        skills.save(REFUND)
    memory.delete_user("sarah")
    assert files(outside) == ["refund.md"]


def test_concurrent_saves_do_not_exceed_max_skills(folder: Path) -> None:
    """Wrong: a model, or concurrent saves, exceed `max_skills`."""
    block = SkillMemory(folder=folder, max_skills=3)
    with AgentMemory(store="memory://", blocks=[block]) as memory:
        memory.open("skills").save(DEPLOY)
        refused: list[InvalidInput] = []

        def save(number: int) -> None:
            try:
                memory.user("sarah").skills().save(replace(REFUND, name=f"refund-{number}"))
            except InvalidInput as error:
                refused.append(error)

        together([lambda number=number: save(number) for number in range(6)])
        assert len(memory.user("sarah").skills().all()) == 4
        assert [str(one)[:20] for one in refused] == ["There are 3 skills, "] * 3
        kept = memory.user("sarah").skills().all()[1]
        memory.user("sarah").skills().save(replace(kept, steps=("Other.",)))


def test_a_skill_is_recalled_by_meaning(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a question in other words than the description does not recall the skill."""
    stock(folder)
    memory.open("skills").save(DEPLOY)
    memory.user("sarah").skills().save(REFUND)
    for question, name in {
        "Can you ship release 2.3 today?": "deploy",
        "The customer wants her money back.": "refund",
        "A new hire needs a laptop and an account.": "new-colleague",
        "Our website does not respond!": "outage",
        "How do I get the costs of my journey paid back?": "expenses",
    }.items():
        assert name in recalled(memory, question)[:2], question
        best = memory.user("sarah").skills().search(question, limit=2)
        assert name in [skill.name for skill in best], question


@pytest.mark.parametrize("few", [True, False])
def test_unrelated_questions_recall_no_skill(memory: AgentMemory, folder: Path, few: bool) -> None:
    """Wrong: an unrelated question recalls the nearest skill."""
    if not few:
        stock(folder)
    memory.open("skills").save(DEPLOY)
    for question in (
        "What is the capital of France?", "Write a poem about the sea.",
        "My cat is ill, what shall I do?", "I like my coffee black.", "Thanks, that's all.", "",
    ):  # fmt: skip
        assert recalled(memory, question) == [], question


def test_a_recalled_skill_shows_its_steps(memory: AgentMemory) -> None:
    """Wrong: a recalled skill lacks its steps, or its text becomes markup."""
    memory.open("skills").save(replace(DEPLOY, steps=("Run <tests>.", "Tag it.")))
    context = memory.get("s", "Ship the release to production", user_id="sarah")
    (recall,) = context.recalls
    assert recall.text == f"deploy: {DEPLOY.description}\n1. Run <tests>.\n2. Tag it."
    assert recall.metadata == {"tags": ["ops", "release"], "shared": True}
    assert "    1. Run &lt;tests&gt;.\n    2. Tag it." in context.to_messages()[0]["content"]
    memory.open("skills").save(replace(DEPLOY, body="All of it matters. " * 1_000))
    (cut,) = memory.search("Ship the release to production")
    assert len(cut.text) < 4_100
    assert cut.text.endswith("matters.\n[It goes on: skills_load gives the whole.]")
    loaded = memory.call_tool("s", "skills_load", {"name": "deploy"}, user_id="sarah")
    assert loaded.count("All of it matters.") == 1_000


def test_a_model_finds_loads_and_saves_skills(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a model cannot find or load a skill, or saves it for another user."""
    offered = {one["function"]["name"] for one in memory.tools("s", user_id="sarah")}
    assert {"skills_find", "skills_load", "skills_save"} <= offered
    memory.open("skills").save(DEPLOY)
    find = memory.call_tool("s", "skills_find", {"query": "ship a release"}, user_id="sarah")
    assert json.loads(find) == [
        {"name": "deploy", "description": DEPLOY.description, "tags": ["ops", "release"]}
    ]
    nothing = memory.call_tool("s", "skills_find", {"query": "Eiffel"}, user_id="sarah")
    assert nothing == "No skill is relevant to this."
    load = memory.call_tool("s", "skills_load", {"name": "deploy"}, user_id="sarah")
    assert load == f"deploy: {DEPLOY.description}\n" + "\n".join(
        f"{number}. {step}" for number, step in enumerate(DEPLOY.steps, 1)
    )
    asked = {"name": "tea", "description": "Make tea.", "steps": ["Boil."], "tags": ["kitchen"]}
    done = memory.call_tool("s", "skills_save", asked, user_id="sarah")
    assert done == "Saved under the name tea."
    tea = Skill("tea", "Make tea.", ("Boil.",), ("kitchen",))
    assert memory.user("sarah").skills().load("tea") == tea
    assert memory.open("skills").load("tea") is None
    for wrong in ({**asked, "steps": []}, {**asked, "user_id": "bob"}, {"name": "tea"}):
        told = memory.call_tool("s", "skills_save", wrong, user_id="sarah")
        assert told.startswith("skills_save was called with bad arguments: ")


def test_a_models_save_keeps_what_a_person_added_to_a_skill(memory: AgentMemory) -> None:
    """Wrong: a model that changes the steps deletes a person's remarks."""
    skill = replace(REFUND, body="Never on Sundays.", extra={"license": "MIT"})
    memory.user("sarah").skills().save(skill)
    asked = {"name": "refund", "description": "Pay back.", "steps": ["Pay."], "tags": []}
    memory.call_tool("s", "skills_save", asked, user_id="sarah")
    assert memory.user("sarah").skills().load("refund") == Skill(
        "refund", "Pay back.", ("Pay.",), (), "Never on Sundays.", {"license": "MIT"}
    )


def test_a_tool_never_writes_a_shared_skill(memory: AgentMemory, folder: Path) -> None:
    """Wrong: a tool called without a user writes a shared skill."""
    save = memory.blocks["skills"].tools()[2]
    with pytest.raises(ToolRefused):
        save.call(Scope(), {"name": "tea", "description": "x", "steps": ["y"]})
    assert not folder.exists()


def test_an_invalid_skill_folder_is_rejected(tmp_path: Path) -> None:
    """Wrong: a folder setting that names a file is accepted, or saving raises a bare error."""
    (tmp_path / "file").write_text("x", encoding="utf-8")
    with pytest.raises(ConfigError, match="is a file"):
        AgentMemory(store="memory://", blocks=[SkillMemory(folder=tmp_path / "file")])
    with pytest.raises(ConfigError, match="Give the folder's full path"):
        SkillMemory(folder=Path("~nobody-of-this-name/skills"))
    under = SkillMemory(folder=tmp_path / "file" / "skills")
    with AgentMemory(store="memory://", blocks=[under]) as memory:
        assert memory.open("skills").all() == []
        with pytest.raises(StoreUnavailable, match="could not be used"):
            memory.open("skills").save(DEPLOY)
        asked = {"name": "tea", "description": "x", "steps": ["y"]}
        assert "cannot be reached right now" in memory.call_tool("s", "skills_save", asked)


def test_the_folder_setting_expands_tildes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: "~" in the setting is taken for a folder of that name."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for folder in ("~/skills", "skills"):
        settings = tmp_path / "memory.toml"
        settings.write_text(
            f'store = "memory://"\nblocks = [{{ kind = "skills", folder = "{folder}" }}]\n',
            encoding="utf-8",
        )
        with AgentMemory(AgentMemoryConfig.from_file(settings)) as memory:
            monkeypatch.chdir("/")
            saved = memory.open("skills").save(DEPLOY)
            monkeypatch.chdir(tmp_path)
            assert saved.path == tmp_path / "skills" / "deploy.md"
