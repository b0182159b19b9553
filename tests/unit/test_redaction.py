"""Texts that redaction replaces, and texts that it leaves."""

import json
import sys
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_memory.core.personal import replaced
from agent_memory.core.redaction import Redactor
from agent_memory.errors import ConfigError, InvalidSetting, MissingExtra
from tests.histories import texts

A36, A48 = "a1B2c3D4e5F6" * 3, "a1B2c3D4e5F6" * 4
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIEpAIBAAKCAQEA7b+/x\n"
    "-----END RSA PRIVATE KEY-----"
)
GONE = [
    # e-mail addresses
    ("bob@example.com", "[email]"),
    ("Write to bob.jones+news@mail.ex-ample.co.uk.", "Write to [email]."),
    ("mailto:bob@example.com?subject=Hi", "mailto:[email]?subject=Hi"),
    ("Bob <bob@example.com>, 'eve@example.org'", "Bob <[email]>, '[email]'"),
    ('{"to":"bob_1%x@example.com"}', '{"to":"[email]"}'),
    ("O'Brien@example.ie wrote", "[email] wrote"),
    ("b@163.com;c@x.io", "[email];[email]"),
    ("用户@例子.广告", "[email]"),
    ("jürgen@müller.de", "[email]"),
    ("हिन्दी@उदाहरण.भारत", "[email]"),
    ("e\u0301va@example.com", "[email]"),
    ("bob@xn--mller-kva.xn--p1ai", "[email]"),
    ("bob@example.com谢谢", "[email]谢谢"),
    ("请写信「bob@example.com」。", "请写信「[email]」。"),
    ("👍bob@example.com👍", "👍[email]👍"),
    (f"{'a' * 70}@example.com", "[email]"),
    ("Hi,\\nbob@example.com\\n", "Hi,\\n[email]\\n"),
    ("CORP\\adam@example.com", "CORP\\[email]"),
    # phone numbers
    ("+49 30 1234567", "[phone]"),
    ("Call +4915112345678!", "Call [phone]!"),
    ("tel:+49-30-1234567", "tel:[phone]"),
    ("(+49) 30 1234567", "[phone]"),
    ("+49 (0)30 1234567", "[phone]"),
    ("+1 415 555 2671 ext. 12", "[phone]"),
    ("+1-555-123-4567", "[phone]"),
    ("\uff0b49 30 1234567", "[phone]"),
    ("0049 30 1234567", "[phone]"),
    ("from 00491761234567, then", "from [phone], then"),
    ("0032 450 00 12 34", "[phone]"),
    ("00 49 30 1234567, 00 49 30 7654321", "[phone], [phone]"),
    ("001 268-460-1234", "[phone]"),
    ("+33.6.12.34.56.78", "[phone]"),
    ("+44 20 7946 0958 or +91 98765 43210", "[phone] or [phone]"),
    ("(415) 555-2671", "[phone]"),
    ("(555)123-4567", "[phone]"),
    ("415-555-2671 x5", "[phone]"),
    ("+1 415 555 2671 100 times", "[phone] 100 times"),
    ("+1 555 123 4567 100 times", "[phone] 100 times"),
    ("1-415-555-2671", "[phone]"),
    ("415.555.2671", "[phone]"),
    ("a\\n+49 30 1234567\\nb", "a\\n[phone]\\nb"),
    ("2024-01-05 10:30:00 +49 30 1234567", "2024-01-05 10:30:00 [phone]"),
    # payment cards
    ("4111111111111111", "[card]"),
    ("Visa 4111 1111 1111 1111.", "Visa [card]."),
    ("4111-1111-1111-1111", "[card]"),
    ("4111\u00a01111\u00a01111\u00a01111", "[card]"),
    ("3782 822463 10005", "[card]"),
    ("30569309025904", "[card]"),
    ("4222222222222", "[card]"),
    ("6304000000000000000", "[card]"),
    ("2223003122003222", "[card]"),
    ("5 5 0 0 0 0 0 0 0 0 0 0 0 0 0 4", "[card]"),
    ("4111 1111 1111 1111 12/27 123", "[card] 12/27 123"),
    ("5500000000000004 4111111111111111", "[card] [card]"),
    ("Bob,4111111111111111,12/27", "Bob,[card],12/27"),
    ("卡号4111111111111111", "卡号[card]"),
    ("\\n4111111111111111", "\\n[card]"),
    # keys
    (f"sk-{A48}", "[key]"),
    (f"OPENAI_API_KEY=sk-proj-{A36}_-x", "OPENAI_API_KEY=[key]"),
    (f"'sk-ant-api03-{A36}-x_AA'", "'[key]'"),
    ("AKIAIOSFODNN7EXAMPLE", "[key]"),
    ("id: ASIAIOSFODNN7EXAMPLE,", "id: [key],"),
    (f"ghp_{A36} gho_{A36} ghu_{A36}", "[key] [key] [key]"),
    (f"ghs_{A36}\nghr_{A36}", "[key]\n[key]"),
    (f"https://ghp_{A36}@github.com/a/b", "https://[key]@github.com/a/b"),
    (f"github_pat_{A36}_{A36}", "[key]"),
    ("glpat-a1B2c3D4e5F6g7H8i9J0", "[key]"),
    ("glpat-a1B2c3D4e5F6g7H8i9J0a1B2c3D.01.120a1b2c3", "[key]"),
    (f"xoxb-123456789012-{A36}", "[key]"),
    (f"xapp-1-A1B2-{A36}", "[key]"),
    (f"AIza{A36[:35]}", "[key]"),
    (f"sk_live_{A36} rk_live_{A36} pk_live_{A36}", "[key] [key] [key]"),
    (f"sk_test_{A36}", "[key]"),
    (f"//registry.npmjs.org/:_authToken=npm_{A36}", "//registry.npmjs.org/:_authToken=[key]"),
    ("hf_aBcDeFgHiJkLmNoPqRsTuVwXyZaBcDeFgH", "[key]"),
    (f"SG.{A36[:22]}.{A48[:43]}", "[key]"),
    (f"token={JWT};", "token=[key];"),
    (f"Here:\n{PEM}\nand more", "Here:\n[key]\nand more"),
    (json.dumps({"pem": PEM}), '{"pem": "[key]"}'),
    (
        PEM.replace("RSA", "OPENSSH") + "," + PEM.replace("RSA ", "").replace("\n", "\\n"),
        "[key],[key]",
    ),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nx\n-----END PGP PRIVATE KEY BLOCK-----", "[key]"),
    ("Authorization: Bearer abc.def-ghi==", "Authorization: Bearer [key]"),
    ("-H 'authorization: bearer a1b2'", "-H 'authorization: bearer [key]'"),
    ('{"Authorization": "Bearer opaqueopaqueopaque"}', '{"Authorization": "Bearer [key]"}'),
    (f"Authorization: Bearer {JWT}.", "Authorization: Bearer [key]."),
    (f"key:\\nsk-{A48}\\n", "key:\\n[key]\\n"),
    ("密钥AKIAIOSFODNN7EXAMPLE", "密钥[key]"),
]
KEPT = [
    "",
    "In 2019, 2020 and 2021 we met; 1999-2004 we did not.",
    "2019 2020 2021 2022 2023 2024",
    "On 2024-01-05, 05.01.2024, 1/5/2024 and 5-1-2024.",
    "2024-01-05T10:30:00Z 2024-01-05T10:30:00.123456+01:00",
    "2024-01-05 10:30:00,123 INFO 4711 started",
    "20240105103000",
    "10:30:00 +0200 12345678",
    "It costs $1,234,567.89, 1.234.567,89 € or 12 000 000 yen.",
    "+50000000 in sales, +3.5% and +1",
    "Order 1234567890, #20240105-0042 and 112-1234567-1234567.",
    "354-0003301-6732474",
    "Python 3.11.7, v1.2.3-rc.4, 10.0.19045.3803",
    "550e8400-e29b-41d4-a716-446655440000",
    "sk-abcdefghijklmnopqrstuvwxyz",
    "41111111-1111-1111-1111-111111111111",
    "192.168.100.200:8080 and 8.8.8.8/32",
    "2001:db8::8a2e:370:7334",
    "334a6412c9f9d9671f2cbb0b2ac4d90db4111111",
    "d41d8cd98f00b204e9800998ecf8427e",
    "0.4111111111111111 and 3.14159265358979",
    "52.520008, 13.404954",
    "1234567890123",
    "4111111111111112",
    "4111 1111 1111 1112",
    "41111111111111111111",
    "1700000000000 1700000000000000 1700000000000000000",
    "x4111111111111111 4111111111111111x id_4111111111111111",
    "44 29 27 9 45 5 6 35",
    "12 4222 222 222 222",
    "12345.4111111111111111",
    "527 453 24 734 374 148",
    "ISBN 978-3-16-148410-0",
    "SSN-like 078-05-1120",
    "00:1b:44:11:3a:b7",
    "0000000042 000 00 0",
    "12345 + 67890 = 80235",
    "1,2,3,4,5,6,7,8,9,10,11,12,13",
    "123-456-7890 and 15-555-2671",
    "030 1234567",
    "@bob and bob@ and @ and a @ b.com",
    "user@localhost root@10.0.0.1",
    "pkg@1.2.3-beta.rc @types/node@20.1.0",
    "logo@2x.png",
    "git@github.com:owner/repo.git",
    "a@b.c",
    "sk-learn and task-force-one-hundred-and-twenty-three",
    "sk-fading-circle-container-number-12",
    "The sk-proj- prefix, ghp_ and AKIA, xoxb- and AIza.",
    f"risk-proj-{A36} xghp_{A36}",
    f"AKIAIOSFODNN7EXAMPLES AIza{A36}x",
    "hf_hub_download(repo_id) and npm_config_registry",
    "eyJhbGciOiJIUzI1NiJ9 alone",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBg\n-----END PUBLIC KEY-----",
    "A key begins with -----BEGIN PRIVATE KEY----- and then base64.",
    "Authorization: Bearer tokens are sent. Authorization: Bearer $TOKEN",
    "Authorization: Bearer <token> or {token}; the bearer of 16 letters",
    "[email] [phone] [card] [key]",
    "Grüße 😀 e\u0301 \u200b\x00\r\n\t",
]
PIECES = [
    *(text for text, _ in GONE),
    *KEPT,
    *"+-.,/()[]@'_: \n\\019a",
    *("00", "49", "4111", "030", "12345678", "sk-", "eyJ", "\\n"),
]


