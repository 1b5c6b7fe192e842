"""What a field's name says about its value: that it is personal, or that it is a mere number."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

PLAIN = "plain"
"""A field of ids, times, amounts and the like: digits in it are no phone, card or id of a person."""
PERSON_IF_RECORD = "person?"
"""A name that is a person's if the record has something else of a person."""

_EXACT = {
    "person": "full_name first_name last_name given_name family_name middle_name maiden_name surname firstname lastname"
    " fullname forename customer_name patient_name contact_name employee_name client_name user_full_name holder_name"
    " account_holder cardholder cardholder_name card_holder owner_name author_name sender_name recipient_name"
    " assignee_name attendee_name guest_name passenger_name student_name candidate_name person_name legal_name"
    " vorname nachname nom prenom prénom nombre apellido apellidos cognome fornavn etternavn förnamn efternamn",
    "email": "email emails email_address email_addresses mail e_mail emailaddress",
    "phone": "phone phones phone_number phone_numbers phonenumber mobile mobile_phone mobile_number cell cellphone"
    " cell_phone telephone tel fax fax_number whatsapp msisdn telefon telefono téléphone teléfono",
    "national_id": "ssn social_security social_security_number sin nino nin national_insurance"
    " national_insurance_number national_id national_id_number tax_id taxid tin itin passport passport_number"
    " passport_no drivers_license driver_license drivers_licence driver_license_number drivers_license_number dni nie"
    " nif nir cpf bsn pesel aadhaar aadhar codice_fiscale steuer_id steuerid fodselsnummer fødselsnummer personnummer"
    " cpr personal_number identity_number identity_card nhs_number",
    "card": "card_number credit_card creditcard credit_card_number cc_number card_no debit_card debit_card_number",
    "iban": "iban bank_account bank_account_number",
    "date_of_birth": "dob birth_date birthdate date_of_birth birthday geburtsdatum born_on fecha_nacimiento"
    " date_naissance data_nascita",
    "address": "address street street_address address1 address2 address_1 address_2 address_line1 address_line2"
    " address_line_1 address_line_2 mailing_address home_address billing_address shipping_address postal_address"
    " delivery_address full_address postcode postal_code zip zip_code zipcode adresse direccion dirección indirizzo",
    "secret": "password passwd pwd passphrase secret client_secret api_key apikey api_secret access_token"
    " refresh_token auth_token bearer_token id_token session_token private_key secret_key access_key token otp pin"
    " cvv cvc security_code webhook_secret signing_secret",
    PERSON_IF_RECORD: "name display_name",
}  # fmt: skip
_KINDS = {name: kind for kind, names in _EXACT.items() for name in names.split()}
_ENDS = {
    "_email": "email",
    "_phone": "phone",
    "_phone_number": "phone",
    "_mobile": "phone",
    "_full_name": "person",
    "_first_name": "person",
    "_last_name": "person",
    "_ssn": "national_id",
    "_dob": "date_of_birth",
    "_password": "secret",
    "_api_key": "secret",
    "_street": "address",
    "_iban": "iban",
}
_PLAIN = """
id ids uid uuid guid sku ean gtin upc isbn issn asin ref reference number no num nr code timestamp ts time date at
created updated modified expires version rev revision build count total amount price cost qty quantity size bytes
length width height duration ms seconds port pid lat lng lon latitude longitude score hash sha sha1 sha256 md5
checksum digest commit etag cursor offset limit index serial tracking barcode balance revenue year seq epoch
"""
_PLAIN_WORDS = frozenset(_PLAIN.split())
_OF_PERSONS = frozenset({"email", "phone", "national_id", "card", "date_of_birth", "person"})
_BETWEEN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[\s._\-/]+")


@lru_cache(8192)
def normal(name: str) -> str:
    """`customerEmail`, `customer-email` and `Customer Email` are `customer_email`."""
    return "_".join(filter(None, _BETWEEN.split(name[:200]))).lower()


@lru_cache(8192)
def _meaning(name: str) -> str:
    plain = normal(name)
    if plain in _KINDS:
        return _KINDS[plain]
    for end, kind in _ENDS.items():
        if plain.endswith(end):
            return kind
    return PLAIN if plain.rpartition("_")[2] in _PLAIN_WORDS else ""


class Fields:
    """The meanings of fields' names, with the person's own first. `own` maps a name to a kind or to `ignore`."""

    def __init__(self, own: Mapping[str, str], ignored: frozenset[str] = frozenset()) -> None:
        self._own = {normal(name): PLAIN if kind == "ignore" else kind for name, kind in own.items()}
        self._ignored = ignored

    def of_record(self, names: tuple[str, ...], hints: Mapping[str, str]) -> dict[str, str]:
        """The meaning of each name that has one. `hints` come from the tool's schema."""
        found: dict[str, str] = {}
        for name in names:
            meaning = self._own.get(normal(name)) or hints.get(name) or _meaning(name)
            if meaning and meaning not in self._ignored:
                found[name] = meaning
        if PERSON_IF_RECORD in found.values():
            is_person = not _OF_PERSONS.isdisjoint(found.values()) and "person" not in self._ignored
            for name in [name for name, meaning in found.items() if meaning == PERSON_IF_RECORD]:
                if is_person:
                    found[name] = "person"
                else:
                    del found[name]
        return found


_NOTHING = frozenset(
    {"n/a", "na", "none", "null", "nil", "unknown", "undefined", "anonymous", "test", "true", "false", "yes", "no"}
    | {"default", "tbd", "not available", "not set"}
)


def is_worth(kind: str, value: str) -> bool:
    """Whether a field of this kind holds something to protect: neither empty, nor a placeholder, nor something else."""
    text = value.strip()
    if len(text) < 2 or text.lower() in _NOTHING:
        return False
    digits = sum(map(str.isdigit, text))
    match kind:
        case "email":
            return "@" in text
        case "phone":
            return digits >= 5
        case "national_id" | "iban" | "card":
            return digits >= 4
        case "date_of_birth":
            return digits >= 4
        case "address":
            return digits >= 3 or (" " in text and any(map(str.isalpha, text)))
        case "person":
            return len(text) <= 200 and any(map(str.isalpha, text)) and not text.startswith(("http://", "https://"))
        case "secret":
            return len(text) >= 3
        case _:
            return True


_FORMATS = {
    "email": "email",
    "idn-email": "email",
    "phone": "phone",
    "password": "secret",
    "date-time": PLAIN,
    "date": PLAIN,
    "time": PLAIN,
    "duration": PLAIN,
    "uuid": PLAIN,
    "int64": PLAIN,
    "int32": PLAIN,
}
_MOST_PROPERTIES = 2000


def schema_hints(schema: Mapping[str, Any] | None) -> dict[str, str]:
    """What an output schema's formats say about its properties, by name wherever they stand."""
    hints: dict[str, str] = {}
    pending: list[Any] = [schema]
    seen = 0
    while pending and seen < _MOST_PROPERTIES:
        node = pending.pop()
        seen += 1
        if isinstance(node, list):
            pending += cast("list[Any]", node)
        elif isinstance(node, dict):
            inner = cast("dict[str, Any]", node)
            for name, value in _members(inner.get("properties")).items():
                meaning = _FORMATS.get(str(_members(value).get("format")), "")
                # A birthday's format says less than its name.
                if meaning and not (meaning == PLAIN and _meaning(name) not in ("", PLAIN)):
                    hints[name] = meaning
            pending += inner.values()
    return hints


def _members(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
