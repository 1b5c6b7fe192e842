from servers.shop import get_order, list_orders

async def details(status):
    for order in await list_orders(status=status):
        yield await get_order(order_id=order["id"])

cities = sorted([o["customer"]["address"]["city"] async for o in details("pending")])
print(cities)

totals = {oid: (await get_order(oid))["total"] for oid in ("O-1001", "O-1004")}
print(totals)