@pytest.mark.parametrize(("text", "expected"), GONE)
def test_addresses_numbers_and_keys_are_redacted(text: str, expected: str) -> None:
    """Wrong: an address, number or key is not redacted, or text around it is."""
    assert Redactor()(text) == expected
    assert Redactor()(f"So: {text}\nYes") == f"So: {expected}\nYes"


@pytest.mark.parametrize("text", KEPT)
def test_dates_amounts_and_versions_are_not_redacted(text: str) -> None:
    """Wrong: a date, amount, code or version is redacted."""
    assert Redactor()(text) == text


@given(st.lists(st.sampled_from(PIECES), max_size=12).map("".join), st.sampled_from([None, "DE"]))
def test_redaction_is_idempotent(text: str, region: str | None) -> None:
    """Wrong: a second pass redacts more than the first one."""
    redact = Redactor(region=region)
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("bob@example.deé", "[email]é"),
        ("bob@example.de'", "[email]'"),
        ("(415) 555-2671", "[phone]" * 500),
        ("+15551234567", "[phone]" * 500),
        ("0049301234567 ", "[phone] " * 500),
        ("4111111111111111 ", "[card] " * 500),
        ("+49 30 1234567 4111 1111 1111 1111 ", "[phone] [card] " * 500),
    ],
)
def test_adjacent_secrets_are_all_redacted(unit: str, expected: str) -> None:
    """Wrong: a secret directly behind another one is not redacted."""
    redact = Redactor()
    assert redact(unit * 500) == expected
    assert replaced(replaced(unit * 500, redact), redact) == expected


