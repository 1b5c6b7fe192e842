"""Presidio behind our seam for recognisers, in its own environment and with its own patterns."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.third_party import python_program

PROGRAM = """
import json, sys
import spacy
from presidio_analyzer import AnalyzerEngine
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from toolfold.privacy.recognisers.presidio import Presidio
from toolfold.privacy.scanner import Scanner

class Blank(SpacyNlpEngine):
    # Presidio's patterns need words, not a model of the language.
    def __init__(self):
        super().__init__(models=[{"lang_code": "en", "model_name": "blank"}])
        self.nlp = {"en": spacy.blank("en")}
    def load(self): pass

presidio = Presidio(AnalyzerEngine(nlp_engine=Blank(), supported_languages=["en"]), "en")
text = sys.argv[1]
print(json.dumps([
    sorted([text[match.start:match.end], match.kind] for match in found)
    for found in (presidio.find(text), Scanner(["US"], own=[presidio]).find(text))
]))
"""


def test_presidio_is_one_more_recogniser() -> None:
    text = (
        "Write to ada@example.com about 4111 1111 1111 1111 at 192.168.7.31, wallet 1A1zP1eP5QGefi2DMPTfTL5SLmv7DivfNa"
    )
    python = python_program("python", "presidio")
    source = Path(__file__).parents[1] / "src"
    done = subprocess.run(
        [*python, "-c", PROGRAM, text],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={"PYTHONPATH": str(source)},
    )
    assert done.returncode == 0, done.stderr
    alone, together = json.loads(done.stdout.splitlines()[-1])
    values = [["192.168.7.31", "ip"], ["4111 1111 1111 1111", "card"], ["ada@example.com", "email"]]
    assert [one for one in alone if one in values] == values
    assert together == values
