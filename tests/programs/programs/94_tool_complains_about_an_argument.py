from servers.shop import list_orders, apply_discount

for order in await list_orders(status="pending"):
    updated = await apply_discount(order_id=order["id"], percent=80)
    print(updated["id"], updated["total"])
