from servers.shop import apply_discount, get_order

results = {"ok": [], "failed": []}

for order_id, percent in [("O-1002", 10), ("O-1003", 75), ("O-1010", 5)]:
    try:
        updated = await apply_discount(order_id, percent)
        results["ok"].append((updated["id"], updated["total"]))
    except Exception as e:
        results["failed"].append(order_id)

print(f"Discounted: {results['ok']}")
print(f"Failed: {results['failed']}")
check = await get_order(order_id="O-1002")
print(f"New total of O-1002: {check['total']}")
