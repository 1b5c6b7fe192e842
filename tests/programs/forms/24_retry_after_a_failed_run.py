order = await create_order("Grace Hopper", [{"sku": "HM-01", "quantity": 1}])
jobs = []
pending = None
print(order["id"])
