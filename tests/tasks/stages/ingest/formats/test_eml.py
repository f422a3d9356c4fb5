"""E-mail: headers, the better of two alternatives, and attachments by name."""

from __future__ import annotations

from email.message import EmailMessage

import pytest

from tests.tasks.stages.ingest.formats.office_files import extracted, refused


def mail(text: str = "", page: str = "") -> EmailMessage:
    message = EmailMessage()
    message["Subject"], message["From"], message["To"] = "Grüße aus Aberdour", "Zoë <z@a.org>", "B <b@a.org>, c@a.org"
    message["Date"] = "Fri, 16 Dec 2022 17:04:16 -0500"
    message.set_content(text)
    if page:
        message.add_alternative(page, subtype="html")
    return message


def test_headers_text_and_the_names_of_attachments_are_read() -> None:
    message = mail("One * two.\n\nThree – four.\n")
    message.add_attachment(b"%PDF", maintype="application", subtype="pdf", filename="Bericht für März.pdf")
    message.add_attachment(mail("Attached secret"))
    found = extracted("email", message.as_bytes())
    assert found.title == "Grüße aus Aberdour"
    assert found.text == (
        "From: Zoë \\<z@a.org>\nTo: B \\<b@a.org>, c@a.org\nDate: Fri, 16 Dec 2022 17:04:16 -0500\n"
        "Attachments, not read: Bericht für März.pdf, message/rfc822\n\nOne * two.\n\nThree – four."
    )
    assert found.metadata == {
        "author": "Zoë <z@a.org>",
        "to": "B <b@a.org>, c@a.org",
        "date": "2022-12-16T17:04:16-05:00",
        "unread": {"attachments": 2},
    }


def test_a_web_page_is_read_where_the_plain_text_says_little() -> None:
    page = "<h1>News</h1><ul><li>Item one of many words</li></ul><table><tr><td>a</td><td>b</td></tr></table>"
    assert "- Item one of many words\n\n| a | b |" in extracted("email", mail("See page", page).as_bytes()).text
    assert extracted("email", mail("Item one of many words, a, b", page).as_bytes()).text.endswith("words, a, b")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_message_may_be_saved_in_another_encoding(encoding: str) -> None:
    assert extracted("email", "Subject: Über\nFrom: a\n\nTëxt".encode(encoding)).text == "From: a\n\nTëxt"


def test_the_stated_charset_of_a_part_counts() -> None:
    data = b"Subject: a\nContent-Type: text/plain; charset=koi8-r\nContent-Transfer-Encoding: 8bit\n\n"
    assert extracted("email", data + "Да, это я".encode("koi8-r")).text.endswith("Да, это я")


def test_what_is_no_message_or_nests_too_deeply_is_refused() -> None:
    assert refused("email", b"no headers here").reason == "unreadable-file"
    part = b"Content-Type: multipart/mixed; boundary=%d\n\n--%d\n"
    nested = b"Subject: a\n" + b"".join(part % (n, n) for n in range(200)) + b"\ntext"
    assert refused("email", nested).reason == "hostile-file"
    assert "b" in extracted("email", b"Subject: =?x?q?b?=\nDate: never\nFrom: =?utf-8?b?!?=\n\ntext").title
