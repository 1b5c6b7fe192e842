from servers.shop import create_order, update_order_status

order = await create_order(customer="Grace Hopper", items=[{"sku": "HM-01", "quantity": 1}])
await update_order_status(order_id=order["id"], staus="shipped")
print("Shipped", order["id"])
