from dataclasses import dataclass, asdict
from servers.shop import list_orders

@dataclass
class OrderSummary:
    id: str
    customer: str
    status: str
    total: float

    @property
    def is_large(self) -> bool:
        return self.total > 80

summaries = [OrderSummary(**order) for order in await list_orders()]
large = [s for s in summaries if s.is_large]
print(f"{len(large)} large orders out of {len(summaries)}")
print(asdict(large[0]))
