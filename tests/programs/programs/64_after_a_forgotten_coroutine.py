from servers.shop import create_order

jobs = None  # start over
order = await create_order(customer="Ada Lovelace", items=[{"sku": "BK-01", "quantity": 1}])
print(f"Created {order['id']}")
