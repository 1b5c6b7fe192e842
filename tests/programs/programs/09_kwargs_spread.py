from servers.shop import list_orders

filters = {"status": "pending"}
customer = "Grace Hopper"
if customer:
    filters["customer"] = customer

orders = await list_orders(**filters, limit=10)
for order in orders:
    print(order["id"], order["customer"], order["status"], order["total"])
