import asyncio
from typing import Any

from servers.shop import get_order, list_orders


class CustomerReport:
    """Builds a report on one customer's orders."""

    def __init__(self, customer: str) -> None:
        self.customer = customer
        self.orders: list[dict[str, Any]] = []

    async def load(self) -> "CustomerReport":
        overview = await list_orders(customer=self.customer)
        self.orders = await asyncio.gather(*(self._detail(o["id"]) for o in overview))
        return self

    async def _detail(self, order_id: str) -> dict[str, Any]:
        return await get_order(order_id=order_id)

    def units(self) -> int:
        return sum(line["quantity"] for order in self.orders for line in order["lines"])

    def __str__(self) -> str:
        return f"{self.customer}: {len(self.orders)} orders, {self.units()} units"


async def main():
    reports = await asyncio.gather(*(CustomerReport(name).load() for name in ("Ada Lovelace", "Grace Hopper")))
    for report in reports:
        print(report)


asyncio.run(main())
