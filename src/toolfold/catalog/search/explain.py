"""Why an entry is where it is, in words."""

from __future__ import annotations

from toolfold.catalog.entries import Entry
from toolfold.catalog.search import actions
from toolfold.catalog.search.fields import field_words
from toolfold.catalog.search.ranker import Ranking
from toolfold.catalog.search.turns import Ranked
from toolfold.catalog.search.words import Words


def reasons(entry: Entry, ranked: Ranked, ranking: Ranking, words: Words) -> list[str]:
    """One reason a line: the words that matched and where, likeness of meaning, the action, the part of the request."""
    fields = field_words(entry, words)
    stems = {field: {words.stem(word) for word in found} for field, found in fields.items()}
    said: list[str] = []
    for word, evidence in ranking.because.items():
        for stem, _, why in evidence.because:
            where = [field for field, found in stems.items() if stem in found]
            if where:
                spelt = next(one for one in fields[where[0]] if words.stem(one) == stem)
                label = word if not why else f"{word} → {spelt} ({why})"
                said.append(f"{label} in {', '.join(where)}")
                break
    if ranking.likeness is not None:
        said.append(f"meaning {float(ranking.likeness[ranked.place]):.2f}")
    part = ranking.parts[ranked.line]
    wanted = actions.of_request(words.split(part))
    does = actions.of_entry(fields.get("name", ()), fields.get("server", ()), fields.get("description", ()))
    if wanted & does:
        said.append(f"action {', '.join(actions.named(wanted & does))}")
    if len(ranking.parts) > 1:
        said.append(f"for {part[:60]!r}")
    return said
