from servers.shop import create_order, get_order

created = await create_order("Ada Lovelace", [{"sku": "BK-01", "quantity": 1}])
order = await get_order(order_id=1001)
print(order["status"])