@given(texts(), st.sampled_from([None, "DE"]))
def test_texts_without_personal_data_are_unchanged(text: str, region: str | None) -> None:
    """Wrong: a text without an address or a number is changed."""
    words = "".join(letter for letter in text if letter != "@" and not letter.isdigit())
    assert Redactor(region=region)(words) == words


@given(st.uuids(), st.sampled_from([None, "DE", "US", "IN"]))
def test_uuids_stay(value: uuid.UUID, region: str | None) -> None:
    """Wrong: digits of a UUID are redacted as a phone or card number."""
    assert Redactor(region=region)(f"id {value}") == f"id {value}"


@given(st.text(alphabet="0123456789", min_size=12, max_size=12).map(lambda rest: "4" + rest))
def test_cards_have_a_check_digit(digits: str) -> None:
    """Wrong: the check digit of a card is computed wrongly, or ignored."""
    redact = Redactor(phones=False)
    found = [digits + last for last in "0123456789" if redact(digits + last) == "[card]"]
    assert len(found) == 1
    assert redact(found[0] + "x") == found[0] + "x"


@pytest.mark.parametrize(
    ("field", "left"),
    [
        ("emails", "bob@example.com [phone] [card] [key]"),
        ("phones", "[email] +49 30 1234567 [card] [key]"),
        ("cards", "[email] [phone] 4111111111111111 [key]"),
        ("keys", "[email] [phone] [card] AKIAIOSFODNN7EXAMPLE"),
    ],
)
def test_each_kind_of_redaction_can_be_disabled(field: str, left: str) -> None:
    """Wrong: a switch has no effect, or turns off another kind."""
    text = "bob@example.com +49 30 1234567 4111111111111111 AKIAIOSFODNN7EXAMPLE"
    assert Redactor()(text) == "[email] [phone] [card] [key]"
    assert Redactor.model_validate({field: False})(text) == left


