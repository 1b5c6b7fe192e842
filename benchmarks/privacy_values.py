"""The labelled set: personal values as people write them, in ten countries and more, from a fixed seed.

Check digits are computed here from the published rules, and not with the code that is measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

_FIRST = "Ada Bruno Chloé Dávid Elif Fatima Giulia Håkon Inés Jürgen Kasia Liam Mónica Nils Oona Pável Quentin Rosa"
_LAST = "Lovelace Rossi Martin Müller García Hansen Jansen Nowak Svensson Smith O'Brien Kowalska López Dubois"
FIRST, LAST = _FIRST.split(), _LAST.split()


@dataclass(frozen=True)
class Sample:
    """A text, and the values in it with their kinds. A look-alike has none."""

    text: str
    values: tuple[tuple[str, str], ...] = ()
    field: str = ""
    """In structured data: the name of the field that the text stands in."""


def digits(rng: random.Random, count: int, first: str = "0123456789") -> str:
    return rng.choice(first) + "".join(rng.choice("0123456789") for _ in range(count - 1))


def grouped(number: str, *sizes: int, by: str = " ") -> str:
    parts: list[str] = []
    for size in sizes:
        parts.append(number[:size])
        number = number[size:]
    return by.join([*parts, *([number] if number else [])])


# ---- cards and accounts


def luhn_digit(body: str) -> str:
    total = 0
    for place, digit in enumerate(reversed(body)):
        doubled = int(digit) * (2 if place % 2 == 0 else 1)
        total += doubled // 10 + doubled % 10
    return str(-total % 10)


def card(rng: random.Random) -> str:
    prefix, length = rng.choice([("4", 16), ("51", 16), ("55", 16), ("2223", 16), ("34", 15), ("37", 15), ("6011", 16)])
    body = prefix + digits(rng, length - len(prefix) - 1)
    number = body + luhn_digit(body)
    if length == 15:
        return rng.choice([number, grouped(number, 4, 6)])
    return rng.choice([number, grouped(number, 4, 4, 4), grouped(number, 4, 4, 4, by="-")])


_BBAN = {
    "GB": "AAAA00000000000000",
    "DE": "000000000000000000",
    "FR": "0000000000AAAAAAAAAAA00",
    "ES": "00000000000000000000",
    "IT": "A0000000000AAAAAAAAAAAA",
    "NL": "AAAA0000000000",
    "NO": "00000000000",
    "SE": "00000000000000000000",
    "PL": "000000000000000000000000",
    "CH": "00000AAAAAAAAAAAA",
    "BE": "000000000000",
    "AT": "0000000000000000",
}


def iban(rng: random.Random) -> str:
    country = rng.choice(sorted(_BBAN))
    bban = "".join(rng.choice("ABCDEFGHKLMNPRST") if one == "A" else rng.choice("0123456789") for one in _BBAN[country])
    number = int("".join(str(int(one, 36)) for one in f"{bban}{country}00"))
    value = f"{country}{98 - number % 97:02d}{bban}"
    return rng.choice([value, " ".join(value[at : at + 4] for at in range(0, len(value), 4))])


# ---- national ids


def _date(rng: random.Random) -> tuple[int, int, int]:
    return rng.randint(1940, 1999), rng.randint(1, 12), rng.randint(1, 28)


def us_ssn(rng: random.Random) -> str:
    area = rng.choice([one for one in range(1, 900) if one != 666])
    return f"{area:03d}-{rng.randint(1, 99):02d}-{rng.randint(1, 9999):04d}"


def uk_nino(rng: random.Random) -> str:
    prefix = rng.choice(["AB", "CE", "JG", "LM", "PR", "SX", "WK", "YZ"])
    value = f"{prefix}{digits(rng, 6)}{rng.choice('ABCD')}"
    return rng.choice([value, f"{value[:2]} {value[2:4]} {value[4:6]} {value[6:8]} {value[8]}"])


def de_tax_id(rng: random.Random) -> str:
    while True:
        pool = list("0123456789")
        rng.shuffle(pool)
        pool[rng.randrange(10)] = rng.choice(pool)
        body = "".join(pool)
        if body[0] != "0" and len(set(body)) == 9:
            break
    product = 10
    for digit in body:
        total = (int(digit) + product) % 10
        product = (total or 10) * 2 % 11
    check = 11 - product
    number = body + str(0 if check == 10 else check)
    return rng.choice([number, grouped(number, 2, 3, 3)])


def fr_nir(rng: random.Random) -> str:
    year, month, _ = _date(rng)
    body = f"{rng.choice('12')}{year % 100:02d}{month:02d}{rng.randint(1, 95):02d}{digits(rng, 3)}{digits(rng, 3)}"
    number = body + f"{97 - int(body) % 97:02d}"
    return rng.choice([number, grouped(number, 1, 2, 2, 2, 3, 3)])


def es_id(rng: random.Random) -> str:
    letters = "TRWAGMYFPDXBNJZSQVHLCKE"
    if rng.random() < 0.5:
        number = digits(rng, 8)
        return number + rng.choice(["", "-"]) + letters[int(number) % 23]
    first = rng.choice("XYZ")
    number = digits(rng, 7)
    return first + number + letters[int(str("XYZ".index(first)) + number) % 23]


_CF_ODD = [1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23]


def it_codice_fiscale(rng: random.Random) -> str:
    year, _, day = _date(rng)
    consonants = "BCDFGLMNPRSTV"
    names = "".join(rng.choice(consonants) for _ in range(6))
    body = f"{names}{year % 100:02d}{rng.choice('ABCDEHLMPRST')}{day + rng.choice([0, 40]):02d}"
    body += rng.choice("ABCDEFGHL") + digits(rng, 3)
    total = 0
    for place, one in enumerate(body):
        value = int(one) if one.isdigit() else ord(one) - 65
        total += _CF_ODD[value] if place % 2 == 0 else value
    return body + chr(65 + total % 26)


def no_fnr(rng: random.Random) -> str:
    while True:
        year, month, day = _date(rng)
        body = f"{day:02d}{month:02d}{year % 100:02d}{digits(rng, 3)}"
        first = 11 - sum(int(one) * weight for one, weight in zip(body, (3, 7, 6, 1, 8, 9, 4, 5, 2), strict=True)) % 11
        if first == 10:
            continue
        body += str(first % 11)
        last = (
            11 - sum(int(one) * weight for one, weight in zip(body, (5, 4, 3, 2, 7, 6, 5, 4, 3, 2), strict=True)) % 11
        )
        if last != 10:
            number = body + str(last % 11)
            return rng.choice([number, grouped(number, 6)])


def se_personnummer(rng: random.Random) -> str:
    year, month, day = _date(rng)
    body = f"{year % 100:02d}{month:02d}{day:02d}{digits(rng, 3)}"
    short = body + luhn_digit(body)
    return rng.choice([f"{short[:6]}-{short[6:]}", f"{year // 100}{short[:6]}-{short[6:]}"])


def pl_pesel(rng: random.Random) -> str:
    year, month, day = _date(rng)
    body = f"{year % 100:02d}{month:02d}{day:02d}{digits(rng, 4)}"
    total = sum(int(one) * weight for one, weight in zip(body, (1, 3, 7, 9, 1, 3, 7, 9, 1, 3), strict=True))
    return body + str(-total % 10)


def nl_bsn(rng: random.Random) -> str:
    while True:
        body = digits(rng, 8, "12")
        last = sum(int(one) * weight for one, weight in zip(body, range(9, 1, -1), strict=True)) % 11
        if last < 10:
            return f"BSN {body}{last}"


def br_cpf(rng: random.Random) -> str:
    body = digits(rng, 9, "123456789")
    for start in (10, 11):
        body += str(sum(int(one) * (start - place) for place, one in enumerate(body)) * 10 % 11 % 10)
    return f"{body[:3]}.{body[3:6]}.{body[6:9]}-{body[9:]}"


def fi_hetu(rng: random.Random) -> str:
    year, month, day = _date(rng)
    date, serial = f"{day:02d}{month:02d}{year % 100:02d}", digits(rng, 3)
    return f"{date}-{serial}{'0123456789ABCDEFHJKLMNPRSTUVWXY'[int(date + serial) % 31]}"


def be_number(rng: random.Random) -> str:
    year, month, day = _date(rng)
    body = f"{year % 100:02d}{month:02d}{day:02d}{digits(rng, 3)}"
    number = body + f"{97 - int(body) % 97:02d}"
    return f"{number[:2]}.{number[2:4]}.{number[4:6]}-{number[6:9]}.{number[9:]}"


def ch_ahv(rng: random.Random) -> str:
    body = "756" + digits(rng, 9)
    total = sum(int(one) * (1 if place % 2 == 0 else 3) for place, one in enumerate(body))
    return grouped(body + str(-total % 10), 3, 4, 4, by=".")


NATIONAL: list[Callable[[random.Random], str]] = [
    us_ssn, uk_nino, de_tax_id, fr_nir, es_id, it_codice_fiscale, no_fnr, se_personnummer, pl_pesel, nl_bsn, br_cpf,
    fi_hetu, be_number, ch_ahv,
]  # fmt: skip


# ---- phones

_PHONES = {
    "US": (["+1 {a} {b} {c}", "({a}) {b}-{c}", "{a}-{b}-{c}", "{a}.{b}.{c}", "+1{a}{b}{c}"], ""),
    "GB": (["+44 20 7{3} {4}", "020 7{3} {4}", "+44 7700 9{5}", "07700 9{5}"], ""),
    "DE": (["+49 30 9{6}", "030 9{6}", "+49 151 {8}", "0151 {8}", "0049 30 9{6}"], ""),
    "FR": (["+33 1 4{1} {2} {2} {2}", "01 4{1} {2} {2} {2}", "06 1{1} {2} {2} {2}"], ""),
    "ES": (["+34 91 2{2} {2} {2}", "+34 6{2} {3} {3}"], ""),
    "IT": (["+39 06 69{2} {4}", "06 69{2} {4}", "+39 347 {3} {4}"], ""),
    "NL": (["+31 20 62{1} {4}", "020 62{1} {4}", "+31 6 1{3} {4}", "06-1{7}"], ""),
    "NO": (["+47 22 {2} {2} {2}", "+47 9{2} {2} {3}"], ""),
    "SE": (["+46 8 5{2} {3} {2}", "08-5{2} {3} {2}", "+46 70 {3} {2} {2}", "070-{3} {2} {2}"], ""),
    "PL": (["+48 22 6{2} {2} {2}", "+48 60{1} {3} {3}"], ""),
}


def phone(rng: random.Random) -> str:
    form = rng.choice(rng.choice(list(_PHONES.values()))[0])
    if "{a}" in form:
        area = rng.choice(["212", "415", "312", "646", "503", "617", "305"])
        return form.format(a=area, b=digits(rng, 3, "23456789"), c=digits(rng, 4))
    for size in range(1, 9):
        while f"{{{size}}}" in form:
            form = form.replace(f"{{{size}}}", digits(rng, size, "123456789"), 1)
    return form


# ---- the rest


def email(rng: random.Random) -> str:
    first, last = rng.choice(FIRST).lower(), rng.choice(LAST).lower().replace("'", "")
    local = rng.choice(
        [f"{first}.{last}", f"{first}+{digits(rng, 2)}", f"{first}_{last}{digits(rng, 2)}", f"{last}-{first}"]
    )
    hosts = ["example.com", "mail.example.org", "exämple.de", "post.example.co.uk", "example.museum"]
    return f"{local}@{rng.choice(hosts)}"


def ip(rng: random.Random) -> str:
    if rng.random() < 0.3:
        return ":".join(f"{rng.randrange(0x1000, 0x10000):x}" for _ in range(8))
    return ".".join(str(rng.randint(20, 254)) for _ in range(4))


def mac(rng: random.Random) -> str:
    return rng.choice(":-").join(f"{rng.randrange(256):02x}" for _ in range(6))


_BIRTH = [
    ("Date of birth: {0:04d}-{1:02d}-{2:02d}", "{0:04d}-{1:02d}-{2:02d}"),
    ("DOB {1:02d}/{2:02d}/{0:04d}", "{1:02d}/{2:02d}/{0:04d}"),
    ("She was born on {2} May {0}", "{2} May {0}"),
    ("geboren am {2:02d}.{1:02d}.{0}", "{2:02d}.{1:02d}.{0}"),
    ("née le {2} mars {0} à Lyon", "{2} mars {0}"),
    ("nacido el {2:02d}/{1:02d}/{0}", "{2:02d}/{1:02d}/{0}"),
    ("nata il {2:02d}/{1:02d}/{0}", "{2:02d}/{1:02d}/{0}"),
    ("født {2:02d}.{1:02d}.{0}", "{2:02d}.{1:02d}.{0}"),
    ("urodzony {2:02d}.{1:02d}.{0}", "{2:02d}.{1:02d}.{0}"),
]

ADDRESSES = """221B Baker Street, London NW1 6XE|350 Fifth Avenue, New York, NY 10118|1600 Amphitheatre Parkway
742 Evergreen Terrace|10 Downing Street|12 Grimmauld Place, London|1 Infinite Loop
1901 W Madison Street, Chicago, IL 60612
45 St. James's Square|4059 Mt Lee Drive|PO Box 1142
77 Massachusetts Ave|233 S Wacker Dr, Suite 400|88 Colin P Kelly Jr Street
Hauptstraße 12, 10115 Berlin|Unter der Linde Str. 77|Goethestr. 5a, 60313 Frankfurt|Karl-Marx-Allee 34|Am Alten Weg 9
Marienplatz 1, 80331 München|Lindenweg 3|Schönhauser Allee 36|12 rue de la Paix, 75002 Paris|5 avenue Anatole France
8 bis, boulevard Saint-Michel, 75005 Paris|27 quai de la Tournelle
14 place de la République, 69002 Lyon|3 impasse des Lilas
Calle Mayor 5, 28013 Madrid|Avenida Diagonal 640|Calle de Alcalá 42|Plaza Mayor 1
Paseo del Prado 8|Via Roma 10, 00184 Roma
Via Giuseppe Garibaldi 3|Viale Monza 220|Piazza del Duomo 14|Corso Buenos Aires 33|Prinsengracht 263, 1016 GV Amsterdam
Damstraat 1|Keizersgracht 324|Stationsplein 9|Storgata 5, 0155 Oslo|Karl Johans gate 22|Bygdøy allé 3|Kirkeveien 114
Drottninggatan 53|Sveavägen 44, 111 34 Stockholm|Kungsgatan 8|Vesterbrogade 3|Mannerheimintie 13|ul. Marszałkowska 84
ul. Piotrkowska 104, 90-926 Łódź|Rua Augusta 24|Rua de Santa Catarina 112|Avenida da Liberdade 180""".replace(
    "\n", "|"
).split("|")


def secret(rng: random.Random) -> str:
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

    def some(count: int, of: str = letters) -> str:
        return "".join(rng.choice(of) for _ in range(count))

    upper, hexadecimal = letters[:26] + "0123456789", "0123456789abcdef"
    return rng.choice([
        "AKIA" + some(16, upper), "ghp_" + some(36), "github_pat_" + some(40), "glpat-" + some(20),
        "sk-proj-" + some(48),
        "sk-ant-api03-" + some(60), "sk_live_" + some(24), "xoxb-" + some(12, "0123456789") + "-" + some(24),
        "AIza" + some(35), "npm_" + some(36), "hf_" + some(34), "SG." + some(22) + "." + some(43),
        "dop_v1_" + some(64, hexadecimal), "eyJ" + some(20) + ".eyJ" + some(40) + "." + some(43),
        "shpat_" + some(32, hexadecimal),
    ])  # fmt: skip


_AROUND = {
    "email": ["Write to {} today.", "Contact: {}", "<{}>", "mailto:{}", "From {} on Monday", "{}"],
    "phone": ["Call {} before noon.", "Tel: {}", "phone {}", "You reach her at {}.", "Fax {}", "{}"],
    "card": ["Card {} was declined.", "Pay with {}, please.", "{}", "PAN={}"],
    "iban": ["Transfer it to {}.", "IBAN: {}", "{}", "from account {} yesterday"],
    "national_id": ["Her number is {}.", "ID: {}", "{}", "({})"],
    "ip": ["Login from {} failed", "client={}", "{}"],
    "mac": ["device {} joined", "{}"],
    "address": ["She lives at {}.", "Ship to: {}", "{}", "Our office is at {} now."],
    "secret": ["key: {}", "export TOKEN={}", "{}", "Use {} for it."],
}
_MAKERS: list[tuple[str, int, Callable[[random.Random], str]]] = [
    ("email", 70, email), ("phone", 110, phone), ("card", 60, card), ("iban", 60, iban), ("ip", 30, ip),
    ("mac", 20, mac),
    ("secret", 60, secret),
]  # fmt: skip


def values(seed: int = 13) -> Iterator[Sample]:
    rng = random.Random(seed)
    for kind, count, make in _MAKERS:
        for _ in range(count):
            yield _around(rng, kind, make(rng))
    for make in NATIONAL:
        for _ in range(8):
            value = make(rng)
            named = value.rpartition(" ")[2] if make is nl_bsn else value
            yield Sample(rng.choice(_AROUND["national_id"]).format(value), ((named, "national_id"),))
    for text, value in _BIRTH:
        for _ in range(3):
            date = _date(rng)
            yield Sample(text.format(*date), ((value.format(*date), "date_of_birth"),))
    for address in ADDRESSES:
        yield _around(rng, "address", address.strip())
    yield from _in_fields(rng)
    yield from WRITTEN


def _around(rng: random.Random, kind: str, value: str) -> Sample:
    return Sample(rng.choice(_AROUND[kind]).format(value), ((value, kind),))


def _in_fields(rng: random.Random) -> Iterator[Sample]:
    for _ in range(20):
        name = f"{rng.choice(FIRST)} {rng.choice(LAST)}"
        for field, kind, value in (
            ("full_name", "person", name),
            ("lastName", "person", name.split()[1]),
            ("phone", "phone", digits(rng, 7, "23456789")),
            ("ssn", "national_id", digits(rng, 9, "123456")),
            ("date_of_birth", "date_of_birth", "{}-{:02d}-{:02d}".format(*_date(rng))),
            ("password", "secret", f"{rng.choice(FIRST)}{digits(rng, 4)}!"),
        ):
            yield Sample(value, ((value, kind),), field)


WRITTEN = [
    Sample("It's Ada (ada@example.com), on 07700 900123.", (("ada@example.com", "email"), ("07700 900123", "phone"))),
    Sample(
        "ada@example.com,bob@example.org;eve@example.net",
        (("ada@example.com", "email"), ("bob@example.org", "email"), ("eve@example.net", "email")),
    ),
    Sample("Visa 4111111111111111 exp 12/29 cvv 123", (("4111111111111111", "card"),)),
    Sample("ring me on (212) 555-0147 ext. 12", (("(212) 555-0147", "phone"),)),
    Sample("ａｄａ＠ｅｘａｍｐｌｅ．ｃｏｍ", (("ａｄａ＠ｅｘａｍｐｌｅ．ｃｏｍ", "email"),)),
    Sample("a\u200bda@exam\u200bple.com", (("a\u200bda@exam\u200bple.com", "email"),)),
    Sample("card ４１１１ １１１１ １１１１ １１１１", (("４１１１ １１１１ １１１１ １１１１", "card"),)),
    Sample("+49\u00a030\u00a0901820 (Büro)", (("+49\u00a030\u00a0901820", "phone"),)),
    Sample("call +44 20 7946 0958 — +44‑20‑7946‑0959", (("+44 20 7946 0958", "phone"), ("+44‑20‑7946‑0959", "phone"))),
    Sample("postgres://app:s3cr3t-Pa55@db.example.com/main", (("s3cr3t-Pa55", "secret"),)),
    Sample("Authorization: Bearer 8f2c1d0a9b7e6f5a4c3b2d1e0f9a8b7c", (("8f2c1d0a9b7e6f5a4c3b2d1e0f9a8b7c", "secret"),)),
    Sample('{"password": "correct-horse-7"}', (("correct-horse-7", "secret"),)),
    Sample("api_key=Zx81kLmN0pQ2rS3t", (("Zx81kLmN0pQ2rS3t", "secret"),)),
    Sample("My passport number is X1234567.", (("X1234567", "national_id"),)),
    Sample("NHS number 943 476 5919", (("943 476 5919", "national_id"),)),
    Sample("Sozialversicherung? Nein, Steuer-ID: 65 929 970 489", (("65 929 970 489", "national_id"),)),
    Sample("SSN 078051120 on file", (("078051120", "national_id"),)),
    Sample("Aadhaar 2341 2341 2346", (("2341 2341 2346", "national_id"),)),
    Sample("Telefon: 22334455", (("22334455", "phone"),)),
    Sample("teléfono 912 345 678", (("912 345 678", "phone"),)),
    Sample("WhatsApp 0151 12345678", (("0151 12345678", "phone"),)),
    Sample("IBAN gb82 west 1234 5698 7654 32", (("gb82 west 1234 5698 7654 32", "iban"),)),
    Sample("Server 10.20.30.40:8080 is down", (("10.20.30.40", "ip"),)),
    Sample("fe80::1ff:fe23:4567:890a is link-local", (("fe80::1ff:fe23:4567:890a", "ip"),)),
]  # fmt: skip
