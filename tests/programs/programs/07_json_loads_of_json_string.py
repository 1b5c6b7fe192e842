import json
from servers.shop import export_orders

# export_orders returns a JSON string, so parse it first
raw = await export_orders(status="pending")
orders = json.loads(raw)

by_customer = {}
for order in orders:
    by_customer[order["customer"]] = by_customer.get(order["customer"], 0) + order["total"]

for name, amount in sorted(by_customer.items(), key=lambda kv: -kv[1]):
    print(f"{name}: {amount:.2f}")