@pytest.mark.parametrize(
    ("region", "number"),
    [
        ("DE", "030 1234567"),
        ("DE", "0151/12345678"),
        ("US", "415 555 2671"),
        ("US", "4155552671"),
        ("GB", "020 7946 0958"),
        ("FR", "06 12 34 56 78"),
        ("FR", "06.12.34.56.78"),
        ("BE", "0450 00 12 34"),
        ("DK", "32.12.34.56"),
    ],
)
def test_national_phone_numbers_are_redacted_in_their_region(region: str, number: str) -> None:
    """Wrong: a national phone number is not redacted in its region, or is without one."""
    redacted = Redactor(region=region)(f"Call {number}, or +49 30 1234567")
    assert redacted == "Call [phone], or [phone]"
    assert Redactor()(f"Call {number} now") == f"Call {number} now"


def test_a_region_setting_replaces_the_american_format() -> None:
    """Wrong: another region's setting still redacts numbers in the American format."""
    assert Redactor(region="GB")("415-555-2671") == "415-555-2671"


@pytest.mark.parametrize("region", ["DE", "US", "FR", "IN"])
@pytest.mark.parametrize(
    "text",
    [
        "2024-01-05 10:30:00",
        "04.06.2022 00:58",
        "08-08-2016 and 12/31/2024",
        "192.168.1.20 and 161.62.185.17:80",
        "0.831237632752733, 117.399502",
        "In 2019, 2020 and 2021",
        "06554727-c378-1663-0f95-f614e3723687",
        "3f374467-b611-9618-631c-097403353156",
    ],
)
def test_dates_and_times_are_not_redacted_in_any_region(text: str, region: str) -> None:
    """Wrong: a region makes dates and times in a log look like phone numbers."""
    assert Redactor(region=region)(text) == text


@pytest.mark.long
@pytest.mark.parametrize(
    "unit",
    [
        *("a@", "a.", "a.a.a.", "a'", "a@a.", "é", "1", "1 ", "1-", "+", "+1", "(1", "00 4", "\\n"),
        *("sk-", "sk-proj-", "ghp_", "eyJ", "eyJabcdef.", "SG.aaaaaaaaaaaaaaaa.", "Authorization"),
        *(
            "authorization: bearer ",
            "-",
            "-----BEGIN PRIVATE KEY-----",
            "2012-01-02 08 ",
            "+12345 ",
        ),
    ],
)
def test_long_repetitive_text_is_processed_quickly(unit: str) -> None:
    """Wrong: a pattern backtracks over a long run, and 100 KB take hours."""
    text = unit * (100_000 // len(unit))
    redacted = Redactor()(text)
    assert redacted == text or "[" in redacted


@pytest.mark.long
def test_a_phone_number_after_many_other_numbers_is_redacted() -> None:
    """Wrong: after many candidates that are no phone number, a real one is not redacted."""
    text = "12345 " * 20_000 + "or 030 1234567"
    assert Redactor(region="DE")(text).endswith("or [phone]")


def test_redacted_json_stays_valid_and_long_rows_finish() -> None:
    """Wrong: redaction breaks JSON, or takes hours for a long row."""
    row = "0032 450 00 12 34x12345.4111111111111111 " * 100
    redacted = Redactor(region="DE")(row)
    assert redacted.startswith("[phone].[card] " * 20)
    assert redacted.endswith("12345.4111111111111111 ")
    said = {"body": "Hi\nbob@example.com\t+49 30 1234567\r4111111111111111\nAKIAIOSFODNN7EXAMPLE"}
    redacted = json.loads(Redactor()(json.dumps(said)))
    assert redacted == {"body": "Hi\n[email]\t[phone]\r[card]\n[key]"}


def test_a_missing_package_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a redactor of phone numbers without its package fails at the first message."""
    for name in [name for name in sys.modules if name.partition(".")[0] == "phonenumbers"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "phonenumbers", None)
    with pytest.raises(MissingExtra, match=r"agent-memory-log\[redaction\]"):
        Redactor()
    redact = Redactor(phones=False)
    assert redact("bob@example.com +49 30 1234567") == "[email] +49 30 1234567"


@pytest.mark.parametrize("region", ["de", "XX", "Germany", "001", ""])
def test_an_unknown_region_is_refused(region: str) -> None:
    """Wrong: a misspelt region is accepted, and redacts nothing."""
    with pytest.raises(ConfigError, match='as "DE"'):
        Redactor(region=region)


def test_unknown_settings_are_refused_and_settings_are_immutable() -> None:
    """Wrong: a misspelt setting is ignored, so addresses are stored."""
    with pytest.raises(InvalidSetting, match=r"`email`\. Did you mean `emails`"):
        Redactor(**{"email": True})
    with pytest.raises(InvalidSetting, match="cannot be changed"):
        Redactor().emails = False
    assert Redactor(region="DE") == Redactor.model_validate({"region": "DE"})
