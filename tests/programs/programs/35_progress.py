from servers.shop import list_orders, get_order
from toolfold import progress

orders = await list_orders(status="pending")
units = 0
for i, order in enumerate(orders, start=1):
    detail = await get_order(order["id"])
    units += sum(line["quantity"] for line in detail["lines"])
    progress(f"Processed {i} of {len(orders)} orders")

print(f"{units} units to pack")
