import asyncio
from servers.shop import get_order

order_ids = ["O-1001", "O-9999", "O-1004"]

results = await asyncio.gather(
    *(get_order(order_id=oid) for oid in order_ids),
    return_exceptions=True,
)

for oid, result in zip(order_ids, results):
    if isinstance(result, Exception):
        print(f"❌ {oid}: failed")
    else:
        print(f"✅ {oid}: {result['status']}")
