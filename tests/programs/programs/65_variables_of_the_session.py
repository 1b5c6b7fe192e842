# `orders` is still there from the last run
late = [o for o in orders if o["status"] == "pending"]
for o in late:
    updated = await update_order_status(o["id"], "shipped")
    print(updated["id"], updated["status"])
print(len(await list_orders(status="pending")), "pending left")
