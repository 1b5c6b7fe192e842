from servers.shop import list_orders, get_order

count: int = 0
for order in await list_orders():
    count += 1
    try:
        detail = await get_order(order["id"])
        if detail["note"]:
            return {"id": detail["id"], "note": detail["note"], "looked_at": count}
    finally:
        last = order["id"]
return "nothing found"
