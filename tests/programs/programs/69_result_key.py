from servers.shop import list_orders

response = await list_orders()
orders = response["result"]
for order in orders:
    print(order["id"])
