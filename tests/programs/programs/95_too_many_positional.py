from servers.shop import create_order, get_order

new = await create_order("Ada Lovelace", [{"sku": "TY-01", "quantity": 1}])
order = await get_order("shop", "O-1001", True)
print(order["status"])
