from servers.shop import create_customer

customer = await create_customer({"name": "Mary Jackson", "email": "mary@example.com"})
print(customer["address"]["city"])
