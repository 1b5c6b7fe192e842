from __future__ import annotations

from collections import defaultdict
from typing import Dict, List, TypedDict

from servers.shop import search_products


class Row(TypedDict):
    sku: str
    value: float


async def stock_value() -> Dict[str, float]:
    totals: defaultdict[str, float] = defaultdict(float)
    for product in await search_products(query=""):
        totals[product["category"]] += product["price"] * product["stock"]
    return dict(totals)


async def most_valuable(n: int = 2) -> List[Row]:
    products = await search_products(query="")
    rows: List[Row] = [{"sku": p["sku"], "value": round(p["price"] * p["stock"], 2)} for p in products]
    return sorted(rows, key=lambda r: r["value"], reverse=True)[:n]


values: Dict[str, float] = await stock_value()
top: List[Row] = await most_valuable()
print({category: round(value, 2) for category, value in values.items()})
print(top)
