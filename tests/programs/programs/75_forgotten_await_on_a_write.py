from servers.shop import create_order

for customer in ["Ada Lovelace", "Grace Hopper"]:
    create_order(customer=customer, items=[{"sku": "TY-02", "quantity": 1}])

print("All orders created!")
