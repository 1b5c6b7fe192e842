"""The other half of the labelled set: what looks like a personal value and is none."""

from __future__ import annotations

import random
from collections.abc import Iterator

from benchmarks.privacy_values import Sample, card, digits, iban, it_codice_fiscale, luhn_digit, no_fnr, pl_pesel

_FIELDS = [
    "order_id",
    "timestamp",
    "sku",
    "invoice_number",
    "created_at",
    "trackingNumber",
    "ean",
    "customerId",
    "build",
]


def _spoilt(value: str) -> str:
    """With one digit changed, so that no checksum is right."""
    place = max(at for at, one in enumerate(value) if one.isdigit())
    return value[:place] + str((int(value[place]) + 1) % 10) + value[place + 1 :]


def look_alikes(seed: int = 31) -> Iterator[Sample]:
    rng = random.Random(seed)
    for _ in range(25):
        yield Sample(f"Order {digits(rng, 10, '123456789')} has shipped.")
        yield Sample(f"at {rng.randint(1_500_000_000, 1_900_000_000)} it stopped")
        yield Sample(f"ts={rng.randint(1_500_000_000_000, 1_900_000_000_000)}")
        yield Sample(f"{rng.randint(1990, 2030)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}T08:15:09Z")
        yield Sample(f"due on {rng.randint(1, 28):02d}.{rng.randint(1, 12):02d}.{rng.randint(2000, 2030)}")
        yield Sample(f"version {rng.randint(0, 9)}.{rng.randint(0, 20)}.{rng.randint(0, 40)}.{rng.randint(0, 999)}")
        yield Sample(f"total: {rng.randint(1, 999)},{rng.randint(0, 999):03d},{rng.randint(0, 999):03d}.00")
        yield Sample(f"{rng.randint(1, 999)} {rng.randint(0, 999):03d} {rng.randint(0, 999):03d} people")
        yield Sample(f"at {rng.uniform(-90, 90):.7f}, {rng.uniform(-180, 180):.7f}")
        yield Sample("commit " + "".join(rng.choice("0123456789abcdef") for _ in range(40)))
        yield Sample(
            "-".join("".join(rng.choice("0123456789abcdef") for _ in range(size)) for size in (8, 4, 4, 4, 12))
        )
        yield Sample(_isbn(rng))
        yield Sample(_spoilt(card(rng)))
        yield Sample(_spoilt(iban(rng)))
        yield Sample(_spoilt(it_codice_fiscale(rng)[:-1] + "0")[:15])
        yield Sample(f"case {_spoilt(no_fnr(rng).replace(' ', ''))}")
        yield Sample(f"no. {_spoilt(pl_pesel(rng))}")
        body = digits(rng, 15, "4")
        yield Sample(body + luhn_digit(body), field=rng.choice(_FIELDS))
        yield Sample(digits(rng, 10, "23456789"), field=rng.choice(_FIELDS))
        yield Sample(
            f"{digits(rng, 3, '23456789')}-{digits(rng, 3, '23456789')}-{digits(rng, 4)}", field=rng.choice(_FIELDS)
        )
    for text in WRITTEN.strip().splitlines():
        yield Sample(text)
    yield Sample("Main Street", field="title")
    yield Sample("toolfold", field="name")
    yield Sample("unknown", field="full_name")
    yield Sample("n/a", field="phone")
    yield Sample("false", field="email")
    yield Sample("abc123", field="next_page_token")


def _isbn(rng: random.Random) -> str:
    body = "978" + digits(rng, 9)
    total = sum(int(one) * (1 if place % 2 == 0 else 3) for place, one in enumerate(body))
    number = body + str(-total % 10)
    return f"ISBN {number[:3]}-{number[3]}-{number[4:6]}-{number[6:12]}-{number[12]}"


WRITTEN = """
The meeting is on 12 May 2025 in Main Street.
She was born in a small town near the river.
logo@2x.png and icon@3x.jpg are in assets/
npm install @scope/package@1.2.3
git clone git@github.com:example/project.git
result = left@right + a@b
@ada thanks, see @bob's comment
RFC 2822, section 3.4.1
pi is 3.14159265358979
1998-2004 and 2010/2015
Score 21-19 21-17 after 45 minutes
The 12th of March 1861, a Sunday
between 10:15:30 and 12:45:59
127.0.0.1 and 0.0.0.0 and ::1
Python 3.11.7 on Linux 6.1.0
HTTP/1.1 200 OK
chapter 1.2.3.4 of the manual
the ratio was 1:2:3:4:5
12 drummers drumming, 11 pipers piping
1 000 000 lines of code
EUR 1.234.567,89
00:00:00:00:00:00
ff:ff:ff:ff:ff:ff
level 42, room 101, seat 23B
Highway 61 Revisited
5 Street Fighter games
I have 3 places to go and 2 roads to take
the Way of 7 Samurai
Via email, 3 times a day
24/7 support, 365 days
16 GB RAM, 512 GB SSD, 2560x1440
password: ********
password = os.environ["DB_PASSWORD"]
token_type: bearer
api_key: <your key>
The secret is to keep going.
sk-learn and scikit-learn
x_offset = 1234567
id: 7f3a9c21-88aa
SKU-12345678-AB
A4 297 x 210 mm
Boeing 747-8 and Airbus A380-800
ISO 8601-1:2019
UTC+01:00
£12,345.67 paid on 2024-02-30
+1 vote for this
+100% more
2+2=4
call me maybe
phone home
my number is up
Bearer of good news
0x7fffffffffff
1e10 and 6.02214076e23
10-K filing, 401(k) plan, W-2 form
Room 12-345
GPT-4 and Llama 3.1 405B
2001:A Space Odyssey
DE is the code of Germany, GB of Great Britain
AB123 is a flight, CD4567 a train
"""
